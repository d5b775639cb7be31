#!/bin/bash
# Installs, uses, upgrades, removes and purges the Debian packages on a fresh Debian 12, in a chroot
# without systemd.
#
#   install_test.sh MAKE_PACKAGES LIFE PROGRAM BUILT
#
# LIFE does there what an operator does with the PROGRAM (life_of_a_host.sh). BUILT is the folder
# of built files. debootstrap makes the fresh system from $DETSHARE_DEBIAN_MIRROR.
# If $DETSHARE_BASE_SYSTEM is set, the test copies that folder instead, which must come from an
# earlier debootstrap --variant=minbase --include=adduser bookworm.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin # debootstrap, chroot

skip() {
  echo "NOT TESTED: $*"
  exit 0
}
fail() {
  echo "FAILED: $*"
  failed=1
}
failed=0
make_packages=$(realpath "$1") life=$(realpath "$2") program=$(realpath "$3") built=$4
[ "$(id -u)" = 0 ] || skip "only root can make a system to install on"
work=$(mktemp -d /tmp/detshare-install.XXXXXX)
root=$work/root
trap 'rm -rf --one-file-system "$work"' EXIT

# ---- the packages, in two versions
mkdir -p "$work"/{one,two}
export COMPRESSION_LEVEL=1 # quick
"$make_packages" "$built" "$work/one" 0.2.0 deb
SOURCE_DATE_EPOCH=1700000000 "$make_packages" "$built" "$work/two" 0.2.1 deb
sha256sum "$work"/two/*.deb >"$work/sums"
SOURCE_DATE_EPOCH=1700000000 "$make_packages" "$built" "$work/two" 0.2.1 deb
sha256sum --quiet -c "$work/sums" || fail "the same files do not give the same packages"

if command -v lintian >/dev/null; then
  lintian --allow-root --fail-on error --suppress-tags bogus-mail-host "$work"/one/*.deb || fail "lintian finds errors"
else
  echo "NOT TESTED: this machine has no lintian"
fi

# ---- a fresh system
if [ -n "${DETSHARE_BASE_SYSTEM:-}" ]; then
  cp -a "$DETSHARE_BASE_SYSTEM" "$root"
elif command -v debootstrap >/dev/null; then
  debootstrap --variant=minbase --include=adduser bookworm "$root" \
    "${DETSHARE_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap" 2>&1 ||
    { [ $failed = 0 ] && skip "debootstrap cannot make a system here: $(tail -1 "$work/debootstrap")" || exit 1; }
else
  [ $failed = 0 ] && skip "this machine has no debootstrap" || exit 1
fi
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
mkdir -p "$root/packages"
cp "$work"/one/*.deb "$work"/two/*.deb "$root/packages/"
rm "$root"/packages/detshare-dev_* # it needs a compiler; policy_package_test uses it
install "$life" "$program" "$root/packages/"

# Runs a command there with its own /proc and tmpfs. All its processes end with it.
inside() {
  unshare --mount --pid --fork --kill-child chroot "$root" /bin/sh -ec "mount -t proc proc /proc
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm 2>/dev/null || true
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C
    $1"
}
state() { inside "dpkg-query -W -f='\${db:Status-Status} \${Version}' $1 2>/dev/null || true"; }

inside "dpkg -i packages/*_0.2.0_*.deb" >"$work/log" 2>&1 || { cat "$work/log"; fail "they cannot be installed"; }
[ "$(state detshare)" = "installed 0.2.0" ] || fail "after installing detshare is: $(state detshare)"
for group in detshare detshare-admin; do
  grep -q "^$group:" "$root/etc/group" || fail "there is no group $group"
done
[ -L "$root/etc/systemd/system/multi-user.target.wants/detshared.service" ] || fail "the service is not enabled"
[ -L "$root/etc/systemd/system/sockets.target.wants/detshared.socket" ] || fail "the socket is not enabled"
inside "detsharectl config check && detsharectl config show >/dev/null" || fail "the configuration that is installed has mistakes"

# The daemon and a program, as users start them.
inside "mkdir -p /run/detshare && mount -t tmpfs -o mode=755 tmpfs /run/detshare
  detshared --config /etc/detshare/detshare.toml --backend=soft --soft-memory=64MiB 2>/tmp/log &
  for i in \$(seq 300); do detsharectl status >/dev/null 2>&1 && break; sleep 0.1; done
  detsharectl status --json | grep -q '\"backend\": \"soft\"'
  detshare run -- /bin/sh -c 'ls \$(echo \$LD_LIBRARY_PATH | cut -d: -f1)/libcuda.so.1' | grep -qx /usr/lib/x86_64-linux-gnu/detshare/libcuda.so.1
  detsharectl doctor --json >/tmp/doctor || true
  grep -q '\"check\": \"shim\",' /tmp/doctor
  detshare run --standalone=soft -- /bin/true
  detsharectl verify --standalone=soft --runs 1 --neighbours 1 -- sh -c 'echo | /packages/$(basename "$program")'
  kill \$!; wait \$!" || { cat "$root/tmp/log"; fail "daemon and program do not work where they are installed"; }

# An upgrade must not enable what is disabled. Disables the unit as systemctl disable does:
rm -f "$root/etc/systemd/system/multi-user.target.wants/detshared.service"
inside "mount -t tmpfs -o mode=755 tmpfs /run
  /packages/$(basename "$life") /packages/$(basename "$program") /packages/*_0.2.1_*.deb" >"$work/log" 2>&1 ||
  fail "a host does not live with the packages: $(cat "$work/log")"
[ "$(state detshare)" = "installed 0.2.1" ] || fail "after the upgrade detshare is: $(state detshare)"
[ ! -e "$root/etc/systemd/system/multi-user.target.wants/detshared.service" ] || fail "the upgrade enabled the service again"
[ "$(state detshare-kubernetes)" = "installed 0.2.1" ] || fail "after the upgrade detshare-kubernetes is: $(state detshare-kubernetes)"
inside "dpkg -r detshare" >/dev/null 2>&1 || fail "detshare cannot be removed"
[ ! -e "$root/usr/sbin/detshared" ] || fail "the daemon is still there"
[ -e "$root/etc/detshare/detshare.toml" ] || fail "removing took the configuration along"
inside "dpkg -i packages/detshare_0.2.1_*.deb && dpkg -P detshare detshare-kubernetes detshare-slurm && dpkg -P detshare-client" >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "they cannot be purged"; }
left() {
  find "$root" -xdev \( -path "$root/packages" -o -path "$root/proc" -o -path "$root/var/lib/dpkg" -o -path "$root/tmp" -o -path "$root/run" \) -prune -o -name '*detshare*' -print
}
[ -z "$(left)" ] || fail "left behind: $(left)"

# ---- the RPM packages on the same system, with their scripts
mkdir "$work/rpm"
"$make_packages" "$built" "$work/rpm" 0.2.1 rpm
inside "groupdel detshare; groupdel detshare-admin"
in_root() { rpm --root "$root" --dbpath /var/lib/rpm "$@"; }
in_root -i --nodeps "$work"/rpm/*.rpm >"$work/log" 2>&1 || { cat "$work/log"; fail "the RPM packages cannot be installed"; }
for group in detshare detshare-admin; do
  grep -q "^$group:" "$root/etc/group" || fail "the RPM packages make no group $group"
done
inside "detsharectl config check" >/dev/null || fail "the configuration of the RPM packages has mistakes"
in_root -e detshare detshare-client detshare-kubernetes detshare-slurm >"$work/log" 2>&1 || { cat "$work/log"; fail "the RPM packages cannot be erased"; }
[ -z "$(left)" ] || fail "the RPM packages leave behind: $(left)"
exit $failed
