#!/bin/bash
# detsharectl administers and watches a daemon on the software GPU while programs run.
#
#   control_test.sh DETSHARECTL DETSHARE DETSHARED NOISE POLICY LIBCUDA...
#
# POLICY is a policy in a shared object.
set -u
if [ "${1:-}" != inside ]; then
  export CTL=$PWD/$1 NOISE=$PWD/$4 POLICY=$PWD/$5 DETSHARE_DAEMON=$PWD/$3 DETSHARE_LIB_DIR=$PWD/$(dirname "$6")
  exec "$2" run --standalone=soft -- "$0" inside
fi

folder=$(mktemp -d)
failed=0 noises=()
trap 'kill "${noises[@]}" 2>/dev/null; wait; rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; failed=1; }
# Runs detsharectl with the arguments behind the expected exit code.
expect() {
  local want=$1 code
  shift
  "$CTL" "$@" >"$folder/out" 2>"$folder/err"
  code=$?
  echo "--- detsharectl $*: $code"
  head -n 40 "$folder/out" "$folder/err" | cut -c 1-200
  [ $code = "$want" ] || fail "$want expected"
}
says() { grep -q -e "$1" "$folder/out" "$folder/err" || fail "does not say \"$1\""; }

for kind in arithmetic allocation; do
  "$NOISE" $kind >"$folder/$kind" 2>&1 &
  noises+=($!)
done
for kind in arithmetic allocation; do
  for _ in $(seq 600); do
    grep -q ready "$folder/$kind" && break
    sleep 0.1
  done
  grep -q ready "$folder/$kind" || fail "the noise $kind does not begin"
done

expect 0 policy
says '^\* *auto'
expect 0 policy show fair
says DEFAULT
expect 0 policy set "$POLICY"
expect 0 policy
says "^\* *$POLICY"
expect 0 policy show
says 'none of them is set'
expect 0 policy set "$POLICY" --param window=200us
expect 0 policy show --json
says '"value": "200us"'
expect 0 policy show
says "^$POLICY (in force)"
says '^window *200us'
expect 1 policy set "./$(basename "$POLICY")"
says 'must be absolute'
expect 1 policy set "$(basename "$POLICY")"
says 'shared objects by their absolute paths'
expect 0 policy set priority
says '^Policy priority is in force.$'
expect 0 status
says 'policy priority'
expect 1 policy set magic
says 'no policy is called "magic"'
expect 1 policy set fiar
says '^Did you mean fair?$'
expect 2 policy show fiar
says '^Did you mean fair?$'
expect 1 policy set fair --param magic=1
says 'has no parameter "magic"'
expect 0 tenant set "$(id -un)" --class batch --slo-tpot 30ms --weight 2
says 'batch .*30ms'
expect 0 tenant list
says "$(id -un)"
expect 0 tenant set "$(id -un)" --exclusive on
says ' yes '
expect 2 tenant set x
says 'tenant set needs at least one setting to change: --class, --weight, .*--devices$'
expect 0 tenant list
grep -q '^x ' "$folder/out" && fail "a command that changes nothing makes a tenant"
expect 2 tenant set x --exclusive maybe
says 'on or off'
expect 1 tenant set x --class royal
says 'latency, batch or unset'
expect 0 tenant set "$(id -un)" --devices 1
says 'DEVICES'
expect 1 tenant set x --devices 2
says 'the number of devices is 0 (all) to 1'
expect 2 tenant set x --devices some
says 'a number, or 0 for all'
expect 2 tenant set x --slo-tpot soon
says 'a duration'
expect 0 tenant set trian --weight 3
says "tenant trian had no settings before; these tenants have some: $(id -un). Undo: detsharectl tenant unset trian"
expect 0 tenant unset trian
says 'Tenant trian has no settings any more'
expect 1 tenant unset trian
says "tenant trian has no settings; these tenants have some: $(id -un)"
expect 0 tenant set train --weight 3
expect 0 tenant set trian --weight 3
says '^Did you mean train?$'
expect 0 tenant set --weight 3 -- -trian
says 'Undo: detsharectl tenant unset -- -trian'
expect 0 tenant unset -- -trian
expect 0 tenant unset trian
expect 1 tenant unset trian
says '^Did you mean train?$'
expect 1 sessions kill trian
says '^Did you mean train?$'
expect 0 events --tenant trian --kind fault
says '^No such events.$'
says '^Did you mean train?$'
expect 2 events --kind falt
says 'did you mean fault?'
expect 0 names tenants
says '^train$'
expect 0 tenant unset train
expect 0 names policies
says '^tpot-first$'
expect 0 names sessions
says '^[0-9]*$'
expect 2 names planets

expect 0 endpoint open web --class latency --memory 1GiB
says '/endpoints/web$'
expect 0 endpoint list
says '^web  *web  *0  *0  */.*/endpoints/web$'
expect 0 endpoint list --json
says '"tenant": "web"'
expect 0 tenant list
says '^web  *latency'
expect 0 names endpoints
says '^web$'
expect 1 endpoint close wbe
says '^Did you mean web?$'
expect 1 endpoint open ../web
says "an endpoint's name"
expect 2 endpoint open web --slo-tpot soon
expect 0 endpoint owner web --pod default/web-0/server
expect 0 endpoint list
says '^web  *web  *default/web-0/server  *0  *0  */'
expect 0 endpoint list --json
says '"pod": "web-0"'
expect 0 events --kind endpoint
says 'tenant web (default/web-0/server) .*: endpoint web belongs to default/web-0/server$'
expect 2 endpoint owner web --pod web-0
says 'write NAMESPACE/POD or NAMESPACE/POD/CONTAINER'
expect 1 endpoint owner wob --job 17
says 'there is no endpoint'
expect 2 endpoint open web --job 'a b'
says "the owner's job"
expect 0 endpoint close web
says '^Its 0 sessions used GPUs for 0.0 s, and at most 0 B of memory.$'
expect 1 endpoint close web
says 'there is no endpoint'
expect 0 endpoint open web --json
python3 -c 'import json, os, sys
web = json.load(open(sys.argv[1]))
assert list(web) == ["name", "path"] and web["name"] == "web", web
assert os.path.isdir(web["path"]), web' "$folder/out" || fail "the JSON of an opened endpoint"
expect 1 endpoint open ../web --json
[ -s "$folder/out" ] && fail "an error is on stdout"
expect 0 endpoint close web --json
says '"gpu_seconds": 0.0'
expect 0 endpoint list
says 'There are no endpoints'

expect 0 top --once --seconds 0.5
says 'batch'
says "detshare-noise"
expect 0 top --once --seconds 0.3 --json
# Waits until work of every kind has ended in the trace. A slow machine takes longer than half a
# second.
for _ in $(seq 20); do
  expect 0 trace --out "$folder/trace.json" --seconds 0.5
  says 'ui.perfetto.dev'
  python3 - "$folder/trace.json" <<'PYTHON'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
slices = [e for e in events if e["ph"] == "X" and e["tid"] < 1000000]
assert all(e["dur"] >= 0 for e in slices)
for e in slices:
    assert e["args"]["partition"].startswith("sm"), e
    assert e["args"]["queued_us"] >= 0, e
names = {e["name"] for e in slices}
print("in the trace:", names)
if len({e["pid"] for e in slices}) < 2 or "copy to host" not in names or \
        not any("Arithmetic" in name for name in names):
    sys.exit(2)
PYTHON
  traced=$?
  [ $traced = 2 ] || break
done
[ $traced = 0 ] || fail "the trace"
expect 0 sessions
says "detshare-noise"
expect 0 tenants --json
says '"sessions": 2'
expect 0 partitions
says 'policy priority'
expect 0 events --kind policy --json
says '"text":"priority"'
expect 1 config reload
says 'without --config'
expect 2 sessions kill
says 'name the sessions'
expect 1 sessions kill 999999
says 'there is no session 999999'
expect 1 sessions kill -- 999999
says 'there is no session 999999'
expect 2 status -- nonsense

# A mistyped command line names the command, and what was probably meant.
expect 2 stauts
says 'detsharectl has no command stauts: did you mean status?'
expect 2 tenant set alice --wieght 3
says 'detsharectl tenant set has no option --wieght: did you mean --weight?'
expect 0 sessions list --help
says 'Options of all commands'
says '--socket PATH'

# A second trace has nothing of the first. Both commands work again after it.
expect 0 trace --out "$folder/again.json" --seconds 0.2
expect 1 trace --out /no/such/folder/trace.json
says 'cannot write /no/such/folder/trace.json: No such file or directory; name another file with --out'
expect 1 trace --out /dev/full --seconds 0.05
says 'cannot write /dev/full: No space left on device'
# A trace for which there is no room leaves no part of it.
(
  trap '' XFSZ
  ulimit -f 0
  "$CTL" trace --out "$folder/no_room.json" --seconds 0.05 2>/dev/null
) && fail "a trace without room for it ended well"
[ ! -e "$folder/no_room.json" ] || fail "a part of a trace was left"
expect 0 trace --out /dev/stdout --seconds 0.05
says traceEvents

# A trace ends with SIGTERM, and its file is whole. One that is refused leaves its file as it was.
traces() { "$CTL" events --kind trace --json | wc -l; }
before=$(traces)
"$CTL" trace --out "$folder/again.json" --seconds 600 2>/dev/null &
tracer=$!
for _ in $(seq 600); do
  [ "$(traces)" -gt "$before" ] && break
  sleep 0.1
done
echo kept >"$folder/kept"
expect 1 trace --out "$folder/kept"
says 'another client is taking a trace'
[ "$(cat "$folder/kept")" = kept ] || fail "a trace that was refused empties its file"
expect 1 trace --out "$folder/fresh"
[ -e "$folder/fresh" ] && fail "a trace that was refused leaves a file"
kill -TERM $tracer
wait $tracer || fail "a trace that is terminated ends with $?"
python3 -c 'import json, sys; json.load(open(sys.argv[1]))["traceEvents"]' "$folder/again.json" || fail "the terminated trace"
expect 0 policy set whole
expect 0 status --json
for pid in "${noises[@]}"; do kill -0 $pid 2>/dev/null || fail "a program has ended"; done

# One program is killed, and the other goes on.
victim=$("$CTL" sessions --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["session"])')
other=$("$CTL" sessions --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[1]["session"])')
"$CTL" events --follow --kind killed --count 10 --json >"$folder/followed" &
follower=$!
expect 0 sessions kill "$victim"
says "session $victim ends"
for _ in $(seq 600); do
  grep -q "\"session\":$victim" "$folder/followed" && break
  sleep 0.1
done
grep -q "\"session\":$victim" "$folder/followed" || fail "who follows the events does not see it"
kill $follower
expect 0 sessions
says "^ *$other "
expect 0 events
says "killed"
exit $failed
