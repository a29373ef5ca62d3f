#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Places where a job must run as well as anywhere: cases 24 (only a loopback interface) and 28 (/dev/shm of 1 MB; nothing
# left by killed runs). Namespaces need no root (`unshare -r`); root does without a user namespace, which a chroot may
# not have.
set -u
build=${RONDO_BUILD:-build}
failed=0
slow=1; case $build in *san) slow=5 ;; esac
say() { if [ "$1" = 0 ]; then echo "OK      $2"; else echo "FAILED  $2"; failed=1; fi; }
apart() { if [ "$(id -u)" = 0 ]; then unshare "$@"; else unshare -r "$@"; fi; }
verify="$build/rondo run -n 4 -- $build/examples/verify -c 100003"

# case 24: a network namespace with loopback alone, up and down
apart -n sh -c "ip link set lo up && RONDO_TRANSPORT=tcp $verify" >/dev/null; say $? "case_24: tcp where loopback is the only interface"
apart -n sh -c "ip link set lo up && $verify" >/dev/null; say $? "case_24: the transport it chooses itself"
apart -n sh -c "$verify" >/dev/null; say $? "case_24: shared memory where even loopback is down"

# case 28: 1 MB of /dev/shm in a mount namespace of its own, far less than the job uses
small='mount -t tmpfs -o size=1m none /dev/shm'
apart -m sh -c "$small && RONDO_TRANSPORT=shm $build/rondo run -n 4 -- $build/examples/verify -c 10556587" >/dev/null
say $? "case_28: 40 MiB a rank with 1 MB of /dev/shm"
apart -m sh -c "$small && $verify && [ -z \"\$(ls -A /dev/shm)\" ]" >/dev/null; say $? "case_28: nothing in /dev/shm after a run"

# case 28: 20 runs killed at any moment; no file, no process of theirs is left
here=$(mktemp -d); trap 'rm -rf "$here"' EXIT
listing() { (ls -A /dev/shm "$here" /tmp /run 2>/dev/null; ls -A /var/tmp) | grep -i rondo | sort; }
before=$(listing)
for i in $(seq 20); do
    TMPDIR=$here setsid "$build/rondo" run -n 4 -- "$build/examples/verify" -c 3000017 -r 1000000 >/dev/null 2>&1 &
    pid=$!
    sleep "0.$((RANDOM % 30 + 5))"
    kill -KILL -- "-$pid" 2>/dev/null || kill -KILL "$pid"
    wait "$pid" 2>/dev/null
done
for _ in $(seq $((50 * slow))); do pgrep -f "^$build/examples/verify -c 3000017" >/dev/null || break; sleep 0.1; done
! pgrep -f "^$build/examples/verify -c 3000017" >/dev/null; say $? "case_28: no process of 20 killed runs is left"
[ "$(listing)" = "$before" ]; say $? "case_28: no file of 20 killed runs is left"
exit $failed
