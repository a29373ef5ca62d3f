#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pack.sh BUILD - what `make check-gpu` and bench/gpu.sh run, built, with the libraries that it needs and run.sh, in one file
# BUILD/rondo-gpu.tar.xz: for a machine with a GPU that has no compiler and lacks the packages, but a C library as new as this
# one's. `make gpu-bundle` calls it.
set -euo pipefail
build=$(realpath "$1") here=$(realpath "$(dirname "$0")") most=$((40 << 20))
to=$build/rondo-gpu file=$build/rondo-gpu.tar.xz
rm -rf "$to" "$file"
mkdir -p "$to"/{lib,tests,bench} "$to"/build/{tests,bench,examples,cudasim}

cd "$build"
# The tests that check-gpu runs are those of its pattern in the Makefile.
programs=(rondo librondo.so.0 bench/gpu examples/all_reduce_cuda cudasim/libcuda.so.1 cudasim/*.so
    $(find tests -maxdepth 1 -type f -perm -u+x | grep -E 'test_(gpu|device|kernels|ddp)' | sort))
for program in "${programs[@]}"; do strip -o "$to/build/$program" "$program"; done

# Not the C library, which belongs to the machine's loader and kernel.
ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|rondo))\.so[^/]*$' | xargs -I{} cp -L {} "$to/lib/"

# The simulated driver knows an image by its bytes, wherever that lies.
sed 's|^/[^ ]*/||' cudasim/images >"$to/build/cudasim/images"
awk '{print $1}' cudasim/images | (cd cudasim && xargs -I{} cp {} "$to/build/cudasim/")
cp "$here/run.sh" "$to/"
cp "$here/../run.sh" "$to/tests/"
cp "$here/../../bench/gpu.sh" "$to/bench/"

tar -C "$build" --sort=name --owner=0 --group=0 --numeric-owner -cf - rondo-gpu | xz -3 >"$file"
bytes=$(stat -c %s "$file")
echo "$file: $((bytes >> 10)) KiB. On a machine with a GPU: tar xf rondo-gpu.tar.xz && rondo-gpu/run.sh"
[ "$bytes" -le $most ] || { echo "that is more than $((most >> 20)) MiB" >&2; exit 1; }
