#!/bin/sh
# docs/metrics.md is what the table of metrics says.
diff -u "$1" "$2" || {
  echo "FAILED: run bazel run //server/web:update_docs"
  exit 1
}
