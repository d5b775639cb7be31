#!/bin/bash
# Checks the units with systemd itself: no warnings, a bounded exposure, and a group and a folder
# that it makes.
#
#   systemd_test.sh FILE...
set -euo pipefail

root=$(mktemp -d "${TEST_TMPDIR:-/tmp}/systemd.XXXXXX")
units=$root/usr/lib/systemd/system
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}

mkdir -p "$units" "$root"/{bin,etc,run,usr/bin,usr/sbin,usr/lib/sysusers.d,usr/lib/tmpfiles.d}
for file in "$@"; do
  case $file in
    *.service | *.socket) cp "$file" "$units/" ;;
    *.sysusers) cp "$file" "$root/usr/lib/sysusers.d/detshare.conf" ;;
    *.tmpfiles) cp "$file" "$root/usr/lib/tmpfiles.d/detshare.conf" ;;
    *) fail "what is $file?" ;;
  esac
done

# These checks work wherever the test runs.
value() { sed -n "s/^$2=//p" "$units/$1"; }
[ "$(value detshared.socket SocketMode)" = 0660 ] || fail "the socket is open to others than its group"
[ "$(value detshared.socket SocketGroup)" = detshare ] || fail "the socket's group"
[ "$(value detshared.service Type)" = notify ] || fail "Type="
[ "$(value detshared.service RuntimeDirectoryPreserve)" = yes ] ||
  fail "the folder of the socket would go with the service, while the socket listens"
for capability in $(value detshared.service CapabilityBoundingSet); do
  case $capability in
    CAP_SYS_ADMIN | CAP_SYS_RAWIO | CAP_SYS_MODULE | CAP_SET?ID | CAP_SYS_BOOT | CAP_NET_*) fail "$capability" ;;
  esac
  # A comment must explain each capability.
  grep -q "^#.*\b${capability#CAP_}\b" "$units/detshared.service" || fail "nothing says what $capability is for"
done

if ! command -v systemd-analyze >/dev/null; then
  echo "NOT TESTED: this machine has no systemd-analyze"
  exit $failed
fi

# The programs that the units name, and the units that come with systemd.
for program in usr/sbin/detshared usr/sbin/detshare-device-plugin usr/sbin/detshare-dra-driver usr/bin/detsharectl bin/kill; do
  printf '#!/bin/sh\n' >"$root/$program"
  chmod 755 "$root/$program"
done
for unit in /usr/lib/systemd/system/*.{target,slice,socket,mount} /usr/lib/systemd/system/modprobe@.service; do
  [ ! -e "$unit" ] || cp -n "$unit" "$units/" 2>/dev/null || true
done

said=$(systemd-analyze verify --root="$root" --man=no --recursive-errors=no \
  "$units/detshared.service" "$units/detshared.socket" "$units/detshare-device-plugin.service" \
  "$units/detshare-dra-driver.service" "$units/detshare-cdi.service" 2>&1) || fail "systemd-analyze verify"
[ -z "$said" ] || fail "systemd-analyze verify says: $said"

# In tenths: at most 2.9 of 10. The daemon is root, reads /proc of other users' processes and uses
# device nodes, which costs points.
systemd-analyze security --offline=true --root="$root" --threshold=29 --no-pager detshared.service >"$root/security" 2>&1 ||
  fail "systemd-analyze security: $(grep -a -e '✗' -e 'Overall' "$root/security")"

systemd-analyze security --offline=true --root="$root" --threshold=8 --no-pager detshare-device-plugin.service >"$root/security" 2>&1 ||
  fail "systemd-analyze security of the plugin: $(grep -a -e '✗' -e 'Overall' "$root/security")"
# The driver also uses the network.
systemd-analyze security --offline=true --root="$root" --threshold=16 --no-pager detshare-dra-driver.service >"$root/security" 2>&1 ||
  fail "systemd-analyze security of the driver: $(grep -a -e '✗' -e 'Overall' "$root/security")"

if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers --root="$root" detshare.conf
  for group in detshare detshare-admin; do
    grep -q "^$group:" "$root/etc/group" || fail "there is no group $group"
  done
fi
if command -v systemd-tmpfiles >/dev/null && [ "$(id -u)" = 0 ]; then
  systemd-tmpfiles --root="$root" --create detshare.conf
  [ "$(stat -c %a "$root/run/detshare")" = 755 ] || fail "the runtime directory"
fi
exit $failed
