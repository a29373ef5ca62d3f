#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_readme.sh - what the README says is so: its program compiles as it says and runs, its settings are those of the
# table, and the files that it names exist.
set -u
build=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}")
cd "$(dirname "$0")/.." || exit 1
[ -e "$build/librondo.so" ] && [ -x "$build/rondo" ] || { echo "ERROR: no library or tool in $build; run make"; exit 1; }
tmp=$(mktemp -d) failed=0
mkdir "$tmp/examples"
trap 'rm -rf "$tmp"' EXIT
fail() {
    echo "ERROR: $1"; shift; failed=1
    for f in "$@"; do echo "--- $f"; head -c 1500 "$f"; done
}

# The program: the first block of C. It is examples/hello.c, and the README's command builds it.
awk '/^```c$/ {on = 1; next} /^```$/ {if (on) exit} on' README.md >"$tmp/examples/hello.c"
[ -s "$tmp/examples/hello.c" ] || fail "no program in README.md"
grep -v SPDX examples/hello.c | diff "$tmp/examples/hello.c" - >"$tmp/diff" ||
    fail "not the program of examples/hello.c" "$tmp/diff"
lines=$(sed -n '/^int main/,$p' "$tmp/examples/hello.c" | wc -l)
[ "$lines" -le 16 ] || fail "the program has grown to $lines lines"
# A library built with a sanitizer needs a program built with it.
case $(nm -D "$build/librondo.so" | grep -oE '__(asan|tsan|ubsan)_' | sort -u | head -1) in
__asan_) san=-fsanitize=address ;; __tsan_) san=-fsanitize=thread ;; __ubsan_) san=-fsanitize=undefined ;; *) san= ;;
esac
command=$(grep -m1 '^cc .*hello' README.md)
[ -n "$command" ] || fail "no command that compiles it"
(cp -r include "$tmp" && cd "$tmp" && ln -s "$build" build && eval "$command -Wall -Wextra -Werror $san") \
    >"$tmp/log" 2>&1 || fail "the command does not build it: $command" "$tmp/log"
timeout -k 1 30 "$build/rondo" run -n 3 -- "$tmp/hello" >"$tmp/out" 2>"$tmp/err" </dev/null ||
    fail "it fails" "$tmp/out" "$tmp/err"
for r in 0 1 2; do echo "[$r] rank $r: the ranks add up to 3, and there are 3 of them"; done >"$tmp/want"
sort "$tmp/out" | diff - "$tmp/want" >"$tmp/diff" || fail "it prints something else" "$tmp/diff" "$tmp/err"

# The other program: the block of C with a stream.
awk '/^```c$/ {on = 1; text = ""; next} /^```$/ {if (on && text ~ /rondo_stream_create/) {printf "%s", text; exit} on = 0}
    on {text = text $0 "\n"}' README.md >"$tmp/more.c"
[ -s "$tmp/more.c" ] || fail "no program with a stream in README.md"
cc -Wall -Wextra -Werror -std=c11 $san -Iinclude "$tmp/more.c" -o "$tmp/more" -L"$build" -lrondo -Wl,-rpath,"$build" \
    >"$tmp/log" 2>&1 || fail "the program with a stream is not built" "$tmp/log"
timeout -k 1 30 "$build/rondo" run -n 4 -- "$tmp/more" >"$tmp/out" 2>"$tmp/err" </dev/null ||
    fail "the program with a stream fails" "$tmp/out" "$tmp/err"
for r in 0 1 2 3; do
    echo "[$r] rank $r of 4: sum 6, from before $(((r + 3) % 4)), in my half $((2 + r % 2 * 2))"
done >"$tmp/want"
sort "$tmp/out" | diff - "$tmp/want" >"$tmp/diff" || fail "the program with a stream prints something else" "$tmp/diff" "$tmp/err"

# Settings and defaults.
tr '\n' ' ' <src/base/env.h | grep -oE 'SETTING\([a-z_]+, *"RONDO_[A-Z_]+", *[A-Z]+, *("[^"]*"|NULL)' |
    sed -E 's/.*"(RONDO_[A-Z_]+)", *[A-Z]+, *"?([^"]*)"?$/\1 \2/; s/ NULL$/ /' >"$tmp/want"
sed -nE 's/^\| `(RONDO_[A-Z_]+)` \|([^|]*)\|.*/\1\2/p' README.md | sed 's/ *$//' | sort >"$tmp/have"
sed 's/ *$//' "$tmp/want" | sort -o "$tmp/want"
[ -s "$tmp/want" ] || fail "no settings found in src/base/env.h"
diff "$tmp/have" "$tmp/want" >"$tmp/diff" || fail "settings (<: README, >: src/base/env.h)" "$tmp/diff"

for path in $(grep -ohE '\]\([^)#]+' README.md CONTRIBUTING.md | cut -c3-); do
    [ -e "$path" ] || fail "README.md or CONTRIBUTING.md names $path, which is not there"
done
for target in demo check check-layers install uninstall; do grep -q "^$target:" Makefile || fail "no target $target"; done
[ $failed = 0 ] && echo "readme: all well"
exit $failed
