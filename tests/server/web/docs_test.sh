#!/bin/sh
# Checks that docs/metrics.md is the text that the table of metrics gives.
diff -u "$1" "$2" || {
  echo "FAILED: run bazel run //server/web:update_docs"
  exit 1
}
