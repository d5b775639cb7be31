#!/bin/bash
# detshare-sim as a command: its output, its messages, and its exit codes.
#
#   command_test.sh DETSHARE-SIM
set -uo pipefail
sim=$(realpath "$1")
failed=0
# expect CODE TEXT ARGUMENTS...: the output on one of the streams must contain the text.
expect() {
  local code=$1 text=$2 out status=0
  shift 2
  out=$(timeout 60 "$sim" --quiet "$@" 2>&1) || status=$?
  if [ $status != "$code" ] || [[ $out != *"$text"* ]]; then
    echo "FAILED: detshare-sim $* exits with $status, not $code, or does not say '$text':"
    echo "$out"
    failed=1
  fi
}

expect 0 "workload-aware" --hours 0.01
for flag in hours rate model slo-tpot slo-ttft; do
  expect 2 "--$flag: nan is not a number of" "--$flag" nan
  expect 2 "--$flag: inf is not a number of" "--$flag" inf
done
expect 2 "--services: -1 is not a number of 0 or more" --services -1
expect 2 "not a number of 0.0001 to 8784" --hours 0
# So few requests a second that none comes in the hour.
expect 0 "workload-aware" --rate 1e-6
# Both files that cannot be written are named, and one of them does not keep the other from being written.
expect 1 "cannot write /none/c"$'\n'"detshare-sim: cannot write /none/j" --hours 0.01 --csv /none/c --json /none/j
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/sim.XXXXXX")
expect 1 "cannot write /none/c" --hours 0.01 --csv /none/c --json "$work/j"
[ -s "$work/j" ] || { echo "FAILED: the JSON is not written" && failed=1; }
# A full disk is an error.
said=$("$sim" --quiet --hours 0.01 2>&1 >/dev/full)
[ $? = 1 ] && [[ $said == *"detshare-sim: cannot write all of the output"* ]] ||
  { echo "FAILED: about a full disk it says: $said" && failed=1; }
exit $failed
