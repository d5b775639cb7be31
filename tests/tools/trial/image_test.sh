#!/bin/bash
# Builds the image of the trial with podman, from packages, and runs it. Needs root, podman, runc, and
# Debian's mirror: debootstrap makes the image's base, and the image's own apt-get runs. Two minutes, most
# of them downloads. Not part of ./tools/test:
#
#   apt-get install podman runc debootstrap
#   bazel test --test_output=all //tests/tools/trial:image_test [--test_env=RELEASE=trixie]
#
#   image_test.sh DOCKERFILE PACKAGES
#
# If $DETSHARE_BASE_SYSTEM is set, the base is that folder.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin HOME=${HOME:-/root}
dockerfile=$(realpath "$1") packages=$2
work=$(mktemp -d /tmp/detshare-image.XXXXXX)
engine=(podman --root "$work/storage" --runroot "$work/run" --runtime runc --cgroup-manager=cgroupfs)
finish() {
  "${engine[@]}" rmi --all --force >/dev/null 2>&1 || true
  rm -rf --one-file-system "$work"
}
trap finish EXIT

base=${DETSHARE_BASE_SYSTEM:-$work/base}
if [ -z "${DETSHARE_BASE_SYSTEM:-}" ]; then
  debootstrap --variant=minbase "${RELEASE:-bookworm}" "$base" >"$work/log" 2>&1 || { tail -n 5 "$work/log" && exit 1; }
fi
tar -C "$base" -c . | "${engine[@]}" import - trial-base >/dev/null 2>&1
mkdir -p "$work/context/dist"
cp -L "$packages"/*.deb "$work/context/dist/"
"${engine[@]}" build --isolation chroot --network host --build-arg BASE=localhost/trial-base \
  -f "$dockerfile" -t detshare-trial "$work/context" >"$work/log" 2>&1 || { tail -n 20 "$work/log" && exit 1; }
# This host may not give podman's default limits.
limit=$(ulimit -Hn)
"${engine[@]}" run --rm --network none --ulimit "nofile=$limit:$limit" --ulimit nproc=1000:1000 detshare-trial --backend soft --seconds 1 | tee "$work/out"
grep -q 'the same bits in every row' "$work/out"
