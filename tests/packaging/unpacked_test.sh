#!/bin/bash
# The programs of the packages find each other where the packages put them.
#
#   unpacked_test.sh PACKAGES PROGRAM
#
# Unpacks the packages of the folder PACKAGES into another one, which needs neither root nor a network.
set -euo pipefail
packages=$1 program=$(realpath "$2")
work=$(mktemp -d /tmp/detshare-unpacked.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root"
for package in "$packages"/*.deb; do
  dpkg-deb --extract "$package" "$work/root"
done
# Nothing outside helps the programs to find each other.
unset DETSHARE_LAUNCHER DETSHARE_NOISE DETSHARE_DAEMON DETSHARE_LIB_DIR DETSHARE_SOCKET
said=$("$work/root/usr/bin/detsharectl" verify --standalone=soft --runs 1 --neighbours 1 -- "$program" 0) || {
  echo "FAILED: detsharectl verify ends with $? where it is installed"
  exit 1
}
echo "$said"
[[ $said == "equal: "* ]] || {
  echo "FAILED: detsharectl verify does not say that the bits are equal"
  exit 1
}
# The first program that people try.
"$work/root/usr/bin/detshare" run --standalone=soft -- "$work/root/usr/libexec/detshare/vector_add" |
  diff "$work/root/usr/share/doc/detshare-client/examples/vector_add.out" - || {
  echo "FAILED: the example prints something else than the packages say"
  exit 1
}
# What programs and other files cite is there.
cited=$(find "$work/root" -type f ! -path '*/doc/*' -exec grep -aohE 'docs/[a-z_]+\.md' {} + | sort -u)
[ -n "$cited" ] || {
  echo "FAILED: nothing cites a page"
  exit 1
}
for page in $cited; do
  [ -e "$work/root/usr/share/doc/detshare/$page" ] || {
    echo "FAILED: $page is cited, but no package has it"
    exit 1
  }
done
