#!/bin/bash
# Runs tools/setup on machines that lack something. dpkg-query, id and the machine's os-release are
# replaced, so it installs nothing.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"

# installed all|none: says which of the packages the replaced dpkg-query reports as installed.
installed() {
  {
    echo '#!/bin/bash'
    [ "$1" = none ] || echo 'for package in "$@"; do [[ $package == -* ]] || printf "installed:%s " "$package"; done'
  } >"$work/bin/dpkg-query"
  chmod 755 "$work/bin/dpkg-query"
}
printf '#!/bin/sh\necho 1000\n' >"$work/bin/id"
chmod 755 "$work/bin/id"

# refused SYSTEM VERSION: runs tools/setup on that system. Its messages go to $work/said.
refused() {
  printf 'ID=%s\nVERSION_ID="%s"\n' "$1" "$2" >"$work/os-release"
  if HOME="$work" CUDA_HOME="$cuda_home" OS_RELEASE="$work/os-release" PATH="$work/bin:$PATH" tools/setup 2>"$work/said"; then
    echo "tools/setup succeeded on $1 $2"
    exit 1
  fi
}

says() {
  grep -qF -e "$1" "$work/said" && return
  echo "tools/setup does not say: $1"
  echo "It says:"
  cat "$work/said"
  exit 1
}

cuda_home=$work/cuda
mkdir -p "$cuda_home"/{bin,include,lib64/stubs}
touch "$cuda_home"/{bin/nvcc,include/cuda.h,lib64/stubs/libcuda.so}

installed none
refused ubuntu 24.04
says "this machine runs 'ubuntu 24.04'"
says "bazel-bootstrap"
commands=0
while read -r command; do
  says "$command"
  commands=$((commands + 1))
done < <(sed -n 's/^#   \(docker .*\)/\1/p' Dockerfile)
[ "$commands" = 2 ] || { echo "the Dockerfile has $commands commands, not 2" && exit 1; }

refused debian 12
says "sudo apt-get update && sudo apt-get install --no-install-recommends bazel-bootstrap"

cuda_home=$work/none
refused debian 12
says "no CUDA Toolkit: $work/none/bin/nvcc is missing"

installed all
refused ubuntu 24.04
says "no CUDA Toolkit"
echo "1 passed, 0 failed"
