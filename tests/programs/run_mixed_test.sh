#!/bin/bash
# run_mixed counts each way in which a program can fail. The programs here are scripts.
#   run_mixed_test.sh RUN_MIXED DETSHARED DETSHARE DETSHARECTL LIBRARY...
set -uo pipefail

run_mixed=$1 bundle=$TEST_TMPDIR/bundle
mkdir -p "$bundle/bin" "$bundle/lib/detshare" "$bundle/programs"
ln -s "$PWD/$2" "$bundle/bin/detshared"
ln -s "$PWD/$3" "$bundle/bin/detshare"
ln -s "$PWD/$4" "$bundle/bin/detsharectl"

program() { # NAME TAGS, and the script on stdin
  { echo '#!/bin/bash'; cat; } >"$bundle/programs/$1"
  chmod +x "$bundle/programs/$1"
  echo "$1 $2" >>"$bundle/programs/programs.txt"
}
program good - <<<'echo the same'
program varies printf <<<'echo $RANDOM $RANDOM'
program ends - <<<'echo before; exit 3'
program stays - <<<'sleep 100'
program whole alone <<<'exit 9'

failed=0
check() { # WHAT, the arguments of run_mixed, `--` and patterns of its output
  local what=$1 options=() output
  shift
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  output=$("$run_mixed" --bundle "$bundle" --daemon '--backend soft --isolation none' --seconds 100 --jobs 2 "${options[@]}" 2>&1)
  for pattern in "$@"; do
    if ! grep -qE -- "$pattern" <<<"$output"; then
      echo "$what: no line matches $pattern in"
      echo "$output"
      failed=1
    fi
  done
}

check "programs that print the same pass" --only good --runs 6 -- '^good +6 +0 +0 ' '^6 passed, 0 failed$'
check "other output fails" --only varies --runs 3 -- 'varies: prints something else than before' '^1 passed, 2 failed$'
check "an error fails, and its output is shown" --only ends --runs 1 -- 'ends: exit code 3' '^ +before$' '^0 passed, 1 failed$'
check "a program that hangs fails" --only stays --runs 1 --timeout 1 -- 'stays: hangs' '^0 passed, 1 failed$'
check "a killed program neither passes nor fails" --only stays --runs 2 --kill 1 -- '^stays +0 +0 +2 ' '^0 passed, 0 failed$'
check "programs with a tag are left out" --without printf,stays,ends --runs 4 -- '^good +4 ' '^4 passed, 0 failed$'
check "an unknown program is an error" --only nothing -- 'no program nothing'
exit $failed
