#!/bin/sh
# docs/configuration.md is what the table of the configuration says.
diff -u "$1" "$2" || {
  echo "FAILED: run bazel run //policy/config:update_docs"
  exit 1
}
