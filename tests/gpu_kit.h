/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_kit.h - short forms for tests that call the CUDA driver.
 */
#ifndef RONDO_TEST_GPU_KIT_H
#define RONDO_TEST_GPU_KIT_H

#include "base/gpu.h"
#include "ranks.h"
#include "test.h"

/* A driver call that must succeed, or return `result`. */
#define CU(function, ...)               assert_int_equal(rd_gpu_driver()->function(__VA_ARGS__), RD_CU_SUCCESS)
#define CU_FAILS(result, function, ...) assert_int_equal(rd_gpu_driver()->function(__VA_ARGS__), RD_CU_##result)

/* A driver call that must succeed, in a rank. */
#define GPU(function, ...)                                                                                             \
    do {                                                                                                               \
        rd_cu_result gpu_result_ = rd_gpu_driver()->function(__VA_ARGS__);                                             \
        CHECK(gpu_result_ == RD_CU_SUCCESS, "%s: error %u", #function, gpu_result_);                                   \
    } while (0)
/* A call of the library, likewise. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        rondo_result ok_result_ = (call);                                                                              \
        CHECK(ok_result_ == RONDO_SUCCESS, "%s: %s", rondo_result_string(ok_result_), rondo_last_error(NULL));         \
    } while (0)

/* The device's primary context, retained and current in this thread; gpu_leave undoes both. */
rd_cu_context gpu_enter(int device);
void gpu_leave(int device);
rd_cu_address gpu_alloc(size_t bytes);
rd_cu_stream gpu_stream(unsigned flags);
/* Copies between host and device, done when they return. */
void gpu_put(rd_cu_address to, const void *from, size_t bytes);
void gpu_get(void *to, rd_cu_address from, size_t bytes);
/* A kernel of tests/cudasim/trial_FILE.cu, in the current context. */
rd_cu_function gpu_trial(const char *file, const char *kernel);
void gpu_launch(rd_cu_function function, unsigned blocks, unsigned threads, rd_cu_stream stream, void *argument);

/* `thread` for each of n ranks that are threads of one process, of its own, with its communicator; rank i on device i % gpus. */
void gpu_threads(int n, int gpus, void *(*thread)(void *comm));

/* This program again with the argument "walk", on kernels with a bug (cudasim/plant.sh; "": with none), its threads in
 * another order for each seed: how it ends for the first of these for which it does not end well; 0: for none. */
int sweep_walks(const char *settings, const char *plant, int seeds);

/* Whether this is the build with a sanitizer, by its folder's name. */
bool built_with(const char *sanitizer);

typedef struct gpu_plant {
    const char *plant, *build; /* as built_with has it: with what it is found; NULL: in any build */
} gpu_plant;
/* Walks end well without a bug, and badly for some seed with each that this build can find. */
void plants_are_found(const char *settings, const gpu_plant *plants, size_t count);

/* Standard error, from hear_errors to heard, which gives what was written there. */
void hear_errors(void);
void heard(char *text, size_t room);

#endif
