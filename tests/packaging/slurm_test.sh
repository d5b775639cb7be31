#!/bin/bash
# Runs twenty jobs under a real Slurm, four at a time: jobs that end, that are cancelled, killed, requeued,
# over their time, and out of memory of the GPU or of the host. Then no endpoint, tenant or memory may be left,
# and the accounting has each job's figures. munged, slurmctld, slurmd, slurmdbd and MariaDB run on this machine,
# with files and ports of their own. Needs root and an otherwise idle machine; two minutes. Not part of
# ./tools/test:
#
#   apt-get install --no-install-recommends munge slurmctld slurmd slurm-client slurmdbd mariadb-server
#   bazel test //tests/packaging:slurm_test
#
#   slurm_test.sh DETSHARED DETSHARECTL PLUGIN PROGRAM LIBNVIDIA-ML... LIBCUDA...
set -euo pipefail
shopt -s extglob
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C
skip() {
  echo "NOT TESTED: $*"
  exit 0
}
[ "$(id -u)" = 0 ] || skip "only root can run Slurm's daemons"
for program in munged slurmctld slurmd slurmdbd mariadbd mariadb-install-db sbatch sacct; do
  command -v "$program" >/dev/null || skip "this machine has no $program: apt-get install --no-install-recommends munge slurmctld slurmd slurm-client slurmdbd mariadb-server"
done

# Everything runs in a mount namespace with a /run of its own.
if [ -z "${DETSHARE_SLURM_TEST:-}" ]; then
  DETSHARE_SLURM_TEST=1 exec unshare --mount --pid --fork --kill-child --mount-proc -- "$0" "$@"
fi
mount -t tmpfs -o mode=755 tmpfs /run

plugin=$(realpath "$3")
work=$(mktemp -d /tmp/detshare-slurm.XXXXXX)
chmod 755 "$work"
failed=0
finish() {
  # The processes of this PID namespace end with it.
  rm -rf --one-file-system "$work"
}
trap finish EXIT
fail() {
  echo "FAILED: $*"
  failed=1
}
die() {
  fail "$*"
  tail -n 40 "$work"/log/* 2>/dev/null
  exit 1
}
# until_true SECONDS COMMAND...
until_true() {
  local left=$(($1 * 10))
  shift
  until "$@" >/dev/null 2>&1; do
    ((left-- > 0)) || return 1
    sleep 0.1
  done
}

mkdir -p "$work"/{log,lib,bin,spool,state,db,out,key} /run/detshare /run/munge
chmod 1777 "$work/out"
chmod 700 "$work/key"
cp -L "$1" "$work/bin/detshared"
cp -L "$2" "$work/bin/detsharectl"
cp -L "$4" "$work/bin/program"
for library in "${@:5}"; do cp -L "$library" "$work/lib/"; done
program=$work/bin/program
ctl=$work/bin/detsharectl
host=$(hostname -s)
port=$((20000 + RANDOM % 20000))

# ---- DetShare
start_daemon() {
  "$work/bin/detshared" --socket /run/detshare/detshared.sock --backend=soft --soft-memory=1GiB --soft-threads=1 2>>"$work/log/detshared" &
  daemon=$!
  until_true 60 "$ctl" status || die "detshared does not start"
}
start_daemon
memory_before=$("$ctl" status --json | sed -n 's/.*"used_memory": \([0-9]*\).*/\1/p')

# ---- Slurm
export SLURM_CONF=$work/slurm.conf MYSQL_UNIX_PORT=$work/db/socket
dd if=/dev/urandom of="$work/key/munge.key" bs=128 count=1 status=none
chmod 600 "$work/key/munge.key"
munged --force --key-file="$work/key/munge.key" --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/pid \
  --log-file="$work/key/log" --seed-file="$work/key/seed" || die "munged does not start"

mariadb-install-db --user=root --datadir="$work/db" --auth-root-authentication-method=normal >"$work/log/mariadb-install" 2>&1 ||
  die "mariadb-install-db fails"
mariadbd --no-defaults --user=root --datadir="$work/db" --socket="$MYSQL_UNIX_PORT" --skip-networking \
  --pid-file=/run/mariadb.pid >"$work/log/mariadb" 2>&1 &
until_true 60 mariadb --no-defaults -e 'SELECT 1' || die "MariaDB does not start"

cat >"$work/slurmdbd.conf" <<END
AuthType=auth/munge
DbdHost=$host
DbdPort=$((port + 2))
SlurmUser=root
PidFile=/run/slurmdbd.pid
LogFile=$work/log/slurmdbd
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
END
chmod 600 "$work/slurmdbd.conf"
cat >"$work/slurm.conf" <<END
ClusterName=detshare
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=$work/log/slurmctld
SlurmdLogFile=$work/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
KillWait=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=$host
AccountingStoragePort=$((port + 2))
AccountingStoreFlags=job_comment
PlugStackConfig=$work/plugstack.conf
MinJobAge=3600
# Four jobs of one CPU run at a time.
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 RealMemory=2000 State=UNKNOWN
PartitionName=gpu Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
cp "$plugin" "$work/lib/slurm_detshare.so"
echo "required $work/lib/slurm_detshare.so libraries=$work/lib detsharectl=$ctl" >"$work/plugstack.conf"

slurmdbd -D >>"$work/log/slurmdbd-out" 2>&1 &
until_true 60 sacctmgr -n show cluster || die "slurmdbd does not start"
sacctmgr -i add cluster detshare >/dev/null || true
slurmctld -D >>"$work/log/slurmctld-out" 2>&1 &
start_slurmd() {
  slurmd -D >>"$work/log/slurmd-out" 2>&1 &
  slurmd=$!
}
start_slurmd
node_is() { [ "$(sinfo -h -o %T)" = "$1" ]; }
until_true 60 node_is idle || die "slurmd does not start: $(sinfo -R)"

# ---- twenty jobs
submit() { # COMMAND OPTIONS...: prints the job's number
  local command=$1
  shift
  runuser -u nobody -- sbatch --parsable --chdir=/tmp --output="$work/out/%j" --open-mode=append \
    --detshare=class=batch,memory=64M --mem=200 "$@" --wrap "$command"
}
declare -A kind
job() { # KIND COMMAND OPTIONS...
  local number
  number=$(submit "${@:2}") || die "sbatch fails"
  kind[$number]=$1
}
job over_time "$program 8 600" --time=1
for i in 1 2; do job requeued "$program 32 4" --requeue; done
for i in 1 2 3; do job cancelled "$program 24 600"; done
for i in 1 2; do job killed "$program 8 600 & sleep 2; kill -KILL \$! \$\$"; done
for i in 1 2; do job gpu_full "$program 16 4" --detshare=class=batch,memory=8M; done
for i in 1 2; do job host_full "$program 8 600 & fill=\$(head -c 400000000 /dev/zero | tr '\\0' x); sleep 600"; done
for i in {1..8}; do job ends "$program 16 4"; done
[ ${#kind[@]} = 20 ] || die "there are ${#kind[@]} jobs, not 20"

works() { grep -q works "$work/out/$1" 2>/dev/null; }
most=0
declare -A handled
for ((deadline = SECONDS + 240; SECONDS < deadline; )); do
  "$ctl" endpoint list >"$work/endpoints"
  open=$(grep -c '^slurm-' "$work/endpoints" || true)
  [ "$open" -le "$most" ] || most=$open
  while read -r endpoint tenant _; do
    [ "$tenant" = "slurm-nobody-${endpoint#slurm-}" ] || fail "endpoint $endpoint has the tenant $tenant"
  done < <(grep '^slurm-' "$work/endpoints" || true)
  for number in "${!kind[@]}"; do
    case ${kind[$number]},${handled[$number]:-} in
      cancelled,) ! works "$number" || { scancel "$number" && handled[$number]=1; } ;;
      requeued,) ! works "$number" || { scontrol requeue "$number" && handled[$number]=1; } ;;
      # Slurm would wait two minutes.
      requeued,1) [ "$(squeue -h -j "$number" -o %t)" != PD ] || handled[$number]=$((SECONDS + 5)) ;;
      requeued,[1-9]*) ((SECONDS < handled[$number])) || { scontrol update job="$number" StartTime=now && handled[$number]=done; } ;;
    esac
  done
  [ -n "$(squeue -h)" ] || break
  sleep 0.3
done
[ -z "$(squeue -h)" ] || die "jobs do not end: $(squeue)"
[ "$most" = 4 ] || fail "there were at most $most endpoints at a time, not 4"

# ---- nothing is left
nothing_is_left() {
  until_true 20 no_endpoint || fail "endpoints are left: $("$ctl" endpoint list)"
  until_true 20 no_session || fail "sessions are left: $("$ctl" status)"
  local status
  status=$("$ctl" status --json)
  [[ $status != *slurm-* ]] || fail "tenants are left: $status"
  [[ $status == *"\"used_memory\": $memory_before"* ]] || fail "memory is left, there were $memory_before bytes: $status"
  [[ $("$ctl" tenant list) != *slurm-* ]] || fail "settings are left: $("$ctl" tenant list)"
  [ "$(ls /run/detshare/endpoints)" = list ] || fail "directories are left: $(ls /run/detshare/endpoints)"
  [ -z "$(ls /run/detshare-slurm --ignore=lock 2>/dev/null)" ] || fail "the node still remembers $(ls /run/detshare-slurm)"
  ! grep -l /endpoints/ /proc/[0-9]*/mountinfo 2>/dev/null || fail "mounts are left"
  until_true 20 node_is idle || fail "the node is $(sinfo -h -o %T): $(sinfo -R)"
}
no_endpoint() { [ "$("$ctl" endpoint list)" = "There are no endpoints." ]; }
no_session() { [[ $("$ctl" status) == *"No sessions."* ]]; }
nothing_is_left

# ---- the accounting has each run of each job
state_of() { sacct -XnP -j "$1" -o State; }
figure() { sed -n "s/.*detshare ${host,,}: .*$2=\([0-9.]*\).*/\1/p" <<<"$1"; } # COMMENT NAME
is() { awk "BEGIN { exit !($1) }"; }
for number in "${!kind[@]}"; do
  case ${kind[$number]} in
    ends) states=COMPLETED peak='== 16' runs=1 ;;
    over_time) states=TIMEOUT peak='== 8' runs=1 ;;
    requeued) states='REQUEUED COMPLETED' peak='== 32' runs=2 ;;
    cancelled) states='CANCELLED*' peak='== 24' runs=1 ;;
    killed) states=FAILED peak='== 8' runs=1 ;;
    gpu_full) states=FAILED peak='<= 8' runs=1 ;;
    # Slurm names the end by its reason or by its signal.
    host_full) states='@(OUT_OF_MEMORY|CANCELLED*|FAILED)' peak='== 8' runs=1 ;;
  esac
  said=$(sacct -DXnP -j "$number" -o State | paste -sd' ')
  # shellcheck disable=SC2053
  [[ $said == $states ]] || fail "job $number (${kind[$number]}) ended as $said"
  found=0
  while read -r comment; do
    found=$((found + 1))
    [[ $comment =~ sessions=[1-9] ]] || fail "job $number (${kind[$number]}) has the comment '$comment'"
    is "$(figure "$comment" peak_mib) $peak" || fail "job $number (${kind[$number]}) has the comment '$comment', and a peak $peak MiB was expected"
    [ "${kind[$number]}" != ends ] || is "$(figure "$comment" gpu_seconds) > 0" || fail "job $number used no GPU: '$comment'"
  done < <(sacct -DXnP -j "$number" -o AdminComment)
  [ $found = $runs ] || fail "job $number (${kind[$number]}) has $found records, not $runs"
done
grep -q 'tenant slurm-nobody-.* do not fit its limit of 8.00 MiB' "$work"/out/* || fail "no job learns that it is over its limit"
echo "the accounting:"
sacct -DX -o JobID,State%16,Elapsed,AdminComment%60

# ---- parts of the node fail
said=$(submit true --detshare=class=fast 2>&1) && fail "sbatch takes a wrong option"
[[ $said == *'class is latency or batch, not "fast"'* ]] || fail "sbatch does not explain a wrong option: $said"

# The accounting may be late.
ended() { [ -z "$(squeue -h -j "$1")" ] && [[ $(state_of "$1") == @(COMPLETED|FAILED|CANCELLED*) ]]; }
number=$(submit "$program 8 12")
until_true 60 works "$number" || fail "a job does not run"
kill -KILL "$slurmd"
wait "$slurmd" 2>/dev/null || true
start_slurmd
until_true 90 grep -q done "$work/out/$number" || fail "a job does not survive slurmd: $(cat "$work/out/$number")"
until_true 60 ended "$number"
nothing_is_left
[[ $(sacct -XnP -j "$number" -o AdminComment) == *peak_mib=8.0* ]] || fail "the figures of a job that survived slurmd are missing"

# A daemon that ends during a job and is back before its end; then one that is not.
for back in before after; do
  number=$(submit "$program 8 600; until [ -e $work/out/go ]; do sleep 0.1; done")
  until_true 60 works "$number" || fail "a job does not run"
  kill "$daemon"
  wait "$daemon" || true
  [ $back = after ] || start_daemon
  touch "$work/out/go"
  until_true 60 ended "$number" || fail "a job does not end without the daemon"
  [ $back = before ] || sleep 1
  rm "$work/out/go"
  [ $back = before ] && nothing_is_left
done
number=$(submit "$program 8 2")
until_true 60 ended "$number" || fail "a job hangs without the daemon"
[ "$(state_of "$number")" = FAILED ] || fail "without the daemon a job is $(state_of "$number")"
grep -q "detshare: job $number gets no GPU from DetShare on $host: no detshared replies" "$work/out/$number" ||
  fail "a job does not learn that there is no daemon: $(cat "$work/out/$number")"
node_is idle || fail "without the daemon the node is $(sinfo -h -o %T)"
start_daemon
# Each job that begins closes what could not be closed.
runuser -u nobody -- srun --chdir=/tmp --detshare=memory=32M "$program" 8 1 | grep -q done || fail "srun --detshare fails"
nothing_is_left

[ $failed = 0 ] || tail -n 60 "$work/log/slurmd" "$work/log/detshared"
exit $failed
