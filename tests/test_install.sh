#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_install.sh - what `make install` puts where, that the README's program compiles against it by pkg-config, shared
# and static, and runs, that `make uninstall` takes all of it away again, and that the manual page says what the tool does.
set -u
build=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}") here=$(realpath "$(dirname "$0")/..")
case $(basename "$build") in # nothing of a sanitizer's build is in this
asan|ubsan|tsan|coverage) echo "not repeated for ${build##*/}: make check runs it"; exit 0 ;;
esac
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
root=$tmp/root prefix=/opt/rondo
fail() { echo "ERROR: $1"; shift; failed=1; for f in "$@"; do echo "--- $f"; head -c 1500 "$f"; done; }
make_() { # TARGET [settings]
    env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory -C "$here" BUILD="$build" DESTDIR="$root" PREFIX=$prefix "$@" >log 2>&1
}

# ---- Installed where it was asked for, under a umask that would hide it
(umask 077; make_ install) || { fail "make install" log; exit 1; }
version=$(sed -nE 's/.*define RONDO_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+)/\2/p' "$here/include/rondo.h" | paste -sd.)
{
    printf '%s\n' bin/rondo lib/librondo.{a,so,so.0,so.$version} lib/pkgconfig/rondo.pc share/man/man1/rondo.1
    (cd "$here" && ls include/rondo*.h)
    printf '%s\n' include/rondo/compat/nccl.h lib/rondo/compat/libnccl.so{,.2}
} | sort >want
(cd "$root$prefix" && find . ! -type d | sed 's#^./##' | sort) | diff want - >diff || fail "files (<: expected, >: installed)" diff
[ "$(cd "$root" && find . -maxdepth 2 -mindepth 1 | sort | paste -sd' ')" = "./opt ./opt/rondo" ] || fail "something outside of $prefix"
find "$root" ! -type l ! -perm -444 -o -type d ! -perm -555 >closed; [ ! -s closed ] || fail "not readable for all" closed
find "$root$prefix" -xtype l >dangling; [ ! -s dangling ] || fail "links to nothing" dangling
grep -rIl -- "$here\|$tmp" "$root" >paths && fail "paths of this machine" paths
readelf -d "$root$prefix/lib/librondo.so" | grep -q 'SONAME.*\[librondo\.so\.0\]' || fail "no SONAME librondo.so.0"
nm -D --defined-only "$root$prefix/lib/librondo.so" | awk '$2 != "A" && $3 !~ /^rondo_/' >names
[ ! -s names ] || fail "the library shows more than rondo_*" names

# ---- The README's program against it
export PKG_CONFIG_LIBDIR=$root$prefix/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
[ "$(pkg-config --modversion rondo)" = "$version" ] || fail "pkg-config --modversion: $(pkg-config --modversion rondo), expected $version"
[ "$("$root$prefix/bin/rondo" version)" = "rondo $version" ] || fail "the installed tool is not rondo $version"
mkdir examples
awk '/^```c$/ {on = 1; next} /^```$/ {if (on) exit} on' "$here/README.md" >examples/hello.c
warnings="-Wall -Wextra -Wpedantic -Werror -std=c11"
runs() { # NAME
    LD_LIBRARY_PATH=${2-} timeout -k 1 30 "$root$prefix/bin/rondo" run -n 3 -- "./$1" >out 2>err </dev/null || fail "$1 fails" out err
    for r in 0 1 2; do echo "[$r] rank $r: the ranks add up to 3, and there are 3 of them"; done | diff <(sort out) - >diff ||
        fail "$1 prints something else" diff err
}
command=$(sed -nE '/^cc examples.hello.c .*pkg-config/p' "$here/README.md" | head -1)
[ -n "$command" ] || fail "the README has no command that compiles with pkg-config"
eval "$command $warnings" >log 2>&1 && runs hello "$root$prefix/lib" || fail "$command" log
readelf -d hello | grep -q 'NEEDED.*\[librondo\.so\.0\]' || fail "the program does not need librondo.so.0"
for header in "$root$prefix"/include/*.h; do # each by itself, in C and, where there is a compiler, in C++
    echo "#include <${header##*/}>" >one.c
    cc $warnings $(pkg-config --cflags rondo) -fsyntax-only one.c 2>log || fail "${header##*/} in C" log
    ! command -v c++ >/dev/null || c++ -x c++ -std=c++17 -Wall -Wextra -Werror $(pkg-config --cflags rondo) -fsyntax-only one.c 2>log ||
        fail "${header##*/} in C++" log
done
rm "$root$prefix"/lib/librondo.so*
cc examples/hello.c -o static $warnings $(pkg-config --cflags --libs --static rondo) >log 2>&1 && runs static || fail "static" log
readelf -d static | grep -q librondo && fail "linked with the static library, and yet needs the other"
command=$(tr '\n' ' ' <"$here/README.md" | grep -oE '`cc examples/hello.c [^`]*librondo\.a [^`]*`' | tr -d '`')
[ -n "$command" ] || fail "the README does not say how to link with librondo.a"
(PREFIX=$root$prefix; eval "$command $warnings") >log 2>&1 && runs hello || fail "$command" log
readelf -d hello | grep -q librondo && fail "by hand linked with librondo.a, and yet needs the other"

# ---- And away again; another library directory
make_ install LIBDIR=$prefix/lib64 && [ -e "$root$prefix/lib64/librondo.so.0" ] || fail "LIBDIR" log
PKG_CONFIG_LIBDIR=$root$prefix/lib64/pkgconfig pkg-config --libs rondo | grep -q "$prefix/lib64" || fail "LIBDIR in rondo.pc"
make_ uninstall LIBDIR=$prefix/lib64 && make_ uninstall || fail "make uninstall" log
[ ! -e "$root$prefix" ] || { find "$root$prefix" >left; fail "left by uninstall" left; }
make_ install && touch "$root$prefix/lib/other" && make_ uninstall || fail "make uninstall beside others" log
[ "$(cd "$root$prefix" && find . | sort | paste -sd' ')" = ". ./lib ./lib/other" ] || fail "uninstall beside others" log
make_ help && grep -q '^make install ' log && ! grep -q '^#' log || fail "make help" log

# ---- The manual page: every command's options, as its help has them; every setting, with its default
page=$here/docs/rondo.1
# headings [SECTION]: what its paragraphs are about, without markup
headings() {
    sed -E 's/\\f[BIRP]//g; s/\\-/-/g' "$page" | awk -v section="${1-}" '
        /^\.S[SH] / { on = section == "" || $0 == ".SS " section }
        on && tagged { sub(/^\.[BIR]+ /, ""); gsub(/"/, ""); gsub(/ +, +/, ", "); gsub(/ +/, " "); sub(/ $/, ""); print }
        { tagged = /^\.TP/ }'
}
for command in $("$build/rondo" --help | sed -nE 's/^  ([a-z-]+) +.*/\1/p'); do
    "$build/rondo" "$command" --help | sed -nE 's/^ +((-[a-zA-Z], )?--[a-z-]+( [^ ]+)?)(  .*|$)/\1/p' |
        grep -v '^-h, --help' | sort >want
    headings "rondo $command" | sort | diff - want >diff || fail "options of rondo $command (<: docs/rondo.1, >: --help)" diff
done
tr '\n' ' ' <"$here/src/base/env.h" | grep -oE 'SETTING\([a-z_]+, *"RONDO_[A-Z_]+", *[A-Z]+, *("[^"]*"|NULL)' |
    sed -E 's/.*"(RONDO_[A-Z_]+)", *[A-Z]+, *"?([^"]*)"?$/\1 (\2)/; s/ \(NULL\)$//' >want
headings | grep '^RONDO_' | diff - want >diff || fail "settings (<: docs/rondo.1, >: src/base/env.h)" diff
! command -v groff >/dev/null || { groff -man -ww -z "$page" >log 2>&1; [ ! -s log ] || fail "the manual page's markup" log; }
[ $failed = 0 ] && echo "install: all well"
exit $failed
