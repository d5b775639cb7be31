#!/bin/bash
# Runs CUDA programs in an older Debian, with the client's files only, against a daemon outside. The
# programs are linked like the client, so that they start there. Needs root, and Debian's mirror for
# debootstrap; 30 s. Not part of ./tools/test:
#
#   bazel test //tests/packaging:old_system_test [--test_env=RELEASE=bullseye]
#
#   old_system_test.sh DETSHARED DETSHARE LIBCUDA... -- PROGRAM...
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin
release=${RELEASE:-bullseye}

detshared=$(realpath "$1") launcher=$(realpath "$2")
shift 2
while [ "$1" != -- ]; do shim=$(realpath "$1") && shift; done
shift

image=$(mktemp -d /tmp/detshare-old.XXXXXX)
host=$(mktemp -d /dev/shm/detshare-old.XXXXXX)
daemon=
finish() {
  [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
  wait
  rm -rf --one-file-system "$image" "$host"
}
trap finish EXIT

debootstrap --variant=minbase "$release" "$image" http://deb.debian.org/debian >"$host/debootstrap.log" 2>&1 ||
  { tail -n 5 "$host/debootstrap.log" && exit 1; }
mkdir -p "$image/run/detshare" "$image/opt/detshare" "$image/app"
cp -L "$launcher" "$image/opt/detshare/detshare"
cp -L "$shim" "$image/opt/detshare/libcuda.so.1"
for program in "$@"; do cp -L "$program" "$image/app/"; done

"$detshared" --socket "$host/detshared.sock" --backend=soft --soft-memory=256MiB --soft-threads=2 2>"$host/log" &
daemon=$!
for ((i = 0; i < 600; i++)); do [ -S "$host/detshared.sock" ] && break || sleep 0.1; done

failed=0
chroot "$image" sh -c '. /etc/os-release; echo "$PRETTY_NAME, $(ldd --version | head -n 1)"'
chroot "$image" /opt/detshare/detshare --version
for program in "$@"; do
  name=$(basename "$program")
  if unshare --mount bash -c 'mount --bind "$1" "$2/run/detshare" && mount -t proc proc "$2/proc" &&
      exec chroot "$2" env DETSHARE_LIB_DIR=/opt/detshare /opt/detshare/detshare run -- "/app/$3"' \
      - "$host" "$image" "$name" >"$host/$name.out" 2>&1; then
    echo "$name: passed"
  else
    echo "$name: failed" && tail -n 5 "$host/$name.out"
    failed=1
  fi
done
exit $failed
