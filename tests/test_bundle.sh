#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_bundle.sh - `make gpu-bundle`'s file on a machine that has nothing of this one: no source, no build, none of the
# libraries that it brings, and little in the path. There its parts run over the simulated driver that is in it.
set -u
tests=$(realpath "$(dirname "$0")") build=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}")
if [ -z "${HIDDEN-}" ]; then
    case $build in *san) echo "not packed with sanitizers, whose libraries a bundle has not"; exit 0 ;; esac
    [ "$(head -c 1 "$tests/../build/kernels/all.fatbin")" != / ] || { echo "no image of kernels"; exit 0; }
    "$tests/bundle/pack.sh" "$build" || exit 1
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    tar -C "$work" -xf "$build/rondo-gpu.tar.xz" || exit 1
    cp "$0" "$work/test.sh"
    # Also without root: a namespace of its own, in which this test mounts as it likes.
    hide=(unshare -m); [ "$(id -u)" = 0 ] || hide=(unshare -rm)
    "${hide[@]}" true 2>/dev/null || { echo "nothing can be hidden here: it runs beside what it was made from"; hide=(env); }
    (cd "$work" && "${hide[@]}" env -i PATH=/usr/bin:/bin HOME="$work" HIDDEN="${hide[0]}" RONDO_BUILD="$build" \
        SOURCE="$(realpath "$tests/..")" bash ./test.sh)
    exit
fi

failed=0
fail() { echo "FAILED  $1"; [ -z "${2-}" ] || tail -n 30 "$2"; failed=1; }
bundle=$PWD/rondo-gpu
if [ "$HIDDEN" = unshare ]; then
    mount -t tmpfs none "$SOURCE" || exit 1
    [ ! -e "$RONDO_BUILD" ] || mount -t tmpfs none "$RONDO_BUILD" || exit 1
    for library in "$bundle"/lib/*; do
        # shellcheck disable=SC2086 # every place that it is in
        for there in $(find /usr/lib /lib /usr/local/lib -name "$(basename "$library")" 2>/dev/null); do
            mount --bind /dev/null "$there" || exit 1
        done
    done
    "$bundle/build/rondo" --version >/dev/null 2>&1 && fail "rondo runs without the bundle's libraries: nothing is hidden"
fi

# A test of each kind; the bench and the tools as they are.
ONLY='test_(gpu_face|device_ways)' timeout 200 "$bundle/run.sh" simulated machine tests bench >out 2>&1 || fail "run.sh" out
for part in machine tests bench; do
    [ -s "$bundle/results/$part.txt" ] && grep -q "^$part: passed" "$bundle/results/summary.txt" || fail "$part: no result" out
done
grep -q '^2 passed, 0 failed' "$bundle/results/tests.txt" || fail "tests" "$bundle/results/tests.txt"
[ "$(grep -c '1000000 sums over the GPU, 0 wrong' "$bundle/results/machine.txt")" = 2 ] || fail "machine" "$bundle/results/machine.txt"
grep -q '^| all-reduce of 64 KiB, 8 ranks on 1 GPU | [0-9.]* us' "$bundle/results/bench.txt" || fail "bench" "$bundle/results/bench.txt"

# Without the simulated driver, and where there is no GPU, each part says so.
if [ ! -e /dev/nvidiactl ]; then
    OUT=$PWD/none ONLY=test_device_ways timeout 60 "$bundle/run.sh" >out 2>&1 && fail "no GPU, and it passed" out
    [ "$(grep -c '^[a-z]*: FAILED' none/summary.txt)" = 3 ] || fail "no GPU: a part passed" none/summary.txt
    grep -q '^no GPU: the CUDA driver cannot be loaded' none/bench.txt || fail "no GPU: why" none/bench.txt
fi
[ $failed = 0 ] && echo "the bundle runs by itself"
exit $failed
