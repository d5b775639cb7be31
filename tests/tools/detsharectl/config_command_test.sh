#!/bin/bash
# detsharectl config and doctor as commands, and mistakes in command lines, without a daemon: the output on
# both streams, and the exit codes.
#
#   config_command_test.sh DETSHARECTL
set -uo pipefail

detsharectl=$(realpath "$1")
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/config.XXXXXX")
failed=0
# expect CODE TEXT COMMAND...: the output on one of the streams must contain the text.
expect() {
  local code=$1 text=$2 out status=0
  shift 2
  out=$("$@" 2>&1) || status=$?
  if [ $status != "$code" ] || [[ $out != *"$text"* ]]; then
    echo "FAILED: $* exits with $status, not $code, or does not say '$text':"
    echo "$out"
    failed=1
  fi
}

"$detsharectl" config example >"$work/example.toml" || failed=1
expect 0 "no mistakes" "$detsharectl" config check "$work/example.toml"
expect 0 '# log_level = "info"' "$detsharectl" config show "$work/example.toml"

printf '[daemon]\nlog_level = "loud"\n' >"$work/wrong.toml"
expect 1 "$work/wrong.toml:2:13: log_level is error, warning, info or debug" "$detsharectl" config check "$work/wrong.toml"
expect 1 "wrong.toml:2:13" "$detsharectl" config show "$work/wrong.toml"
if [ ! -e /etc/detshare/detshare.toml ]; then
  expect 0 'There is no /etc/detshare/detshare.toml, so the defaults hold' "$detsharectl" config show
  expect 1 'begin with the output of detsharectl config example' "$detsharectl" config check
fi
expect 1 '"column": 13' "$detsharectl" --json config check "$work/wrong.toml"
expect 1 "No such file" "$detsharectl" config check "$work/none.toml"
expect 2 "" "$detsharectl" config
expect 2 "" "$detsharectl" config mend

printf '[daemon]\nlog_level = "debug"\n[[tenant]]\nname = "a"\nslo_tpot = "30ms"\n' >"$work/good.toml"
expect 0 'log_level = "debug"' "$detsharectl" config show "$work/good.toml"
expect 0 'slo_tpot = "30ms"' "$detsharectl" config show "$work/good.toml"
"$detsharectl" config show --json "$work/good.toml" |
  python3 -c 'import json, sys; c = json.load(sys.stdin); assert c["tenant"][0]["slo_tpot_ns"] == 30_000_000, c' || failed=1

printf '[[tenant]]\nname = "a"\nmemory = "1GiB"\nusers = ["no-such-user", "root"]\ngroups = ["no-such-group", "17"]\n' >"$work/loose.toml"
expect 0 "warning: [[tenant]] a: programs get around its limits" "$detsharectl" config check "$work/loose.toml"
expect 0 "warning: [[tenant]] a: this host has no user no-such-user" "$detsharectl" config check "$work/loose.toml"
expect 0 "warning: [[tenant]] a: this host has no group no-such-group" "$detsharectl" config check "$work/loose.toml"
"$detsharectl" --json config check "$work/loose.toml" |
  python3 -c 'import json, sys; c = json.load(sys.stdin); assert len(c["warnings"]) == 3 and not c["problems"], c' || failed=1

# A file with which no daemon starts has mistakes, also if flags could mend it.
printf '[daemon]\nsocket = "/run/detshare/d.sock"\nruntime_dir = "/elsewhere"\n[metrics]\nlisten = "0.0.0.0:9464"\n' >"$work/idle.toml"
expect 1 "programs look for the files of their sessions beside the socket" "$detsharectl" config check "$work/idle.toml"
expect 1 "name a token_file, too (--metrics-token-file)" "$detsharectl" config check "$work/idle.toml"
{ "$detsharectl" --json config check "$work/idle.toml" || true; } |
  python3 -c 'import json, sys; c = json.load(sys.stdin); assert len(c["problems"]) == 2, c' || failed=1
# Files that this host lacks are warnings: the configuration may be for another host.
printf '[metrics]\nlisten = "0.0.0.0:9464"\ntoken_file = "%s/token"\n[policy]\nname = "%s/policy.so"\n' "$work" "$work" >"$work/other.toml"
expect 0 "warning: [metrics] token_file: this host has no file $work/token" "$detsharectl" config check "$work/other.toml"
echo secret >"$work/token"
chmod 644 "$work/token"
expect 0 "warning: [metrics] token_file: all users can read $work/token: chmod o-r" "$detsharectl" config check "$work/other.toml"
rm "$work/token"
printf '[daemon]\nadmin_group = "no-such-group"\n' >"$work/admins.toml"
expect 0 "warning: [daemon] admin_group: this host has no group no-such-group" "$detsharectl" config check "$work/admins.toml"
expect 0 "warning: [policy] name: this host has no file $work/policy.so" "$detsharectl" config check "$work/other.toml"

# No daemon is there: the doctor must find and name this error.
expect 1 "none.sock" "$detsharectl" --socket "$work/none.sock" doctor --config "$work/good.toml"
{ "$detsharectl" --socket "$work/none.sock" --json doctor --config "$work/wrong.toml" || true; } |
  python3 -c '
import json, sys
report = json.load(sys.stdin)
levels = {one["check"]: one["level"] for one in report["findings"]}
assert report["errors"] >= 2, report
assert levels["socket"] == levels["config"] == "error" and levels["daemon"] == "unknown", levels
assert all(one["advice"] for one in report["findings"] if one["level"] == "error"), report' || failed=1
# A path that no socket can have is an error of the command line, and not of gRPC.
long=$work/$(printf 'x%.0s' $(seq 120)).sock
for command in status doctor "top --once" "endpoint list" events "policy set fair"; do
  said=$("$detsharectl" --socket "$long" $command 2>&1 || true)
  grep -q 'too long for a socket' <<<"$said" && grep -q 'at most 103 characters' <<<"$said" && ! grep -q 'grpc\|gRPC\|\.cc:\|UNKNOWN' <<<"$said" ||
    { echo "FAILED: $command says: $said" && failed=1; }
done
# A limit whose value is missing, as in a script with an unset variable, is a mistake and not no limit.
for option in memory pinned-memory sessions devices weight sms class exclusive slo-tpot; do
  expect 2 "--$option: a value is not \"\"" "$detsharectl" --socket "$work/none.sock" tenant set train "--$option" ""
  expect 2 "--$option: a value is not \"\"" "$detsharectl" --socket "$work/none.sock" endpoint open em "--$option" ""
done
expect 2 '--share: a value is not ""' "$detsharectl" --socket "$work/none.sock" tenant set train --share ""
# The same holds for other commands, and for names. An option that is given twice is a mistake, too.
expect 2 '--out: a value is not ""' "$detsharectl" --socket "$work/none.sock" trace --out ""
expect 2 '--tenant: a value is not ""' "$detsharectl" --socket "$work/none.sock" events --tenant ""
expect 2 '--socket: a value is not ""' "$detsharectl" --socket "" status
expect 2 'WHO: "" is no name' "$detsharectl" --socket "$work/none.sock" sessions kill ""
expect 2 'FILE: "" is no name' "$detsharectl" config check ""
expect 2 "--weight is given 2 times, and may be given once" "$detsharectl" --socket "$work/none.sock" tenant set train --weight 1 --weight 2
expect 2 "--param needs a value: NAME=VALUE" "$detsharectl" --socket "$work/none.sock" policy set fair --param
expect 2 "--session: abc is not a number that the option takes" "$detsharectl" --socket "$work/none.sock" events --session abc
# A full disk is an error of the command. A reader that leaves is none.
for command in "api --json" "config show $work/good.toml" "config example" --help; do
  said=$("$detsharectl" $command 2>&1 >/dev/full)
  [ $? = 1 ] && [[ $said == *"detsharectl: cannot write all of the output: No space left on device"* ]] ||
    { echo "FAILED: about a full disk, $command says: $said" && failed=1; }
done
expect 0 "" bash -c "trap '' PIPE; '$detsharectl' api --json | true; exit \${PIPESTATUS[0]}"
expect 2 "--session: -1 is not a number of 0 or more" "$detsharectl" --socket "$work/none.sock" events --session -1
# A command that has no JSON to print says so.
expect 2 "trace writes JSON to the file of --out, and prints none: leave --json out" "$detsharectl" --socket "$work/none.sock" trace --json --out "$work/fresh"
expect 2 "config example prints TOML: leave --json out, or use config show --json" "$detsharectl" config example --json
# A trace that is not taken leaves its file as it was.
echo kept >"$work/kept"
expect 3 "no detshared replies" "$detsharectl" --socket /nonexistent/none.sock trace --out "$work/kept"
[ "$(cat "$work/kept")" = kept ] || { echo "FAILED: the file of the trace was changed" && failed=1; }
expect 3 "no detshared replies" "$detsharectl" --socket /nonexistent/none.sock trace --out "$work/fresh"
[ ! -e "$work/fresh" ] || { echo "FAILED: there is a file without a trace" && failed=1; }
# No number is no length of time.
for command in "top --once" "trace --out $work/trace.json"; do
  expect 2 "--seconds: nan is not a number of 0" "$detsharectl" --socket /nonexistent/none.sock $command --seconds nan
done
exit $failed
