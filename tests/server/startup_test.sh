#!/bin/bash
# What detshared does and says when it starts.
#
#   startup_test.sh DETSHARED
set -u
detshared=$(realpath "$1")
folder=$(mktemp -d /dev/shm/detshare-startup.XXXXXX)
disk=$(mktemp -d /tmp/detshare-startup.XXXXXX)
socket=$folder/d.sock
daemon=
trap 'kill $daemon 2>/dev/null; wait; rm -rf "$folder" "$disk"' EXIT
failed=0
fail() {
  echo "FAILED: $*"
  cat "$folder/log"
  failed=1
}
# begin OPTIONS...: starts a daemon, and waits until it serves.
begin() {
  # The log of the daemon before says that it serves, too.
  rm -rf "$socket" "$folder/log"
  "$detshared" --socket "$socket" --soft-threads 1 "$@" 2>"$folder/log" &
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
if [ "$(stat -f -c %T "$disk")" = tmpfs ]; then
  echo "NOT TESTED: $disk is on a tmpfs"
else
  socket=$disk/d.sock
  begin --backend auto --isolation user
  grep -q "WARNING .*$disk is not on a tmpfs" "$folder/log" || fail "the supervisor does not warn"
  end
  socket=$folder/d.sock
fi
begin --backend auto --isolation user
! grep -q "not on a tmpfs" "$folder/log" || fail "the supervisor warns of a tmpfs"
end

# refused TEXT OPTIONS...: a daemon does not start, and says the text.
refused() {
  if timeout 60 "$detshared" --backend soft --soft-threads 1 "${@:2}" 2>"$folder/second"; then
    fail "a daemon starts with ${*:2}"
  fi
  grep -q "$1" "$folder/second" || fail "a daemon does not say: $1; it says: $(cat "$folder/second")"
}
for isolation in none user; do
  # Programs would look for the files of their sessions beside the socket.
  refused "runtime_dir is $folder/run, and the socket is in $folder: .* --socket $folder/run/detshared.sock" \
    --isolation $isolation --socket "$folder/d.sock" --runtime-dir "$folder/run"
  begin --backend soft --isolation $isolation --runtime-dir "$folder/"
  refused "another detshared keeps its files in $folder" --isolation $isolation --socket "$folder/e.sock"
  end
done

# A reload refuses what the next start would refuse.
# reload TEXT LINE...: a reload with these lines of the configuration changes nothing, and the log says the text.
reload() {
  local text=$1
  shift
  printf '%s\n' "$@" >"$folder/config"
  kill -HUP $daemon
  for _ in $(seq 600); do
    grep -q "$text" "$folder/log" && return
    sleep 0.1
  done
  fail "the daemon reloads $*, or does not say: $text"
}
for isolation in none user; do
  : >"$folder/config"
  begin --backend soft --isolation $isolation --config "$folder/config"
  reload "runtime_dir is $folder/run, and the socket is in $folder" '[daemon]' "runtime_dir = \"$folder/run\""
  reload "socket is an absolute path of at most 103 characters" '[daemon]' "socket = \"/$(printf 'x%.0s' $(seq 120))\""
  reload "compute_capability is a major and a minor number" '[software_gpu]' 'compute_capability = "foo"'
  reload "cannot read the token in $folder/none" '[metrics]' 'listen = "127.0.0.1:0"' "token_file = \"$folder/none\""
  end
done
exit $failed
