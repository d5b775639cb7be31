#!/bin/sh
# Copies a generated page into the workspace's docs/. `bazel run PACKAGE:update_docs` runs it.
set -eu
page=$BUILD_WORKSPACE_DIRECTORY/docs/$(basename "$1")
cp -f "$1" "$page"
chmod 644 "$page"
