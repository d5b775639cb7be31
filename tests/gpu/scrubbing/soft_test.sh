#!/bin/bash
# scrubbing on a software GPU of 64 MiB.
#
#   soft_test.sh SCRUBBING DETSHARED DETSHARE DETSHARECTL PROGRAM LIBCUDA...
set -uo pipefail
parts=("$PWD/$2" "$PWD/$3" "$PWD/$4" "$PWD/$5" "$PWD/$(dirname "$6")")
output=$("$1" --parts "${parts[*]}" --backend soft --rounds 2 --soft-memory 64MB)
code=$?
echo "$output"
[ $code = 0 ] && [ "$(tail -n 1 <<<"$output")" = ok ]
