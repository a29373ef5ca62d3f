#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# layers.sh OBJDIR - arrows point down only. Reads the compiler's dependency files: a source under src/LAYER may include
# headers of its own folder and of lower layers; the siblings of one layer never include one another.
set -u
rank() { case $1 in base) echo 0 ;; topo|transport|boot|reduce) echo 1 ;; ring) echo 2 ;; core) echo 3 ;; cli|ddp|sim|shim) echo 4 ;; *) echo 9 ;; esac; }
bad=0 read=0
while IFS= read -r d; do
    from=${d#"$1"/src/}; from=${from%%/*}; read=$((read + 1))
    for h in $(tr ' \\' '\n\n' <"$d" | sed -n 's#^src/\([a-z]*\)/.*\.h:*$#\1#p' | sort -u); do
        [ "$h" = "$from" ] && continue
        case $from-$h in cli-topo|cli-base|ddp-base|shim-base) continue ;; esac
        if [ "$(rank "$from")" = 4 ] || [ "$(rank "$h")" -ge "$(rank "$from")" ]; then
            echo "layers: src/$from includes src/$h (from ${d#"$1"/})" >&2; bad=1
        fi
    done
done < <(find "$1/src" -name '*.d')
[ "$read" -gt 0 ] || { echo "layers: no dependency files under $1" >&2; exit 1; }
[ $bad = 0 ] && echo "layers: $read files, arrows point down only"
exit $bad
