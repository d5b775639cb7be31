#!/bin/bash
# The driver of fuzz targets: finds an input that fails, keeps it, and fails again with it alone.
set -euo pipefail
fuzzer=$1
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -r "$TMPDIR"' EXIT
seed=$TMPDIR/seed
printf 'some bytes' >"$seed"

fail() {
  echo "$*" >&2
  exit 1
}

"$fuzzer" "$seed" || fail "the seed itself is sound"

output=$("$fuzzer" --inputs=100000 "$seed" 2>&1) && fail "no input failed"
[[ $output == *"this must hold"* ]] || fail "the condition is missing: $output"
[[ $output =~ it\ is\ in\ ([^,]+), ]] || fail "the path is missing: $output"
found=${BASH_REMATCH[1]}
number=$(sed -n 's/^input \([0-9]*\) .*/\1/p' <<<"$output")

"$fuzzer" "$found" 2>/dev/null && fail "the input that was kept does not fail"

again=$("$fuzzer" --inputs=100000 "$seed" 2>&1) && fail "no input failed the second time"
[[ $again == *"input $number ended"* ]] || fail "another input failed the second time: $again"
[[ $again =~ it\ is\ in\ ([^,]+), ]] && cmp "$found" "${BASH_REMATCH[1]}"
