#!/bin/bash
# Programs whose engine gives them managed memory with pages that move. Every program uses it at once
# with its kernels, and one is killed while a kernel uses its memory: the others of its isolation group
# do not notice. Nothing is left of the process that keeps a program's memory.
#
#   managed_memory_test.sh DETSHARED PROGRAMS... -- LIBCUDA...
source "$(dirname "$0")/own_daemon.sh"
read_programs "${@:2}"
keepers() { # the processes that keep memory of programs of this test
  local process
  for process in /proc/[0-9]*; do
    [ "$(cat "$process/comm" 2>/dev/null)" = detshare-keeper ] || continue
    ! grep -qs "$folder" "$process/maps" || echo "${process#/proc/}"
  done
}
no_keepers() { [ -z "$(keepers)" ]; }
a_keeper() { ! no_keepers; }

begin_daemon 1
for program in "${programs[@]}"; do
  timeout 120 "$program" atomics >"$folder/program.out" 2>&1 || fail "$program"
  [ "$(tail -n 1 "$folder/program.out")" = ok ] || fail "$program does not end with ok"
done
grep -q "has an engine" "$log" || fail "no engine has served the programs"
no_keepers || fail "a process keeps memory of a program that has ended: $(keepers)"

# ${programs[0]} waits for words of memory that its kernel shares with it.
"${programs[0]}" stopped >"$folder/stopped.out" 2>&1 &
stopped=$!
others+=("$stopped")
until_true grep -q "the kernel runs" "$folder/stopped.out"
a_keeper || fail "no process keeps the program's memory"
kill -KILL "$stopped"
timeout 120 "${programs[0]}" >"$folder/program.out" 2>&1 || fail "beside a killed program"
until_true no_keepers
