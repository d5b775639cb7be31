#!/bin/bash
# Programs of three tenants take turns with their ordinary kernels, whatever lets the kernels begin: the
# client that a stream waits for, an event of another process, a graph. First the programs run at once.
# Then they run beside a kernel that does not end and that began before there was another engine: an
# ordinary one, and an urgent one.
#
#   turns_test.sh DETSHARED FAULT_PROGRAM PROGRAMS... -- LIBCUDA...
set -eu
detshared=$(realpath "$1") endless=$(realpath "$2") shim=$(realpath "${!#}")
shift 2
programs=()
while [ "$1" != -- ]; do
  programs+=("$(realpath "$1")")
  shift
done
folder=$(mktemp -d /dev/shm/detshare-turns.XXXXXX)
mkdir "$folder/lib"
cp -L "$shim" "$folder/lib/libcuda.so.1"
export DETSHARE_SOCKET=$folder/d.sock LD_LIBRARY_PATH=$folder/lib
daemon= first=
end_daemon() {
  [ -z "$daemon" ] || kill -INT "$daemon" 2>/dev/null || true
  wait
  daemon=
}
finish() {
  [ -z "$first" ] || kill -KILL "$first" || true
  end_daemon
  rm -rf "$folder"
}
trap finish EXIT
fail() {
  echo "FAILED: $*"
  tail -n 30 "$folder"/*.out "$folder"/log*
  exit 1
}
# Waits until the file has a line with the text.
await() {
  for _ in $(seq 600); do
    ! grep -qs "$2" "$1" || return 0
    sleep 0.1
  done
  fail "no line with '$2' comes"
}
begin_daemon() { # NUMBER [OPTIONS]
  "$detshared" --socket "$DETSHARE_SOCKET" --backend soft --soft-threads 2 --isolation tenant "${@:2}" 2>"$folder/log$1" &
  daemon=$!
  await "$folder/log$1" ' serves at '
}
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
  await "$folder/first.out" '^endless$'
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
