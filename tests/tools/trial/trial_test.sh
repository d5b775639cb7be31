#!/bin/bash
# Runs the trial on the software GPU, and looks at its table, its JSON and its errors.
#
#   trial_test.sh DETSHARE-TRIAL
set -euo pipefail
trial=$(realpath -s "$1")
work=$(mktemp -d /tmp/detshare-trial-test.XXXXXX)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  cat "$work/err"
  exit 1
}
export DETSHARE_LIB_DIR=$PWD/client_shim DETSHARE_DAEMON=$PWD/server/detshared

"$trial" --backend soft --seconds 0.1 >"$work/out" 2>"$work/err" || fail "it ends with $?"
grep -q 'the same bits in every row' "$work/out" || fail "it says nothing of the bits: $(cat "$work/out")"
grep -q 'they say nothing of a GPU' "$work/out" || fail "it does not say what the figures are worth: $(cat "$work/out")"
grep -q 'both at once, 0.1 s' "$work/err" || fail "it does not say what it does"
# The rows of the table line up.
[ "$(grep -E '^  ' "$work/out" | awk '{ print length }' | sort -u | wc -l)" = 1 ] || fail "the table does not line up: $(cat "$work/out")"

"$trial" --backend soft --seconds 0.1 --json >"$work/json" 2>"$work/err" || fail "with --json it ends with $?"
python3 - "$work/json" <<'END' || fail "the JSON is wrong: $(cat "$work/json")"
import json, sys
trial = json.load(open(sys.argv[1]))
assert trial["software_gpu"] and trial["same_results"] and trial["seconds"] == 0.1
assert [row["name"] for row in trial["rows"]] == ["DetShare, each alone", "DetShare, both at once"]
for row in trial["rows"]:
    assert row["inference"]["requests"] >= 1 and row["training"]["steps"] >= 1
    assert 0 < row["inference"]["p50_ms"] <= row["inference"]["p99_ms"]
    assert row["training"]["steps_per_second"] > 0
END

# Errors say what to do next.
expect() { # TEXT ARGUMENTS...
  local text=$1
  shift
  if "$trial" "$@" >"$work/out" 2>"$work/err"; then fail "it accepts $*"; fi
  grep -q -- "$text" "$work/err" || fail "about $* it does not say: $text"
}
expect '--seconds' --secnds 1
expect 'seconds' --seconds 0
expect 'nan is not a number of 0.05 to 3600' --seconds nan
DETSHARE_DAEMON=/nowhere expect 'no daemon' --backend soft --seconds 0.1
[ -e /dev/nvidiactl ] || expect 'cannot use' --backend cuda --seconds 0.1
