#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_dlopen.sh - programs that have long begun can load the libraries, as Python's ctypes does, and call them: what
# they keep for each thread must fit where the loader has little room.
set -u
build=$(realpath "${RONDO_BUILD:-build}")
if nm -D "$build/librondo.so" | grep -qE ' U __(a|t|ub)san'; then
    echo "a sanitizer's library is not for this: passed over"; exit 0
fi
for entry in librondo.so:rondo_get_unique_id compat/libnccl.so.2:ncclGetUniqueId; do
    timeout 30 python3 - "$build/${entry%:*}" "${entry#*:}" <<'PY' || { echo "FAILED: ${entry%:*}"; exit 1; }
import ctypes, sys, threading
library = ctypes.CDLL(sys.argv[1])
make = getattr(library, sys.argv[2])
id = (ctypes.c_ubyte * 128)()
assert make(ctypes.byref(id)) == 0 and any(id)
found = []
other = threading.Thread(target=lambda: found.append(make(None)))  # an error's text, in a thread of its own
other.start(); other.join()
assert found == [4], found
PY
done
echo "both libraries: loaded and called"
