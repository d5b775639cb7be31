#!/bin/bash
# `detsharectl verify` on the software GPU, with neighbours, in its own daemon and in a busy one.
#
#   verify_test.sh DETSHARECTL DETSHARE DETSHARED NOISE PROGRAM ORDER_PROGRAM LIBCUDA...
set -u
ctl=$PWD/$1 daemon=$PWD/$3 noise=$PWD/$4 program=$PWD/$5 order_program=$PWD/$6
export DETSHARE_LAUNCHER=$PWD/$2 DETSHARE_DAEMON=$PWD/$3 DETSHARE_NOISE=$PWD/$4 DETSHARE_LIB_DIR=$PWD/$(dirname "$7")
folder=$(mktemp -d /tmp/verify.XXXXXX)
started=()
trap 'kill "${started[@]}" 2>/dev/null; wait; rm -rf "$folder"' EXIT
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

# A busy daemon: half of the SMs belong to a program that runs all the time. The runs with which
# others are compared have all SMs nevertheless.
socket=$folder/run/detshared.sock
mkdir "$folder/run"
cat >"$folder/detshare.toml" <<TOML
[policy]
name = "static"

[[tenant]]
name = "busy"
sm_percent = 50

[[tenant]]
name = "verified"
sm_percent = 50
TOML
"$daemon" --backend soft --socket "$socket" --config "$folder/detshare.toml" --log-level error &
started+=($!)
# Waits until the command succeeds.
until_true() {
  for _ in $(seq 600); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  echo "FAILED: never true: $*"
  failed=1
}
until_true "$ctl" --socket "$socket" status
"$DETSHARE_LAUNCHER" run --socket "$socket" --tenant busy -- "$noise" arithmetic >"$folder/noise" &
started+=($!)
until_true grep ready "$folder/noise"
export DETSHARE_TENANT=verified
tenants() { "$ctl" --socket "$socket" tenant list --json | grep -c '"verify-'; }
expect 4 --socket "$socket" --runs 1 --neighbours 1 -- "$order_program"
says '^equal in exclusive turns, not in space'
says '^in exclusive turns .* digest [0-9a-f]*$'
says '^beside neighbours .* different$'
says '^in exclusive turns .* equal$'
grep -qw alone "$folder/out" "$folder/err" && { echo "FAILED: says that a run was alone"; failed=1; }
expect 0 --socket "$socket" --runs 1 --neighbours 1 -- "$program" 0
says '^equal: .* the same bits in exclusive turns and in 1 run beside 1 neighbour$'
expect 0 --socket "$socket" --runs 1 --neighbours 1 --json -- "$program" 0
python3 - "$folder/out" <<'PYTHON' || failed=1
import json, sys
result = json.load(open(sys.argv[1]))
assert [(run["alone"], run["exclusive_turns"], run["neighbours"]) for run in result["runs"]] == [
    (False, True, 0), (False, True, 0), (False, False, 1)], result
PYTHON
[ "$(tenants)" = 0 ] || { echo "FAILED: verify leaves a tenant behind"; failed=1; }

# Who may not change settings cannot verify here, and learns what to do. A tenant endpoint may not.
endpoint=$("$ctl" --socket "$socket" endpoint open web)
expect 2 --socket "$endpoint/detshared.sock" --neighbours 0 -- "$program" 0
says 'run verify as root or as a member of the daemon.s admin_group, or with --standalone'
grep -q equal "$folder/out" "$folder/err" && { echo "FAILED: says that bits are equal"; failed=1; }

# Somebody takes the setting back meanwhile.
cat >"$folder/reloads" <<SCRIPT
#!/bin/bash
"$ctl" --socket "$socket" tenant unset "\$DETSHARE_TENANT"
exec "$program" 0
SCRIPT
chmod +x "$folder/reloads"
expect 2 --socket "$socket" --neighbours 0 -- "$folder/reloads"
says 'may not have been exclusive in all runs'

# A signal ends verify, the program and the setting.
cat >"$folder/endless" <<SCRIPT
#!/bin/bash
echo \$\$ >"$folder/endless_pid"
exec sleep 1000
SCRIPT
chmod +x "$folder/endless"
"$ctl" verify --socket "$socket" --neighbours 0 -- "$folder/endless" 2>"$folder/err" &
verify=$!
until_true test -s "$folder/endless_pid"
[ "$(tenants)" = 1 ] || { echo "FAILED: no tenant is exclusive"; failed=1; }
kill $verify
wait $verify
[ $? = 2 ] || { echo "FAILED: verify goes on after a signal"; failed=1; }
says 'ended by signal 15'
[ "$(tenants)" = 0 ] || { echo "FAILED: verify leaves a tenant behind"; failed=1; }
kill -0 "$(cat "$folder/endless_pid")" 2>/dev/null && { echo "FAILED: the program goes on"; failed=1; }
unset DETSHARE_TENANT

expect 2 --standalone=soft --neighbours 0 -- /bin/true
says 'nothing to compare'
expect 2 --standalone=soft --neighbours 0 -- /bin/false
says 'ended with exit code 1'
expect 2 --socket "$folder/none" --neighbours 0 -- "$program" 0
says 'no detshared replies at'
! grep -q 'cannot make a tenant exclusive' "$folder/err" || { echo "FAILED: the missing daemon is taken for a missing right"; failed=1; }
expect 2 --standalone=soft
for option in --policy=fair --daemon-flag=--soft-sms=16 --migrate-every=3; do
  expect 2 --socket "$socket" $option -- "$program" 0
  says 'requires --standalone'
done
exit $failed
