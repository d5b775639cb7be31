#!/bin/bash
# Calls the plugin's hooks as Slurm does, with a real daemon and CUDA programs. Slurm itself is
# replaced by spank_stand_in.
#
#   plugin_test.sh PLUGIN STAND_IN DETSHARED DETSHARECTL PROGRAM EXPECTED LIBRARIES...
set -euo pipefail
export LC_ALL=C
for ((i = 1; i <= $#; i++)); do files[i]=$(realpath "${!i}"); done
plugin=${files[1]} stand_in=${files[2]} detshared=${files[3]} ctl=${files[4]} program=${files[5]} expected=${files[6]}

host=$(mktemp -d /dev/shm/detshare-slurm.XXXXXX)
daemon=
finish() {
  [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
  wait
  rm -rf "$host"
}
trap finish EXIT
fail() {
  echo "FAILED: $*"
  cat "$host/said" "$host/log" 2>/dev/null
  exit 1
}

# ---- what Slurm loads
imports=$(nm -D --undefined-only "$plugin" | sed -n 's/^ *U \([a-z_]*\)$/\1/p' | sort | tr '\n' ' ')
[ "$imports" = "slurm_error slurm_info slurm_spank_log spank_get_item spank_getenv spank_option_getopt spank_option_register spank_setenv spank_unsetenv " ] ||
  fail "the plugin wants of Slurm: $imports"
exports=$(nm -D --defined-only "$plugin" | cut -d' ' -f3 | sort | tr '\n' ' ')
[ "$exports" = "plugin_name plugin_type plugin_version slurm_spank_init slurm_spank_job_epilog slurm_spank_job_prolog slurm_spank_task_init_privileged spank_plugin_version " ] ||
  fail "the plugin exports $exports"

# ---- a node
mkdir "$host/run" "$host/lib" "$host/slurm"
for file in "${@:7}"; do cp -L "$file" "$host/lib/"; done
arguments=(socket="$host/run/detshared.sock" libraries="$host/lib" detsharectl="$ctl" state="$host/state" slurm="$host/slurm")
control() { "$ctl" --socket "$host/run/detshared.sock" "$@"; }
hook() { "$stand_in" "$plugin" "$@" -- "${arguments[@]}" >"$host/said" 2>&1; }
start() {
  "$detshared" --socket "$host/run/detshared.sock" --backend=soft --soft-memory=256MiB --soft-threads=1 2>>"$host/log" &
  daemon=$!
  for ((i = 0; i < 600; i++)); do
    control status >/dev/null 2>&1 && return
    sleep 0.1
  done
  fail "the daemon does not start"
}
start

hook option class=latency,memory=20G || fail "the option is refused"
hook option class=fast && fail "a wrong option is accepted"
grep -q 'error: --detshare: class is latency or batch, not "fast"' "$host/said" || fail "a wrong option is not explained"

# ---- a job
export SLURMD_NODENAME=n1
user=$(id -un)
hook prolog 7 class=latency,memory=64MiB || fail "the prolog fails"
control endpoint list >"$host/said"
grep -q "^slurm-7 *slurm-$user-7" "$host/said" || fail "job 7 has no endpoint"
echo "exec $program" | DETSHARE_TENANT=other hook task 7 class=latency,memory=64MiB || fail "the task fails"
cmp "$host/said" "$expected" || fail "the program prints something else"

# Its tasks reach the daemon through the endpoint only.
echo "exec $ctl --socket $host/run/detshared.sock status" | hook task 7 && fail "a task may administer the daemon"
[ -d "$host/run/endpoints/slurm-7" ] || fail "the host sees the job's mounts"
echo "ls $host/run" | hook task 7 || fail "a step without the option fails"
grep -q endpoints "$host/said" && fail "a task sees other endpoints"

# A job that had no prolog gets its endpoint with its first task.
echo "exec $program" | hook task 6 class=batch || fail "the task of a job without a prolog fails"
cmp "$host/said" "$expected" || fail "without a prolog the program prints something else"
echo "exec $program" | hook task 6 class=batch || fail "the next task of a job without a prolog fails"
[[ $(control endpoint list) == *"slurm-$user-6"* ]] || fail "job 6 has no endpoint"
hook epilog 6 || fail "the epilog fails"
grep -q 'sessions=2$' "$host/said" || fail "both tasks of job 6 are not counted"

# ---- limits hold
hook prolog 8 class=batch,memory=4KiB || fail "the prolog fails"
echo "exec $program" | hook task 8 class=batch,memory=4KiB && fail "a job gets more memory than it asked for"
grep -q "tenant slurm-$user-8" "$host/said" || fail "the job does not learn which limit it has reached"

# ---- the end
hook epilog 7 || fail "the epilog fails"
grep -q 'job 7 has ended: detshare n1: ' "$host/said" || fail "the figures of job 7 are missing"
hook epilog 8 || fail "the epilog fails"
hook epilog 9 || fail "the epilog of a job without an endpoint fails"
[ "$(control endpoint list)" = "There are no endpoints." ] || fail "endpoints are left: $(control endpoint list)"
[[ $(control status) != *slurm-* ]] || fail "tenants are left: $(control status)"

# ---- a daemon that is down
kill "$daemon" && wait "$daemon" || true
hook prolog 10 class=batch || fail "a prolog without a daemon would drain the node"
echo "echo it runs" | hook task 10 class=batch && fail "the job runs without a GPU"
grep -q '^detshare: job 10 gets no GPU from DetShare on n1: no detshared replies' "$host/said" || fail "the job does not learn why"
start
hook epilog 10 || fail "the epilog of a refused job fails"

# A daemon that was down at the end of a job closes the endpoint when it is back.
hook prolog 11 class=batch || fail "the prolog fails"
kill "$daemon" && wait "$daemon" || true
hook epilog 11 || fail "the epilog without a daemon fails"
start
[[ $(control endpoint list) == *slurm-11* ]] || fail "the new daemon does not know endpoint 11: the next check proves nothing"
hook prolog 12 "" || fail "the prolog of a job without the option fails"
[ "$(control endpoint list)" = "There are no endpoints." ] || fail "an endpoint is left: $(control endpoint list)"
[ "$(ls "$host/state")" = lock ] || fail "the node still remembers $(ls "$host/state")"
