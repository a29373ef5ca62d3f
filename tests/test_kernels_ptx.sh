#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The kernels' bits are the host's only if nvcc contracts nothing, flushes nothing to zero and divides exactly: what it
# made is read.
set -eu
here=$(realpath "$(dirname "$0")") dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "no nvcc: nothing to read"; exit 0; }
cd "$here/.."
flags=$(make -Bn build/kernels/all.fatbin V=1 | tr '\n\\' '  ' | grep -oE -- '-std=[^ ]+|-O[0-9]|-fmad=[a-z]+')
"$nvcc" $flags -Iinclude -ptx -arch=compute_75 kernels/all.cu -o "$dir/all.ptx"
grep -q 'div\.rn\.f32' "$dir/all.ptx" || { echo "no division found: is this the kernels' PTX?"; exit 1; }
if grep -nE '\bfma\.|\bmad\..*f(32|64)|\.ftz|\.approx|div\.full' "$dir/all.ptx"; then
    echo "these change the bits: see kernels/device.cuh"
    exit 1
fi
