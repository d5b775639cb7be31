#!/bin/bash
# Does what an operator does with the packages, on the system in which it runs: starts the daemon
# and two tenants, looks at status and metrics, sets another policy, ends one tenant, upgrades while
# the other is idle, restarts, runs Kubernetes' plugin. Uses only the packages and Debian's smallest
# system.
#
#   life_of_a_host.sh PROGRAM PACKAGES...        the packages are of the next version
set -euo pipefail
program=$1
shift
cd /tmp
fail() {
  echo "FAILED: $*"
  tail -n 20 /tmp/daemon.log
  exit 1
}
pids=()
daemon=
port=$((20000 + RANDOM % 10000)) metrics=
[[ $(detshared --help) != *--metrics* ]] || metrics="--metrics 127.0.0.1:$port"
start() {
  # Starts the daemon as the unit does. A chroot has no systemd.
  mkdir -p /run/detshare
  local command
  command=$(sed -n 's/^ExecStart=//p' /lib/systemd/system/detshared.service)
  # shellcheck disable=SC2086
  $command --backend=soft --soft-memory=64MiB $metrics >>/tmp/daemon.log 2>&1 &
  daemon=$!
  for ((i = 0; i < 600; i++)); do
    detsharectl status >/dev/null 2>&1 && return
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
  done
  fail "the daemon does not start"
}
# tenant NAME: starts a program of the user NAME. ask NAME: sends it a line and prints its reply.
declare -A to from
tenant() {
  local in out
  mkfifo "$1.in" "$1.out"
  runuser -u "$1" -- detshare run -- "$program" <"$1.in" >"$1.out" 2>"$1.err" &
  pids+=($!)
  exec {in}>"$1.in" {out}<"$1.out"
  to[$1]=$in from[$1]=$out
  rm "$1.in" "$1.out"
}
ask() {
  local reply=
  echo >&"${to[$1]}" || true
  read -r -t 60 reply <&"${from[$1]}" || reply="nothing"
  echo "$reply"
}
expect() { # TEXT COMMAND...: the command must print the text
  local text=$1 said
  shift
  said=$("$@" 2>&1) || fail "$* says $said"
  [[ $said == *"$text"* ]] || fail "$* does not say $text but $said"
}
trap '' PIPE

for user in alice bob; do
  id "$user" >/dev/null 2>&1 || adduser --quiet --disabled-password --gecos '' "$user"
done
cat >>/etc/detshare/detshare.toml <<'END'

[[tenant]]
name = "interactive"
class = "latency"
users = ["alice"]

[[tenant]]
name = "training"
class = "batch"
users = ["bob"]
END
expect '' detsharectl config check
start

# ---- two tenants
tenant alice
tenant bob
[ "$(ask alice)" = 1 ] || fail "alice's program does not work: $(cat alice.err)"
[ "$(ask bob)" = 1 ] || fail "bob's program does not work: $(cat bob.err)"
[ "$(ask alice)" = 2 ] || fail "alice's program does not go on"
expect interactive detsharectl status
expect training detsharectl status
expect latency detsharectl tenant list

# ---- metrics
detsharectl status --json >status
for figure in '"operations": [1-9]' '"device_memory": [1-9]'; do
  [ "$(grep -c "$figure" status)" -ge 2 ] || fail "the status lacks figures of two tenants: $(cat status)"
done

if [ -n "$metrics" ]; then
  exec {scrape}<>"/dev/tcp/127.0.0.1/$port"
  printf 'GET /metrics HTTP/1.1\r\nHost: localhost:%s\r\nConnection: close\r\n\r\n' "$port" >&"$scrape"
  timeout 20 cat <&"$scrape" >metrics
  exec {scrape}>&-
  for tenant in interactive training; do
    grep -q "^detshare_.*tenant=\"$tenant\".* [0-9]" metrics || fail "there are no metrics of $tenant: $(head -c 2000 metrics)"
  done
fi

# ---- another policy
expect '' detsharectl policy set priority
expect 'policy priority' detsharectl status
runuser -u alice -- detsharectl policy set whole >said 2>&1 && fail "alice may set the policy"
grep -qi 'may' said || fail "alice is not told why: $(cat said)"
[ "$(ask alice)" = 3 ] || fail "a change of the policy harms alice"
[ "$(ask bob)" = 2 ] || fail "a change of the policy harms bob"

# ---- one tenant is ended
if [[ $(detsharectl --help) =~ $'\n'\ *sessions\  ]]; then
  expect '' detsharectl sessions kill training
else
  kill -KILL "$(detsharectl status --json | sed -n '/"tenant": "training"/,/}/s/.*"pid": \([0-9]*\).*/\1/p' | head -1)"
fi
[[ $(ask bob) =~ ^(nothing|error.*)$ ]] || fail "bob's program is still there"
for ((i = 0; i < 600; i++)); do
  [[ $(detsharectl status) == *training* ]] || break
  sleep 0.1
done
expect interactive detsharectl status
[[ $(detsharectl status) != *training* ]] || fail "bob's session is still there"

# ---- an upgrade while the other tenant is idle
before=$(detsharectl status --json | sed -n 's/.*"pid": \([0-9]*\).*/\1/p' | head -1)
dpkg -i "$@" >upgrade 2>&1 || fail "they cannot be upgraded: $(cat upgrade)"
[ "$(detsharectl status --json | sed -n 's/.*"pid": \([0-9]*\).*/\1/p' | head -1)" = "$before" ] || fail "the upgrade replaced the daemon"
[ "$(ask alice)" = 4 ] || fail "the upgrade harms the program that was idle"
expect 1 bash -c "echo | runuser -u alice -- detshare run -- $program"
grep -q '^name = "interactive"' /etc/detshare/detshare.toml || fail "the upgrade forgot what the operator has written"

# ---- a container's tenant endpoint, and Kubernetes' plugin
endpoint=$(detsharectl endpoint open web --class latency)
expect web detsharectl endpoint list
expect 1 bash -c "echo | DETSHARE_SOCKET=$endpoint/detshared.sock detshare run -- $program"
mkdir -p /var/lib/kubelet/device-plugins
detshare-device-plugin --resource gpu-share,shares=3 --cdi-dir /run/cdi --poll-ms 100 2>plugin.log &
plugin=$!
for ((i = 0; i < 600; i++)); do
  [ -e /run/cdi/detshare.json ] && break
  sleep 0.1
done
[ "$(grep -c '"name": "gpu-share\.' /run/cdi/detshare.json)" = 3 ] || fail "the plugin does not offer its shares: $(cat plugin.log)"
[ -S /var/lib/kubelet/device-plugins/detshare-gpu-share.sock ] || fail "the plugin does not listen"
kill "$plugin"
wait "$plugin" || fail "the plugin ends with $?"

# ---- the new daemon
kill "$daemon"
wait "$daemon" || fail "the daemon ends with $?"
[[ $(ask alice) == error* ]] || fail "alice's program is not told that the daemon is gone"
start
expect web detsharectl endpoint list
expect 1 bash -c "echo | runuser -u bob -- detshare run -- $program"
kill "$daemon"
wait "$daemon" || fail "the daemon ends with $?"
kill "${pids[@]}" 2>/dev/null || true
echo "all of it worked"
