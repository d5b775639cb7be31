#!/bin/bash
# Runs a program of this folder on a software GPU and checks that its last line is `ok`.
#
#   soft_test.sh OPTIONS... -- PROGRAM SHOWN DETSHARED DETSHARE DETSHARECTL LIBCUDA...
#
# PROGRAM runs SHOWN.
set -uo pipefail
options=()
while [ "$1" != -- ]; do
  options+=("$1")
  shift
done
parts=("$PWD/$4" "$PWD/$5" "$PWD/$6" "$PWD/$3" "$PWD/$(dirname "$7")")
output=$("$2" --parts "${parts[*]}" --backend soft "${options[@]}")
code=$?
echo "$output"
[ $code = 0 ] && [ "$(tail -n 1 <<<"$output")" = ok ]
