#!/bin/bash
# Runs this shard of the test programs through the shim and a private daemon on the software GPU.
#
#   soft_test.sh DETSHARE DETSHARED LIBCUDA... -- RUN_PROGRAMS PROGRAMS.TXT
#
#   DAEMON_FLAGS: flags of the daemon [none]
#   JOBS: programs at a time [1]
#   SELECT: options of run_programs that choose programs
set -uo pipefail

detshare=$1
export DETSHARE_DAEMON=$PWD/$2
export DETSHARE_LIB_DIR=$PWD/$(dirname "$3")
while [ "$1" != -- ]; do shift; done
if [ -n "${DAEMON_FLAGS:-}" ]; then
  # The launcher gives no flags to its private daemon.
  daemon=$(mktemp -d)/detshared
  printf '#!/bin/bash\nexec %q %s "$@"\n' "$DETSHARE_DAEMON" "$DAEMON_FLAGS" >"$daemon"
  chmod +x "$daemon"
  export DETSHARE_DAEMON=$daemon
fi
[ -z "${TEST_SHARD_STATUS_FILE:-}" ] || touch "$TEST_SHARD_STATUS_FILE"

# The software GPU may use all of the test's time. A program that hangs is named before the test is
# killed.
read -ra select <<<"${SELECT:---without gpu_only,two_devices}"
outputs=$(mktemp -d)
trap 'rm -rf "$outputs" ${daemon:+"$(dirname "$daemon")"}' EXIT
"$detshare" run --standalone=soft -- "$2" --programs "$(dirname "$3")" "${select[@]}" \
  --expect tests/programs/expected --jobs "${JOBS:-1}" \
  --shard "${TEST_SHARD_INDEX:-0}/${TEST_TOTAL_SHARDS:-1}" --timeout 600 --out "$outputs"
status=$?
# One file, because Bazel spends some 50 ms on each.
[ $status -eq 0 ] || tar -C "$outputs" -czf "${TEST_UNDECLARED_OUTPUTS_DIR:-.}/outputs.tar.gz" .
exit $status
