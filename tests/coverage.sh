#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# coverage.sh BUILD - runs the tests of a build made with --coverage and prints for each file and folder of src/ (and the
# public headers) which share of their lines ran. BUILD/coverage.txt lists the lines that did not. A line counts once,
# however many objects have it. What a process did that was killed is not seen.
set -u
build=$(realpath "$1") here=$(realpath "$(dirname "$0")")
cd "$here/.." || exit 1
find "$build/obj" -name '*.gcda' -delete
"$here/run.sh" "$build"; rc=$?
find "$build/obj/src" "$build/obj/tests" -name '*.gcda' | sort | while read -r data; do
    ${GCOV:-gcov} --stdout "$data" 2>/dev/null
done | awk -F: -v OFS=: -v missed="$build/coverage.txt" '
    { sub(/^ +/, "", $1); line = $2 + 0 }
    line == 0 && $3 == "Source" { file = $4; next }
    file !~ /^(src|include)\// || $1 == "-" || line == 0 { next }
    { seen[file, line] = 1; text[file, line] = $0; sub(/^[^:]*:[^:]*:/, "", text[file, line]); if (line > last[file]) last[file] = line }
    $1 !~ /^[#=]/ { ran[file, line] = 1 }
    END {
        printf "" >missed
        for (file in last) {
            folder = file; sub(/\/[^\/]*$/, "", folder)
            for (n = 1; n <= last[file]; n++) if ((file, n) in seen) {
                lines[file]++; lines[folder]++; lines["total"]++
                if ((file, n) in ran) { did[file]++; did[folder]++; did["total"]++ }
                else printf "%s:%d:%s\n", file, n, text[file, n] >missed
            }
        }
        for (name in lines) printf "%-36s %5d of %5d lines  %5.1f %%\n", name, did[name], lines[name], 100 * did[name] / lines[name] | "sort"
    }' | awk '(/^(src|include)\/[^ .]* / || /^total/) && NR > 1 { print "" } { print }'
sort -t: -k1,1 -k2,2n -o "$build/coverage.txt" "$build/coverage.txt"
echo; echo "not reached: $build/coverage.txt"
exit $rc
