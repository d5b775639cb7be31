#!/bin/bash
# A kernel that does not end runs in one tenant's engine before there is any other engine. Programs of
# other tenants take turns with it all the same.
#
#   earlier_kernel_test.sh DETSHARED FAULT_PROGRAM PROGRAM LIBCUDA...
set -eu
detshared=$(realpath "$1") endless=$(realpath "$2") program=$(realpath "$3") shim=$(realpath "${!#}")
folder=$(mktemp -d /dev/shm/detshare-earlier.XXXXXX)
mkdir "$folder/lib"
cp -L "$shim" "$folder/lib/libcuda.so.1"
export DETSHARE_SOCKET=$folder/d.sock LD_LIBRARY_PATH=$folder/lib
log=$folder/log
"$detshared" --socket "$DETSHARE_SOCKET" --backend soft --soft-threads 2 --isolation tenant 2>"$log" &
daemon=$!
first=
finish() {
  [ -z "$first" ] || kill -KILL "$first" || true
  kill -INT "$daemon" 2>/dev/null || true
  wait
  rm -rf "$folder"
}
trap finish EXIT
fail() {
  echo "FAILED: $*"
  cat "$folder"/*.out "$log"
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

await "$log" ' serves at '
DETSHARE_TENANT=first "$endless" endless >"$folder/first.out" 2>&1 &
first=$!
await "$folder/first.out" '^endless$'
for tenant in second third; do
  DETSHARE_TENANT=$tenant timeout 60 "$program" >"$folder/$tenant.out" 2>&1 ||
    fail "the program of tenant $tenant ended with exit code $?"
done
kill -0 "$first" || fail "the program with the endless kernel has ended"
