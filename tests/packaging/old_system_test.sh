#!/bin/bash
# Runs CUDA programs in systems of other ages, with the client's files only, against a daemon outside. The
# programs are linked like the client, so that they start there. Then the same in folders that have
# nothing but the glibc of the first one, and musl beside it. Prints a row for each. Needs root, the
# mirrors of Debian and Ubuntu for debootstrap, and for the rows of musl its package; three minutes for
# each system, most of them downloads. Ubuntu's systems also need its keyring, or DETSHARE_UNVERIFIED=yes,
# which trusts the network. Not part of ./tools/test:
#
#   bazel test --test_output=all //tests/packaging:old_system_test [--test_env=RELEASES="bullseye trixie sid bionic"]
#
#   old_system_test.sh DETSHARED DETSHARE LIBCUDA... -- PROGRAM...
#
# A system that is there as $DETSHARE_BASE_SYSTEMS/RELEASE is copied instead.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin
read -ra releases <<<"${RELEASES:-bullseye}"

detshared=$(realpath "$1") launcher=$(realpath "$2")
shift 2
while [ "$1" != -- ]; do shim=$(realpath "$1") && shift; done
shift

work=$(mktemp -d /tmp/detshare-old.XXXXXX)
host=$(mktemp -d /dev/shm/detshare-old.XXXXXX)
daemon=
finish() {
  [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
  wait
  rm -rf --one-file-system "$work" "$host"
}
trap finish EXIT

"$detshared" --socket "$host/detshared.sock" --backend=soft --soft-memory=256MiB --soft-threads=2 2>"$host/log" &
daemon=$!
for ((i = 0; i < 600; i++)); do [ -S "$host/detshared.sock" ] && break || sleep 0.1; done

failed=0 ran=0
row() { printf '%-32s  %-6s  %-20s  %s\n' "$@"; }
# Runs all programs below the folder $1, which row $2 calls so. The time counts no download.
run_in() {
  local image=$1 name=$2 glibc=$3 passed=0 begin=$SECONDS program
  shift 3
  mkdir -p "$image"/{proc,run/detshare,opt/detshare,app}
  cp -L "$launcher" "$image/opt/detshare/detshare"
  cp -L "$shim" "$image/opt/detshare/libcuda.so.1"
  for program in "$@"; do
    cp -L "$program" "$image/app/"
    program=$(basename "$program")
    if unshare --mount bash -c 'mount --bind "$1" "$2/run/detshare" && mount -t proc proc "$2/proc" &&
        DETSHARE_LIB_DIR=/opt/detshare exec chroot "$2" /opt/detshare/detshare run -- "/app/$3"' \
        - "$host" "$image" "$program" >"$host/$program.out" 2>&1; then
      passed=$((passed + 1))
    else
      failed=1
      echo "$program: failed" && tail -n 5 "$host/$program.out"
    fi
  done
  row "$name" "$glibc" "$passed of $# programs" "$((SECONDS - begin)) s"
}

# Makes the system $1 in the folder $2. A release that this debootstrap does not know is taken for a
# younger one of Ubuntu's.
make_system() {
  local scripts=$work/debootstrap/scripts unverified=
  [ -d "$work/debootstrap" ] || cp -r /usr/share/debootstrap "$work/debootstrap"
  [ -e "$scripts/$1" ] || ln -s gutsy "$scripts/$1"
  if [ "$(readlink "$scripts/$1")" = gutsy ] && [ ! -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]; then
    [ "${DETSHARE_UNVERIFIED:-}" = yes ] || {
      echo "/usr/share/keyrings/ubuntu-archive-keyring.gpg is missing; DETSHARE_UNVERIFIED=yes does without" >"$work/log"
      return 1
    }
    unverified=--no-check-gpg
  fi
  DEBOOTSTRAP_DIR=$work/debootstrap debootstrap $unverified --variant=minbase "$1" "$2" >"$work/log" 2>&1
}

row system glibc result time
for release in "${releases[@]}"; do
  image=$work/$release
  if [ -d "${DETSHARE_BASE_SYSTEMS:-/nowhere}/$release" ]; then
    cp -a "$DETSHARE_BASE_SYSTEMS/$release" "$image"
  elif ! make_system "$release" "$image"; then
    row "$release" "?" "NOT RUN" "$(tail -n 1 "$work/log")"
    continue
  fi
  name=$(. "$image/etc/os-release" && echo "$PRETTY_NAME")
  glibc=$(chroot "$image" ldd --version | sed -n '1s/.* //p')
  run_in "$image" "$name" "$glibc" "$@"
  if [ $ran = 0 ]; then
    # As in an image without a distribution: no shell, no library but glibc's.
    mkdir -p "$work/bare/lib64" "$work/bare/lib/x86_64-linux-gnu"
    cp -L "$image/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" "$work/bare/lib64/"
    for library in libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1; do
      cp -L "$image/lib/x86_64-linux-gnu/$library" "$work/bare/lib/x86_64-linux-gnu/"
    done
    run_in "$work/bare" "nothing but that glibc" "$glibc" "$@"
    # A system of musl's with that glibc beside it. Without the glibc nothing of this starts there.
    if [ -e /lib/ld-musl-x86_64.so.1 ]; then
      cp -L /lib/ld-musl-x86_64.so.1 "$work/bare/lib/"
      run_in "$work/bare" "musl, and that glibc" "$glibc" "$@"
      rm "$work/bare/lib64/ld-linux-x86-64.so.2"
      if chroot "$work/bare" /opt/detshare/detshare --version >/dev/null 2>&1; then
        row "musl alone" "none" "STARTS" "" && failed=1
      else
        row "musl alone" "none" "does not start" ""
      fi
    fi
  fi
  rm -rf --one-file-system "$image"
  ran=$((ran + 1))
done
[ $ran -gt 0 ] || { echo "FAILED: no system could be made" && failed=1; }
exit $failed
