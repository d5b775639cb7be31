#!/bin/bash
# Checks that the bundle has the files that it should have, and that none needs a newer C library
# than is promised.
#
#   bundle_test.sh BUNDLE PATH...
#
# BUNDLE is a tarball, or its unpacked folder.
set -euo pipefail

bundle=$1
shift
if [ -d "$bundle" ]; then
  cd "$bundle"
else
  folder=$(mktemp -d "${TEST_TMPDIR:-/tmp}/bundle.XXXXXX")
  tar -xzf "$bundle" -C "$folder"
  cd "$folder/detshare"
fi

failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}

for path in "$@"; do
  [ -e "$path" ] || fail "$path is not in the bundle"
done

while read -r file; do
  [ "$(head -c 4 "$file" | tr -d '\0')" = $'\x7fELF' ] || continue
  allowed='ld-linux-x86-64\.so\.2|lib(c|m|dl|pthread|rt)\.so\.[0-9]+'
  case $file in
    # Plain nvcc builds these, as users do, so they use the machine's C++ library.
    ./programs/*)
      allowed+='|libstdc\+\+\.so\.6|libgcc_s\.so\.1|libcuda\.so\.1'
      # CUDA's own libraries, from the toolkit where the program runs.
      allowed+='|lib(cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse|nvJitLink|nvrtc)\.so\.[0-9]+'
      ;;
    ./tests/within_limits | ./tests/foreign_memory | ./tests/leftovers | ./tests/memory_turns | ./tests/sleeping_server | ./tests/conditional_graphs) allowed+='|libcuda\.so\.1' ;;
    ./tests/nccl_check) allowed+='|libnccl\.so\.2' ;;
  esac
  needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE "^($allowed)$" || true)
  [ -z "$needed" ] || fail "$file needs" $needed
  newest=$(readelf -V "$file" | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -1)
  case $file in
    ./bin/* | ./lib/*) max=GLIBC_2.34 ;; # the version of RHEL 9 and Amazon Linux 2023
    *) max=GLIBC_2.36 ;;
  esac
  [ "$(printf '%s\n%s\n' "$newest" $max | sort -V | tail -1)" = $max ] || fail "$file needs $newest"
done < <(find -L . -type f)

exit $failed
