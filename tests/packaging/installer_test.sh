#!/bin/bash
# Unpacks the tarball, installs from it, runs a program, and undoes the installation. The file system is
# afterwards what it was. Needs no root: the service goes into a folder that stands for the root.
#
#   installer_test.sh PACKAGES
set -euo pipefail
packages=$1
work=$(mktemp -d /tmp/detshare-installer.XXXXXX)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
# All files with their modes, times, targets and contents.
state() { (cd "$1" && find . -printf '%p %y %m %l\n' | sort && find . -type f -print0 | sort -z | xargs -0 -r sha256sum); }
unset DETSHARE_LAUNCHER DETSHARE_NOISE DETSHARE_DAEMON DETSHARE_LIB_DIR DETSHARE_SOCKET

tar -C "$work" -xf "$packages/detshare-0.2.0-x86_64.tar.gz"
install=$work/detshare-0.2.0-x86_64/install

# ---- programs only, below a folder with files of others
home=$work/home
mkdir -p "$home/bin" "$home/share/doc"
echo mine >"$home/bin/mine"
state "$home" >"$work/before"
"$install" --no-service --prefix "$home" >"$work/said" || fail "it does not install: $(cat "$work/said")"
"$home/bin/detshare" run --standalone=soft -- "$home/libexec/detshare/vector_add" |
  diff "$home/share/doc/detshare-client/examples/vector_add.out" - || fail "the example does not run where it is installed"
[ ! -e "$home/etc" ] || fail "without a service there is no configuration"
"$install" --no-service --prefix="$home" >/dev/null || fail "it does not install over itself"
# The copy that it installs undoes it, too.
"$home/share/detshare/install" --uninstall --prefix "$home" >/dev/null || fail "it does not undo itself"
state "$home" | diff "$work/before" - || fail "the file system is another one afterwards"

# ---- a file of others is in the way: nothing is written
echo other >"$home/bin/detshare"
state "$home" >"$work/before"
if "$install" --no-service --prefix "$home" >"$work/said" 2>&1; then fail "it overwrites a file of others"; fi
grep -q "$home/bin/detshare" "$work/said" || fail "it does not say which file is in the way: $(cat "$work/said")"
state "$home" | diff "$work/before" - || fail "it changed something all the same"
if "$install" --uninstall --prefix "$home" >"$work/said" 2>&1; then fail "it undoes what was never done"; fi
state "$home" | diff "$work/before" - || fail "it removed something of others"

# ---- an installation that stopped half-way can be undone
rm "$home/bin/detshare"
state "$home" >"$work/before"
"$install" --no-service --prefix "$home" >/dev/null
rm "$home/bin/detsharectl" "$home/sbin/detshared"
"$install" --uninstall --prefix "$home" >/dev/null || fail "it does not undo the half of itself"
state "$home" | diff "$work/before" - || fail "the half of it is still there"

# ---- the service, in a root of its own
root=$work/root
mkdir -p "$root/etc/systemd/system" "$root/usr/local"
state "$root" >"$work/before"
"$install" --root "$root" --prefix /opt/detshare >/dev/null || fail "it does not install the service"
grep -q '^ExecStart=/opt/detshare/sbin/detshared --config /etc/detshare/detshare.toml' "$root/etc/systemd/system/detshared.service" ||
  fail "the unit starts another program"
grep -q '^ExecStart=/opt/detshare/bin/detsharectl' "$root/etc/systemd/system/detshare-cdi.service" || fail "the unit of CDI starts another program"
# What the operator wrote outlives an upgrade and the end.
echo '# changed' >>"$root/etc/detshare/detshare.toml"
echo '# newer' >>"$work/detshare-0.2.0-x86_64/files/etc/detshare/detshare.toml"
rm "$work/detshare-0.2.0-x86_64/files/usr/share/detshare/grafana/detshare.json"
"$install" --root "$root" --prefix /opt/detshare >"$work/said" || fail "it does not upgrade: $(cat "$work/said")"
tail -1 "$root/etc/detshare/detshare.toml" | grep -q '# changed' || fail "an upgrade lost what the operator wrote"
tail -1 "$root/etc/detshare/detshare.toml.new" | grep -q '# newer' || fail "the new configuration is nowhere"
[ ! -e "$root/opt/detshare/share/detshare/grafana" ] || fail "a file of the earlier version is still there"
"$install" --uninstall --root "$root" --prefix /opt/detshare >"$work/said" || fail "it does not undo the service"
grep -q 'was changed and stays' "$work/said" || fail "it does not say that the configuration stays"
rm -r "$root/etc/detshare"
state "$root" | diff "$work/before" - || fail "the root is another one afterwards"

# ---- beside the package's service there is no second one
mkdir -p "$root/usr/lib/systemd/system"
touch "$root/usr/lib/systemd/system/detshared.service"
state "$root" >"$work/before"
if "$install" --root "$root" >"$work/said" 2>&1; then fail "it hides the unit of a package"; fi
grep -q 'the package detshare is installed' "$work/said" || fail "it does not say that the package is there: $(cat "$work/said")"
state "$root" | diff "$work/before" - || fail "it changed something beside the package"

# ---- nonsense
for wrong in "--prefix" "--prefix relative" "--colour" "--prefix /home/x --root $root"; do
  # shellcheck disable=SC2086
  if "$install" $wrong >"$work/said" 2>&1; then fail "it takes $wrong"; fi
  grep -q '^install: ' "$work/said" || fail "it does not say what is wrong with $wrong: $(cat "$work/said")"
done
state "$root" | diff "$work/before" - || fail "nonsense changed the root"
