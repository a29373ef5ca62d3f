/* SPDX-License-Identifier: Apache-2.0
 *
 * trial_vector.cu - sum[i] = a[i] + b[i], to try the simulated driver by itself; for the CPU only.
 */
struct vector_args {
    const float *a, *b;
    float *sum;
    unsigned long count;
};

RD_SIM_KERNEL(trial_vector, vector_args, 256)
{
    unsigned long step = (unsigned long)gridDim.x * blockDim.x;
    for (unsigned long i = (unsigned long)blockIdx.x * blockDim.x + threadIdx.x; i < args.count; i += step)
        args.sum[i] = args.a[i] + args.b[i];
}
