#!/bin/bash
# Runs the test programs through the CUDA backend, without a GPU: the driver of a private daemon is the
# shim, connected to another private daemon with the software GPU.
#
#   cuda_backend_test.sh DETSHARE DETSHARED LIBCUDA... -- RUN_PROGRAMS PROGRAMS.TXT
#
#   LOWER_FLAGS: flags of the daemon with the software GPU [none]
#   UPPER_FLAGS: flags of the daemon with the CUDA backend [none]
#   JOBS: programs at a time [1]
#   SELECT: options of run_programs that choose programs
set -uo pipefail

if ! ls -L /proc/$$/map_files/* >/dev/null 2>&1; then
  echo "NOT TESTED: only root may open /proc/PID/map_files, through which a daemon reaches another one's memory"
  exit 0
fi
detshare=$PWD/$1 detshared=$PWD/$2 libraries=$PWD/$(dirname "$3")
while [ "$1" != -- ]; do shift; done
export DETSHARE_LIB_DIR=$libraries
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A program that starts the daemon with flags, as the launcher gives none to its private daemon.
daemon() { # NAME FLAGS...
  printf '#!/bin/bash\nexec %q %s "$@"\n' "$detshared" "${*:2}" >"$scratch/$1"
  chmod +x "$scratch/$1"
}
# The upper daemon is one session of the lower one. So all its addresses lie in the session's windows, and
# the memory that it registers has the same address in both.
daemon lower --device-window-base 0x060000000000 --device-window-bytes 0x80000000000 \
  --pinned-window-base 0x700000000000 --pinned-window-bytes 0x40000000000 --fresh-window-base 0x6c0000000000 \
  ${LOWER_FLAGS:-}
daemon upper --cuda-driver "$libraries/libcuda.so.1" \
  --device-window-base 0x070000000000 --device-window-bytes 0x1000000000 \
  --fresh-window-base 0x710000000000 --pinned-window-base 0x720000000000 --pinned-window-bytes 0x100000000 \
  ${UPPER_FLAGS:-}

# After a fault the upper daemon would need a new session of the lower one.
read -ra select <<<"${SELECT:---without gpu_only,two_devices,fault,driver_only}"
DETSHARE_DAEMON=$scratch/lower "$detshare" run --standalone=soft -- \
  env DETSHARE_DAEMON="$scratch/upper" "$detshare" run --standalone=cuda -- \
  "$2" --programs "$(dirname "$3")" "${select[@]}" \
  --expect tests/programs/expected --jobs "${JOBS:-1}" \
  --timeout 60 --out "$scratch/outputs"
status=$?
[ $status -eq 0 ] || tar -C "$scratch/outputs" -czf "${TEST_UNDECLARED_OUTPUTS_DIR:-.}/outputs.tar.gz" .
exit $status
