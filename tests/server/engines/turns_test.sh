#!/bin/bash
# Programs of three tenants take turns with their ordinary kernels, whatever lets the kernels begin: the
# client that a stream waits for, an event of another process, a graph. First the programs run at once.
# Then they run beside a kernel that does not end and that began before there was another engine: an
# ordinary one, and an urgent one.
#
#   turns_test.sh DETSHARED FAULT_PROGRAM PROGRAMS... -- LIBCUDA...
source "$(dirname "$0")/own_daemon.sh"
endless=$(realpath "$2")
read_programs "${@:3}"
run_all() { # as the tenant
  local program
  for program in "${programs[@]}"; do
    DETSHARE_TENANT=$1 timeout 60 "$program" >"$folder/$1.out" 2>&1 || echo "$program: $?" >>"$folder/failed"
  done
}
check_all() {
  [ ! -e "$folder/failed" ] || fail "programs and their exit codes: $(cat "$folder/failed")"
}

begin_daemon 1
# Waits for these and not for the daemon.
running=()
for tenant in a b c; do
  run_all "$tenant" &
  running+=($!)
done
wait "${running[@]}"
check_all
end_daemon

run_beside_endless() {
  DETSHARE_TENANT=first "$endless" endless >"$folder/first.out" 2>&1 &
  first=$!
  others+=("$first")
  until_true grep -q '^endless$' "$folder/first.out"
  run_all second
  check_all
  kill -0 "$first" || fail "the program with the endless kernel has ended"
}

begin_daemon 2
run_beside_endless
kill -KILL "$first"
end_daemon

cat >"$folder/config" <<'EOF'
[[tenant]]
name = "first"
class = "latency"
EOF
begin_daemon 3 --config "$folder/config"
run_beside_endless
