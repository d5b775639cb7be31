#!/bin/bash
# Installs the RPM packages into an empty folder, checks them there with rpm, and erases them. Nothing but
# changed configuration may stay. Also makes them again, which must give the same bytes.
#
#   rpm_test.sh PACKAGES MAKE_PACKAGES BUILT
set -euo pipefail
if [ "$(id -u)" != 0 ]; then
  # rpm changes its root.
  unshare --user --map-root-user true 2>/dev/null || {
    echo "NOT TESTED: no namespaces can be made here"
    exit 0
  }
  exec unshare --user --map-root-user "$0" "$@"
fi
packages=$1 make_packages=$(realpath "$2") built=$3
work=$(mktemp -d /tmp/detshare-rpm.XXXXXX)
trap 'rm -rf "$work"' EXIT
root=$work/root
fail() {
  echo "FAILED: $*"
  exit 1
}
in_root() { rpm --root "$root" --dbpath /var/lib/rpm "$@"; }

mkdir -p "$work/again" "$root/var/lib/rpm"
COMPRESSION_LEVEL=0 SOURCE_DATE_EPOCH=1700000000 "$make_packages" "$built" "$work/again" 0.2.0 rpm
for package in "$work"/again/*.rpm; do
  cmp "$package" "$packages/$(basename "$package")" || fail "the same files do not give the same packages"
done

# ---- what they say of themselves
needs() { rpm -qp --requires "$packages/$1-0.2.0-1.x86_64.rpm" | grep -v '^rpmlib(' | sort -u | paste -sd' '; }
[ "$(needs detshare-client)" = "libc.so.6(GLIBC_2.17)(64bit)" ] || fail "detshare-client needs $(needs detshare-client)"
[[ $(needs detshare) == *"detshare-client = 0.2.0-1 libc.so.6(GLIBC_2.34)(64bit)" ]] || fail "detshare needs $(needs detshare)"
for package in "$packages"/*.rpm; do
  [ "$(rpm -qp --provides "$package" | grep -c '\.so')" = 0 ] || fail "$package replaces libraries of the system"
  for script in preinprog:prein postinprog:postin preunprog:preun postunprog:postun; do
    rpm -qp --qf "%{${script#*:}}\n" "$package" | sed '/^(none)$/d' >"$work/script"
    sh -n "$work/script" || fail "a script of $package"
  done
done

# ---- install, check, use
in_root -i --nodeps --noscripts "$packages"/*.rpm || fail "they cannot be installed"
in_root -V --nodeps detshare detshare-client detshare-kubernetes detshare-slurm || fail "they are not there as they are packed"
[ "$(in_root -qf /usr/sbin/detshared)" = detshare-0.2.0-1.x86_64 ] || fail "nobody owns the daemon"
unset DETSHARE_LAUNCHER DETSHARE_NOISE DETSHARE_DAEMON DETSHARE_LIB_DIR DETSHARE_SOCKET
"$root/usr/bin/detshare" run --standalone=soft -- "$root/usr/libexec/detshare/vector_add" |
  diff "$root/usr/share/doc/detshare-client/examples/vector_add.out" - || fail "the example prints something else than the packages say"

# ---- erase
echo '# changed' >>"$root/etc/detshare/detshare.toml"
in_root -e --noscripts detshare detshare-client detshare-kubernetes detshare-slurm 2>"$work/said" || fail "they cannot be erased: $(cat "$work/said")"
grep -q '# changed' "$root/etc/detshare/detshare.toml.rpmsave" || fail "the changed configuration is lost"
rm "$root/etc/detshare/detshare.toml.rpmsave"
left=$(find "$root" -path "$root/var" -prune -o -type f -print -o -name '*detshare*' -print)
[ "$left" = "$root/etc/detshare" ] || fail "left behind: $left"
