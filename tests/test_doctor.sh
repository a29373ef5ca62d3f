#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_doctor.sh - `rondo doctor`: a healthy machine, settings good and bad, and things that are missing. RONDO_BUILD
# names the build directory.
set -u
rondo=$(realpath "${RONDO_BUILD:-$(dirname "$0")/../build}")/rondo
[ -x "$rondo" ] || { echo "ERROR: no $rondo; build it first"; exit 1; }
here=$(realpath "$(dirname "$0")")
tmp=$(mktemp -d) failed=0
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
for name in $(compgen -e RONDO_ | grep -vE "^RONDO_(BUILD|TESTS|TEST_.*)$"); do unset "$name"; done

fail() { echo "ERROR: $1"; shift; for f in "$@"; do echo "--- $f"; head -c 2500 "$f"; done; failed=1; }
go() { timeout -k 1 60 env "$@" >out 2>err </dev/null; rc=$?; } # [NAME=VALUE...] "$rondo" doctor ...
says() { grep -qE -- "$1" out || fail "$2: nothing says '$1'" out; }

healthy() {
    go "$rondo" doctor
    [ $rc = 0 ] || fail "here: status $rc" out err
    [ ! -s err ] || fail "here: it complains" err
    says '^  ok       shm            2 ranks summed 100003 float32, every one right$' here
    says '^  ok       tcp            2 ranks summed 100003 float32, every one right$' here
    for what in shm sleep unix CPUs memory 'open files' memlock /dev/shm version pidfd membarrier rondo hwloc; do
        says "^  (ok|-|warning)  +$what  " here
    done
    says '^Nothing that Rondo needs is missing\.$' here
    grep -cE '^  RONDO_[A-Z_]+ +[^ ]+  \(default\)$' out >count
    "$rondo" doctor --json | grep -c '"from": "default"' | cmp -s - count || fail "settings" out
}

# Every setting of the README is there, and no other.
all_settings() {
    go "$rondo" doctor --json
    python3 - <<'P' || fail "JSON" out
import json
t = json.load(open("out"))
assert t["ok"] is True and "core" in t["machine"]
assert {"section", "name", "level", "text", "fix"} == set(t["checks"][0])
assert all(c["level"] in ("ok", "info", "warning", "missing") for c in t["checks"])
assert {c["section"] for c in t["checks"]} == {"links", "self-test", "limits", "kernel", "libraries", "gpus"}
settings = {s["name"]: s for s in t["settings"]}
assert settings["RONDO_SLICE"] == {"name": "RONDO_SLICE", "value": "262144", "default": "262144", "from": "default",
    "range": "4096 to 262144 bytes, a multiple of 64", "help": settings["RONDO_SLICE"]["help"]}
for name in "RONDO_TRACE", "RONDO_RECORD":
    assert settings[name]["default"] is None and settings[name]["value"] == "unset"
P
    python3 -c "import json; print(*sorted(s['name'] for s in json.load(open('out'))['settings']))" | tr ' ' '\n' >has
    sed -n 's/^| `\(RONDO_[A-Z_]*\)`.*/\1/p' "$here/../README.md" | LC_ALL=C sort -u >told
    LC_ALL=C sort has | LC_ALL=C comm -3 - told >differ
    [ ! -s differ ] || fail "the README's settings are others" differ
}

environment() {
    go RONDO_SLICE=64K RONDO_KEY=secret RONDO_ALGO=rng RONDO_REQUIRE_KEY=jes RONDO_CHANELS=2 RONDO_OTHER=1 \
        "$rondo" doctor
    [ $rc = 0 ] || fail "bad settings: status $rc" out err
    says '^  RONDO_SLICE +65536  \(environment; default 262144\)$' "from the environment"
    says '^  RONDO_KEY +set  \(environment; default unset\)$' "a key"
    grep -q secret out err && fail "the key is shown" out err
    says '^  RONDO_ALGO +auto  \(not valid in the environment\)$' "a bad value"
    says "^  warning  RONDO_ALGO +'rng' is not valid, it must be auto, ring, flat, exchange or hier; auto holds$" "a bad value"
    says '^ +to mend it: unset RONDO_ALGO$' "a bad value"
    says '^  RONDO_REQUIRE_KEY +1  \(not valid in the environment\)$' "a bad switch"
    says '^  warning  RONDO_CHANELS +is not a setting; did you mean RONDO_CHANNELS\?$' "an unknown name"
    says '^  warning  RONDO_OTHER +is not a setting$' "an unknown name"
    go RONDO_DEBUG=NONE RONDO_CHANELS=2 "$rondo" doctor
    says '^  warning  RONDO_CHANELS ' "an unknown name, in silence"
    [ ! -s err ] || fail "RONDO_DEBUG=NONE does not silence it" err
}

records() {
    : >file
    go RONDO_RECORD=file "$rondo" doctor
    says '^  warning  RONDO_RECORD +no records can be written to file: Not a directory$' "a file"
    [ ! -s err ] || fail "a file: its own ranks complain" err
    go RONDO_RECORD=no/such "$rondo" doctor
    says '^  warning  RONDO_RECORD +no records can be written to no/such: No such file' "two levels"
    go RONDO_RECORD=new "$rondo" doctor
    [ ! -e new ] || fail "doctor makes a directory"
    grep -q 'warning  RONDO_RECORD' out && fail "one level" out
    mkdir there; go RONDO_RECORD=there "$rondo" doctor
    grep -q 'warning  RONDO_RECORD' out && fail "a directory that is there" out
}

# What it says that ranks open is what they open at most.
open_files() {
    timeout 60 "$rondo" bench --startup -n 2,8,32 --json started >out 2>err || fail "bench --startup" out err
    go RONDO_FLAT_RANKS=20 "$rondo" doctor
    says 'open files .* a rank opens up to 12 and 6 for each rank of its host, .* 132 with RONDO_FLAT_RANKS=20;' "open files"
    python3 - <<'P' >wrong || fail "open files" wrong
import json
for job in json.load(open("started"))["startup"]:
    n, most = job["ranks"], job["descriptors"]["most"]
    allowed = 12 + 6 * n if n <= 16 else 40
    assert allowed / 2 < most <= allowed, f"{n} ranks open {most}, told {allowed}"
P
}

missing() {
    go RONDO_INTERFACE=nothing9 "$rondo" doctor
    [ $rc = 1 ] || fail "no interface: status $rc, expected 1" out err
    says '^  MISSING  tcp +RONDO_INTERFACE=nothing9 matches no interface' "no interface"
    says '^ +to mend it: unset RONDO_INTERFACE$' "no interface"
    says '^  -        tcp lo +not used: RONDO_INTERFACE leaves it out; 127\.0\.0\.1' "no interface"
    says '^Something that Rondo needs is missing' "no interface"
    go RONDO_INTERFACE=lo "$rondo" doctor
    says '^  ok       tcp lo +127\.0\.0\.1' "loopback by name"
    go bash -c 'ulimit -n 24; exec "$0" doctor' "$rondo"
    [ $rc = 1 ] || fail "few files: status $rc, expected 1" out err
    says '^  MISSING  open files +24 ' "few files"
    says '^ +to mend it: ulimit -n 4096$' "few files"
}

misuse() {
    local words
    for words in "--jsn" "now" "-n" "--json=1" "--pid" "--pid 0" "--pid x" "--calls 3" "--pid 1 --calls 0" "--save x" \
        "--pid 1 --merge ." "--merge"; do
        timeout 20 "$rondo" doctor $words >out 2>err; rc=$?
        [ $rc = 2 ] && [ -s err ] && [ ! -s out ] || fail "doctor $words: status $rc, expected 2" out err
    done
    timeout 20 "$rondo" doctor --merge no/such >out 2>err; rc=$?
    [ $rc = 1 ] && grep -q -- "--merge no/such: No such file" err || fail "no directory: status $rc" out err
    timeout 20 "$rondo" doctor --help >out 2>err && grep -q "^usage: rondo doctor" out || fail "doctor --help" out err
}

healthy
all_settings
environment
records
open_files
missing
misuse
[ $failed = 0 ] && echo "doctor: as it should be"
exit $failed
