#!/bin/bash
# What detshared does and says when it starts.
#
#   startup_test.sh DETSHARED
set -u
detshared=$(realpath "$1")
folder=$(mktemp -d /dev/shm/detshare-startup.XXXXXX)
daemon=
trap 'kill $daemon 2>/dev/null; wait; rm -rf "$folder"' EXIT
failed=0
fail() {
  echo "FAILED: $*"
  cat "$folder/log"
  failed=1
}
# begin OPTIONS...: starts a daemon, and waits until it serves.
begin() {
  # The log of the daemon before says that it serves, too.
  rm -rf "$folder/d.sock" "$folder/log"
  "$detshared" --socket "$folder/d.sock" --soft-threads 1 "$@" 2>"$folder/log" &
  daemon=$!
  for _ in $(seq 600); do
    grep -qs ' serves at ' "$folder/log" && return
    kill -0 $daemon 2>/dev/null || break
    sleep 0.1
  done
  fail "the daemon does not start with $*"
}
end() {
  kill $daemon
  wait $daemon
}

begin --backend soft
[ "$(stat -c %a "$folder/d.sock")" = 600 ] || fail "other users may connect to a daemon that was begun by hand"
end
begin --backend soft --socket-mode 660
[ "$(stat -c %a "$folder/d.sock")" = 660 ] || fail "--socket-mode has no effect"
end

# The control daemon of MPS listens at this file.
mkdir "$folder/mps"
touch "$folder/mps/control"
for more in --backend=auto --backend=cuda; do
  if CUDA_MPS_PIPE_DIRECTORY=$folder/mps timeout 60 "$detshared" --socket "$folder/d.sock" $more 2>"$folder/log"; then
    fail "a client of MPS serves with $more"
  fi
  grep -q "MPS runs, and the daemon would be its client: its control daemon listens in $folder/mps" "$folder/log" ||
    fail "the daemon does not say that MPS runs"
done
CUDA_MPS_PIPE_DIRECTORY=$folder/mps begin --backend soft
end

# The supervisor says at its own start what its engines would say when the first program comes.
if [ "$(stat -f -c %T "$TEST_TMPDIR")" = tmpfs ]; then
  echo "NOT TESTED: $TEST_TMPDIR is on a tmpfs"
else
  begin --backend auto --isolation user --runtime-dir "$TEST_TMPDIR/run"
  grep -q "WARNING .*$TEST_TMPDIR/run is not on a tmpfs" "$folder/log" || fail "the supervisor does not warn"
  end
fi
begin --backend auto --isolation user
! grep -q "not on a tmpfs" "$folder/log" || fail "the supervisor warns of a tmpfs"
end
exit $failed
