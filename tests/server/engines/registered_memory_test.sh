#!/bin/bash
# A program registers memory that it shares with another process. Its engine may not open the file,
# so the supervisor does, also one that has replaced another. As root it is tested with and without
# users of their own for engines.
#
#   registered_memory_test.sh DETSHARED PROGRAM LIBCUDA...
set -eu
detshared=$(realpath "$1") program=$(realpath "$2") shim=$(realpath "${!#}")
folder=$(mktemp -d /dev/shm/detshare-registered.XXXXXX)
chmod 755 "$folder" # engines with users of their own pass through
mkdir "$folder/lib"
cp -L "$shim" "$folder/lib/libcuda.so.1"
daemon=
finish() {
  [ -z "$daemon" ] || kill -INT "$daemon" || true
  wait
  rm -rf "$folder"
}
trap finish EXIT
fail() {
  echo "FAILED: $*"
  cat "$folder"/log*
  exit 1
}

# Starts a supervisor, and waits until it serves.
begin() {
  log=$folder/log$1
  "$detshared" --socket "$folder/d.sock" --backend soft --soft-threads 2 --isolation tenant "${users[@]}" 2>"$log" &
  daemon=$!
  for _ in $(seq 600); do
    ! grep -qs ' serves at ' "$log" || return 0
    sleep 0.1
  done
  fail "the daemon does not start"
}
run() {
  DETSHARE_SOCKET=$folder/d.sock DETSHARE_TENANT=chat LD_LIBRARY_PATH=$folder/lib timeout 120 "$program" \
    >"$folder/log-program" 2>&1 || fail "the program ended with exit code $?"
}

check() {
  rm -rf "$folder"/log* "$folder/d.sock" "$folder/engines"
  users=("$@")
  begin 1
  run
  engine=$(grep -o 'has an engine: pid [0-9]*' "$folder/log1" | grep -o '[0-9]*$')
  granted=$(grep CapEff "/proc/$engine/status" | cut -f2)
  # CAP_DAC_OVERRIDE is 1, CAP_SYS_PTRACE 19, CAP_CHECKPOINT_RESTORE 40.
  for capability in 1 19 40; do
    [ $((0x$granted >> capability & 1)) = 0 ] || fail "the engine has capability $capability"
  done

  # The engine stays, since it was just used.
  kill -KILL "$daemon"
  wait "$daemon" 2>/dev/null || true
  begin 2
  run
  grep -q "keeps its engine: pid $engine" "$folder/log2" || fail "the engine was not adopted"
  kill -INT "$daemon"
  wait "$daemon" || fail "the daemon ended with exit code $?"
  daemon=
}

check
if [ "$(id -u)" = 0 ] && grep -q ' 4294967295$' /proc/self/uid_map; then
  check --engine-users 2000000000-2000000009
else
  echo "NOT TESTED: engines with users of their own"
fi
