#!/bin/sh
# Copies a generated page into the workspace: what `bazel run PACKAGE:update_docs` does.
set -eu
page=$BUILD_WORKSPACE_DIRECTORY/docs/$(basename "$1")
cp -f "$1" "$page"
chmod 644 "$page"
