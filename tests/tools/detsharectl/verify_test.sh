#!/bin/bash
# `detsharectl verify` on the software GPU, with its own daemon and neighbours.
#
#   verify_test.sh DETSHARECTL DETSHARE DETSHARED NOISE PROGRAM ORDER_PROGRAM LIBCUDA...
set -u
ctl=$PWD/$1 program=$PWD/$5 order_program=$PWD/$6
export DETSHARE_LAUNCHER=$PWD/$2 DETSHARE_DAEMON=$PWD/$3 DETSHARE_NOISE=$PWD/$4 DETSHARE_LIB_DIR=$PWD/$(dirname "$7")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# Runs verify with the arguments behind the expected exit code.
expect() {
  local want=$1 code
  shift
  "$ctl" verify "$@" >"$folder/out" 2>"$folder/err"
  code=$?
  echo "--- verify $*: $code"
  cat "$folder/out" "$folder/err"
  [ $code = "$want" ] || { echo "FAILED: $want expected"; failed=1; }
}
says() { grep -q "$1" "$folder/out" "$folder/err" || { echo "FAILED: does not say \"$1\""; failed=1; }; }

expect 0 --standalone=soft --runs 2 --neighbours 4 -- "$program" 0
says '^equal: .* reads'
says '^beside neighbours .* equal$'

expect 0 --standalone=soft --runs 1 --neighbours 1 --json -- "$program" 0
python3 - "$folder/out" <<'PYTHON' || failed=1
import json, sys
result = json.load(open(sys.argv[1]))
assert result["verdict"] == "equal", result
assert [run["alone"] for run in result["runs"]] == [True, True, False], result
assert len({run["digest"] for run in result["runs"]}) == 1, result
PYTHON

# A program that differs from run to run, and one that differs only from the third run on.
cat >"$folder/count" <<SCRIPT
#!/bin/bash
n=\$(cat "$folder/number" 2>/dev/null || echo 0)
echo \$((n + 1)) >"$folder/number"
way=0
[ \$n -lt \$1 ] || way=3
exec "$program" \$way
SCRIPT
chmod +x "$folder/count"
expect 3 --standalone=soft --neighbours 0 -- "$folder/count" 1
says 'not reproducible'
says 'after the kernel Fill'
rm "$folder/number"
expect 1 --standalone=soft --neighbours 0 --runs 2 -- "$folder/count" 3
says '^different: read .* after the kernel Fill'
says '^In exclusive turns: read .* after the kernel Fill'

# The result depends on the SMs that run the blocks. An exclusive tenant has all of them.
expect 4 --standalone=soft --runs 2 --neighbours 4 -- "$order_program"
says '^equal in exclusive turns, not in space: .*read 1 of .* after the kernel AddInOrderOfSms'
says 'tenant set NAME --exclusive on'
says '^beside neighbours .* different$'
says '^in exclusive turns .* equal$'
expect 4 --standalone=soft --runs 1 --neighbours 0 --json -- "$order_program"
python3 - "$folder/out" <<'PYTHON' || failed=1
import json, sys
result = json.load(open(sys.argv[1]))
assert result["verdict"] == "equal in exclusive turns", result
assert [(run["alone"], run["exclusive_turns"], run["equal"]) for run in result["runs"]] == [
    (True, False, True), (True, False, True), (False, False, False), (False, True, True)], result
assert result["runs"][2]["difference"]["kernel"].startswith("AddInOrderOfSms"), result
PYTHON

# The program ends with another exit code in space, and reads the same bits.
cat >"$folder/fail_third" <<SCRIPT
#!/bin/bash
n=\$(cat "$folder/runs" 2>/dev/null || echo 0)
echo \$((n + 1)) >"$folder/runs"
"$program" 0
[ \$n != 2 ]
SCRIPT
chmod +x "$folder/fail_third"
expect 1 --standalone=soft --neighbours 0 --runs 1 -- "$folder/fail_third"
says '^different: the program ended with exit code 1 instead of 0'
says 'does not explain the exit code'

expect 2 --standalone=soft --neighbours 0 -- /bin/true
says 'nothing to compare'
expect 2 --standalone=soft --neighbours 0 -- /bin/false
says 'ended with exit code 1'
expect 2 --socket "$folder/none" --neighbours 0 -- "$program" 0
expect 2 --standalone=soft
exit $failed
