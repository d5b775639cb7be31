#!/bin/bash
# The programs of the packages find each other where the packages put them.
#
#   unpacked_test.sh MAKE_PACKAGES PROGRAM BUILT...
#
# Unpacks the packages into a folder, which needs neither root nor a network. BUILT are the files from
# which the packages are made.
set -euo pipefail
make_packages=$(realpath "$1") program=$(realpath "$2")
shift 2
work=$(mktemp -d /tmp/detshare-unpacked.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{built/bin,built/lib/detshare,built/examples,packages,root}
for file in "$@"; do
  case $(basename "$file") in
    *.so.1 | slurm_detshare.so) to=lib/detshare/ ;;
    vector_add* | check.h) to=examples/ ;;
    detshare.toml | detshare.toml.5) to= ;;
    *) to=bin/ ;;
  esac
  cp -L "$file" "$work/built/$to"
done
chmod 755 "$work"/built/bin/*
"$make_packages" "$work/built" "$work/packages" 0.2.0
for package in "$work"/packages/*.deb; do
  dpkg-deb --extract "$package" "$work/root"
done
rm -r "$work/built"
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
