#!/bin/bash
# Programs whose engine gives them managed memory with pages that move. Every program uses it at once
# with its kernels, and one is killed while a kernel uses its memory: the others of its isolation group
# do not notice. Nothing is left of the process that keeps a program's memory.
#
#   managed_memory_test.sh DETSHARED PROGRAMS... -- LIBCUDA...
set -eu
detshared=$(realpath "$1") shim=$(realpath "${!#}")
shift
programs=()
while [ "$1" != -- ]; do
  programs+=("$(realpath "$1")")
  shift
done
folder=$(mktemp -d /dev/shm/detshare-managed.XXXXXX)
mkdir "$folder/lib"
cp -L "$shim" "$folder/lib/libcuda.so.1"
export DETSHARE_SOCKET=$folder/d.sock LD_LIBRARY_PATH=$folder/lib
log=$folder/log
"$detshared" --socket "$DETSHARE_SOCKET" --backend soft --soft-threads 2 --isolation tenant 2>"$log" &
daemon=$!
finish() {
  kill -INT "$daemon" 2>/dev/null || true
  wait
  rm -rf "$folder"
}
trap finish EXIT
fail() {
  echo "FAILED: $*"
  cat "$log"
  exit 1
}
# Ends when the command succeeds, or fails the test after a minute.
until_true() {
  for _ in $(seq 600); do
    ! "$@" 2>/dev/null || return 0
    sleep 0.1
  done
  fail "never true: $*"
}
keepers() { # the processes that keep memory of programs of this test
  local process
  for process in /proc/[0-9]*; do
    [ "$(cat "$process/comm" 2>/dev/null)" = detshare-keeper ] || continue
    ! grep -qs "$folder" "$process/maps" || echo "${process#/proc/}"
  done
}
no_keepers() { [ -z "$(keepers)" ]; }
a_keeper() { ! no_keepers; }

until_true grep -q ' serves at ' "$log"
for program in "${programs[@]}"; do
  timeout 120 "$program" atomics >"$folder/out" 2>&1 || fail "$program: $(cat "$folder/out")"
  [ "$(tail -n 1 "$folder/out")" = ok ] || fail "$program does not end with ok"
done
grep -q "has an engine" "$log" || fail "no engine has served the programs"
no_keepers || fail "a process keeps memory of a program that has ended: $(keepers)"

# ${programs[0]} waits for words of memory that its kernel shares with it.
"${programs[0]}" stopped >"$folder/stopped" 2>&1 &
stopped=$!
until_true grep -q "the kernel runs" "$folder/stopped"
a_keeper || fail "no process keeps the program's memory"
kill -KILL "$stopped"
timeout 120 "${programs[0]}" >"$folder/out" 2>&1 || fail "beside a killed program: $(cat "$folder/out")"
until_true no_keepers
