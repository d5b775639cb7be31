#!/bin/bash
# Runs a random mixture of the test programs through the CUDA backend, without a GPU: two tenants, of which
# one is a latency tenant, so that sessions move between the groups.
#   mixtures_test.sh RUN_MIXED DETSHARED DETSHARE DETSHARECTL PROGRAMS.TXT LIBCUDA...
set -uo pipefail

if ! ls -L /proc/$$/map_files/* >/dev/null 2>&1; then
  echo "NOT TESTED: only root may open /proc/PID/map_files, through which a daemon reaches another one's memory"
  exit 0
fi
bundle=$TEST_TMPDIR/bundle
mkdir -p "$bundle/bin" "$bundle/lib" "$TEST_TMPDIR/out"
ln -s "$PWD/$2" "$bundle/bin/detshared"
ln -s "$PWD/$3" "$bundle/bin/detshare"
ln -s "$PWD/$4" "$bundle/bin/detsharectl"
ln -s "$PWD/$(dirname "$5")" "$bundle/programs"
ln -s "$PWD/$(dirname "$6")" "$bundle/lib/detshare"

# The seconds only end a test that hangs.
"$1" --bundle "$bundle" --nested --tenants 2 --runs 60 --jobs 4 --kill 0.1 --seconds 600 --timeout 120 --out "$TEST_TMPDIR/out"
status=$?
[ $status -eq 0 ] || cp -r "$TEST_TMPDIR/out" "${TEST_UNDECLARED_OUTPUTS_DIR:-.}"
exit $status
