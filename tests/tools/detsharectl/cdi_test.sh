#!/bin/bash
# The specification for container runtimes follows the endpoints of a running daemon.
#
#   cdi_test.sh DETSHARECTL DETSHARED LIBCUDA
set -uo pipefail
CTL=$(realpath "$1") DAEMON=$(realpath "$2") LIBRARIES=$(dirname "$(realpath -s "$3")")

folder=$(mktemp -d /dev/shm/detshare-cdi.XXXXXX)
export DETSHARE_SOCKET=$folder/detshared.sock
cdi=$folder/etc/cdi
daemon= watcher=
finish() {
  [ -z "$watcher" ] || kill "$watcher" 2>/dev/null
  [ -z "$daemon" ] || kill "$daemon" 2>/dev/null
  wait
  rm -rf "$folder"
}
trap finish EXIT
failed=0
fail() { echo "FAILED: $*" && failed=1; }
# Waits until the command succeeds.
await() {
  for _ in $(seq 600); do
    "$@" && return 0
    sleep 0.1
  done
  fail "never: $*"
}
has() { grep -qs "\"name\": \"$1\"" "$cdi/detshare.json"; }
has_not() { ! has "$1"; }
is_gone() { [ ! -e "$cdi/detshare.json" ]; }

# The watcher may begin before the daemon.
"$CTL" cdi --libraries "$LIBRARIES" watch --directory "$cdi" >"$folder/said" 2>"$folder/complained" &
watcher=$!
await grep -qs 'no detshared replies' "$folder/complained"

"$DAEMON" --backend soft --socket "$DETSHARE_SOCKET" --soft-memory 64MiB 2>"$folder/log" &
daemon=$!
await test -S "$DETSHARE_SOCKET"
"$CTL" cdi generate >/dev/null 2>"$folder/none" && fail "a specification without devices"
grep -q 'open one with detsharectl endpoint open' "$folder/none" || fail "no next step: $(cat "$folder/none")"

mkdir "$folder/half" && touch "$folder/half/libcuda.so.1"
for directory in /nonexistent "$folder/half"; do
  "$CTL" cdi --libraries "$directory" generate >"$folder/spec" 2>"$folder/none" && fail "a specification with $directory"
  [ -s "$folder/spec" ] && fail "it prints a specification with $directory"
  grep -q "there is no $directory/lib.*so.1: name the directory of DetShare's libraries" "$folder/none" || fail "no next step: $(cat "$folder/none")"
done

"$CTL" endpoint open alice --memory 16MiB >/dev/null || fail "alice's endpoint"
await has alice
"$CTL" endpoint open bob >/dev/null || fail "bob's endpoint"
await has bob
has alice || fail "alice is gone"
"$CTL" cdi --libraries "$LIBRARIES" generate | diff - "$cdi/detshare.json" || fail "generate and watch differ"
python3 - "$cdi/detshare.json" "$folder" <<'END' || fail "the specification"
import json, os, sys
spec = json.load(open(sys.argv[1]))
assert spec["kind"] == "detshare.io/gpu", spec["kind"]
mounts = [mount for device in spec["devices"] for mount in device["containerEdits"]["mounts"]]
mounts += spec["containerEdits"]["mounts"]
for mount in mounts:
    assert os.path.exists(mount["hostPath"]), mount
assert any(mount["hostPath"].startswith(sys.argv[2]) for mount in mounts)
END
"$CTL" endpoint close alice
await has_not alice
"$CTL" endpoint close bob
await is_gone

# A daemon that ends leaves its endpoints, and so the file stays.
"$CTL" endpoint open carol >/dev/null
await has carol
kill "$daemon" && wait "$daemon"
sleep 1.5
has carol || fail "the end of the daemon took carol's device"
kill "$watcher"
wait "$watcher" || fail "the watcher ends with $?"
watcher='' daemon=''
exit $failed
