#!/bin/bash
# Runs a CUDA program in containers of podman, with `--device detshare.io/gpu=TENANT` and nothing
# else: a daemon, two endpoints with a limit of memory each, and the specification that
# `detsharectl cdi generate` prints. The image is an older Debian. Needs root, podman, runc and
# Debian's mirror; 40 s. Not part of ./tools/test:
#
#   apt-get install podman runc debootstrap
#   bazel test //tests/packaging:podman_test [--test_env=RELEASE=bullseye]
#
#   podman_test.sh DETSHARED DETSHARECTL PROGRAM LIBNVIDIA-ML... LIBCUDA
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin HOME=${HOME:-/root}
release=${RELEASE:-bullseye}
for ((i = 1; i <= $#; i++)); do files[i]=$(realpath "${!i}"); done
detshared=${files[1]} ctl=${files[2]} program=${files[3]} nvml=${files[4]} shim=${files[$#]}

root=$(mktemp -d /tmp/detshare-podman.XXXXXX)
host=$(mktemp -d /dev/shm/detshare-podman.XXXXXX)
daemon=
# All that podman keeps is below $root. Its default limits need rights that this host may not give.
limit=$(ulimit -Hn)
podman() {
  command podman --root "$root/storage" --runroot "$root/run" --runtime runc --cgroup-manager=cgroupfs "$@"
}
finish() {
  rm -f /etc/cdi/detshare-test.json
  [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
  wait
  podman rmi --all --force >/dev/null 2>&1 || true
  rm -rf --one-file-system "$root" "$host"
}
trap finish EXIT

debootstrap --variant=minbase "$release" "$root/image" http://deb.debian.org/debian >"$root/log" 2>&1 ||
  { tail -n 5 "$root/log" && exit 1; }
mkdir "$root/image/app" "$root/libraries"
cp -L "$program" "$root/image/app/program"
tar -C "$root/image" -c . | podman import - old-system >/dev/null
cp -L "$shim" "$root/libraries/libcuda.so.1"
cp -L "$nvml" "$root/libraries/libnvidia-ml.so.1"

export DETSHARE_SOCKET=$host/detshared.sock
"$detshared" --socket "$DETSHARE_SOCKET" --backend=soft --soft-memory=256MiB --soft-threads=2 2>"$host/log" &
daemon=$!
for ((i = 0; i < 600; i++)); do [ -S "$DETSHARE_SOCKET" ] && break || sleep 0.1; done
"$ctl" endpoint open alice --memory 64MiB >/dev/null
"$ctl" endpoint open bob --memory 4KiB >/dev/null
mkdir -p /etc/cdi
"$ctl" cdi --libraries "$root/libraries" generate >/etc/cdi/detshare-test.json

failed=0
run() {
  podman run --rm --network none --ulimit "nofile=$limit:$limit" --ulimit nproc=1000:1000 "$@" old-system /app/program
}
run --device detshare.io/gpu=alice >"$host/alice" 2>&1 || failed=1
echo "alice: $(tail -n 1 "$host/alice")"
# Limits hold: bob may have less than the program needs.
if run --device detshare.io/gpu=bob >"$host/bob" 2>&1; then
  echo "FAILED: bob got more memory than the limit" && failed=1
fi
grep -q 'tenant bob' "$host/bob" || { echo "FAILED: bob does not learn why: $(cat "$host/bob")" && failed=1; }
echo "bob: $(grep 'tenant bob' "$host/bob" | head -n 1)"
if run >"$host/nobody" 2>&1; then echo "FAILED: without a device the program runs" && failed=1; fi
exit $failed
