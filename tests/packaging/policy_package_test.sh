#!/bin/bash
# Builds the example of a policy from the package detshare-dev alone, and runs a program under it, in the
# daemon of the package detshare.
#
#   policy_package_test.sh PACKAGES
set -euo pipefail
command -v pkg-config >/dev/null && command -v make >/dev/null || {
  echo "NOT TESTED: this machine has no pkg-config or no make, on which detshare-dev depends"
  exit 0
}
packages=$1
work=$(mktemp -d /tmp/detshare-policy.XXXXXX)
root=$work/root
daemon=
finish() {
  [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
  wait
  rm -rf "$work" "${host:-}"
}
trap finish EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
mkdir -p "$root"
for package in detshare detshare-client detshare-dev; do
  dpkg-deb --extract "$packages/${package}_0.2.0_amd64.deb" "$root"
done

cp -r "$root/usr/share/doc/detshare-dev/examples" "$work/policy"
PKG_CONFIG_PATH=$root/usr/share/pkgconfig make -C "$work/policy" CXXFLAGS=-O0 >"$work/log" 2>&1 || fail "the example cannot be built: $(cat "$work/log")"

unset DETSHARE_LAUNCHER DETSHARE_DAEMON DETSHARE_LIB_DIR
host=$(mktemp -d /dev/shm/detshare-policy.XXXXXX)
export DETSHARE_SOCKET=$host/detshared.sock
"$root/usr/sbin/detshared" --backend=soft --soft-memory=64MiB --policy "$work/policy/shortest_first.so" 2>"$work/daemon" &
daemon=$!
for ((i = 0; i < 600; i++)); do
  [ -S "$DETSHARE_SOCKET" ] && break
  kill -0 "$daemon" 2>/dev/null || fail "the daemon does not take the policy: $(cat "$work/daemon")"
  sleep 0.1
done
"$root/usr/bin/detsharectl" policy >"$work/said"
grep -q shortest_first.so "$work/said" || fail "the policy is not in force: $(cat "$work/said")"
"$root/usr/bin/detshare" run -- "$root/usr/libexec/detshare/vector_add" >"$work/said" || fail "a program does not run under the policy: $(cat "$work/said")"
