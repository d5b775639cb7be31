#!/bin/bash
# A program registers memory that it shares with another process. Its engine may not open the file,
# so the supervisor does, also one that has replaced another. As root it is tested with and without
# users of their own for engines.
#
#   registered_memory_test.sh DETSHARED PROGRAM LIBCUDA...
source "$(dirname "$0")/own_daemon.sh"
program=$(realpath "$2")
run() {
  DETSHARE_TENANT=chat timeout 120 "$program" >"$folder/program.out" 2>&1 || fail "the program ended with exit code $?"
}

check() {
  rm -rf "$folder"/log* "$folder/d.sock" "$folder/engines"
  begin_daemon 1 "$@"
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
  begin_daemon 2 "$@"
  run
  grep -q "keeps its engine: pid $engine" "$folder/log2" || fail "the engine was not adopted"
  end_daemon
}

check
if [ "$(id -u)" = 0 ] && grep -q ' 4294967295$' /proc/self/uid_map; then
  check --engine-users 2000000000-2000000009
else
  echo "NOT TESTED: engines with users of their own"
fi
