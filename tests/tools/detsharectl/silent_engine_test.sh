#!/bin/bash
# What detsharectl says of an engine that does not reply.
#
#   silent_engine_test.sh DETSHARECTL DETSHARE DETSHARED NOISE LIBCUDA...
set -u
ctl=$PWD/$1 launcher=$PWD/$2 noise=$PWD/$4
export DETSHARE_LIB_DIR=$PWD/$(dirname "$5")
folder=$(mktemp -d /dev/shm/detshare-silent.XXXXXX)
export DETSHARE_SOCKET=$folder/detshared.sock
engine=
trap 'kill -CONT $engine 2>/dev/null; kill $program $daemon 2>/dev/null; wait; rm -rf "$folder"' EXIT
failed=0
fail() { echo "FAILED: $*" && failed=1; }
# Waits until the file has the text.
await() {
  for _ in $(seq 600); do
    grep -qs "$2" "$1" && return
    sleep 0.1
  done
  fail "$1 never says $2: $(cat "$1")"
}
# says TEXT ARGUMENTS...: detsharectl with these arguments says the text.
says() {
  "$ctl" "${@:2}" >"$folder/out" 2>&1
  grep -q "$1" "$folder/out" || fail "$2 does not say \"$1\": $(cat "$folder/out")"
}

"$PWD/$3" --backend soft --soft-sms 8 --soft-memory 64MiB --isolation tenant 2>"$folder/log" &
daemon=$!
program=
await "$folder/log" ' serves at '
"$ctl" endpoint open bob >"$folder/path" || fail "bob's endpoint"
"$launcher" run --socket "$(cat "$folder/path")/detshared.sock" -- "$noise" arithmetic >"$folder/program" 2>&1 &
program=$!
await "$folder/program" ready
says '^bob  *bob  *1 ' endpoint list
says '^ok *engines ' doctor

engine=$("$ctl" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["engines"][0]["pid"])')
kill -STOP "$engine"
says 'the engine of isolation group bob is not shown: ' status
says 'the engine of isolation group bob is not shown: ' endpoint list
says "^warning *engines  *the engine of isolation group bob (pid $engine) does not serve: " doctor
says "end it with kill -KILL $engine" doctor
says '^No sessions in engines that reply' sessions
says 'no session of tenant bob was ended; the engine of isolation group bob does not reply' sessions kill bob
exit $failed
