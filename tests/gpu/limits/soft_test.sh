#!/bin/bash
# limits on a software GPU of 256 MiB.
#
#   soft_test.sh LIMITS DETSHARED DETSHARE DETSHARECTL PROGRAM LIBCUDA...
set -uo pipefail
parts=("$PWD/$2" "$PWD/$3" "$PWD/$4" "$PWD/$5" "$PWD/$(dirname "$6")")
output=$("$1" --parts "${parts[*]}" --backend soft --soft-memory 256MB)
code=$?
echo "$output"
[ $code = 0 ] && [ "$(tail -n 1 <<<"$output")" = ok ]
