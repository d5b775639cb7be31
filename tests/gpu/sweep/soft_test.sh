#!/bin/bash
# Runs all families of random_calls on a software GPU, each twice, also with calls in host functions.
# The lines of both runs must be the same, each run must come to its end, and each family must print
# lines.
#
#   soft_test.sh COMPARE_CALLS RANDOM_CALLS DETSHARED DETSHARE LIBCUDA...
set -uo pipefail
export DETSHARE_DAEMON=$PWD/$3
export DETSHARE_LIB_DIR=$PWD/$(dirname "$5")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
soft="$PWD/$4 run --standalone=soft --"
for where in --in-host-functions ""; do
  "$1" --program "$PWD/$2" --native "$soft" --shim "$soft" --seeds 1 --jobs 2 --keep "$folder" --timeout 300 $where ||
    exit 1
done
families=$($soft "$PWD/$2" --families)
[ "$(wc -l <<<"$families")" -ge 30 ] || { echo "there are too few families: $families"; exit 1; }
for family in $families; do
  count=$(grep -c "^$family .*(.*) = " "$folder/native/$family.1.out")
  [ "$count" -ge 10 ] || { echo "family $family has only $count calls"; exit 1; }
done
