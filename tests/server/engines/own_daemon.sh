# The beginning of the tests beside this file that run real programs with a daemon of their own. Its
# engines have the software GPU. Sourced with the test's arguments: DETSHARED ... LIBCUDA...
#
# Afterwards programs find the daemon and DetShare's libcuda.so.1. These exist: $folder, for outputs
# (NAME.out) and logs (logNUMBER), begin_daemon, end_daemon, read_programs, fail and until_true. At the
# test's end the processes in `others` are killed.
set -eu
detshared=$(realpath "$1")
folder=$(mktemp -d /dev/shm/detshare-test.XXXXXX)
chmod 755 "$folder" # engines with users of their own pass through
mkdir "$folder/lib"
cp -L "$(realpath "${!#}")" "$folder/lib/libcuda.so.1"
export DETSHARE_SOCKET=$folder/d.sock LD_LIBRARY_PATH=$folder/lib
daemon= log=
others=()

fail() {
  echo "FAILED: $*"
  tail -n 30 "$folder"/*.out "$folder"/log* 2>/dev/null || true
  exit 1
}
# Returns when the command succeeds, or fails the test after a minute.
until_true() {
  for _ in $(seq 600); do
    ! "$@" 2>/dev/null || return 0
    sleep 0.1
  done
  fail "never true: $*"
}
# Sets `programs` to the arguments before `--`.
read_programs() {
  programs=()
  while [ "$1" != -- ]; do
    programs+=("$(realpath "$1")")
    shift
  done
}
# Starts the daemon, and returns when it serves.
begin_daemon() { # NUMBER [OPTIONS]
  log=$folder/log$1
  "$detshared" --socket "$DETSHARE_SOCKET" --backend soft --soft-threads 2 --isolation tenant "${@:2}" 2>"$log" &
  daemon=$!
  until_true grep -q ' serves at ' "$log"
}
# Ends the daemon with its engines, and fails the test if it ends badly.
end_daemon() {
  local process=$daemon
  daemon=
  kill -INT "$process"
  wait "$process" || fail "the daemon ended with exit code $?"
}
finish() {
  local process
  for process in "${others[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
  [ -z "$daemon" ] || kill -INT "$daemon" 2>/dev/null || true
  wait
  rm -rf "$folder"
}
trap finish EXIT
