#!/bin/sh
# Copies the generated page into the workspace. Run by `bazel run //server/web:update_docs`.
set -eu
cp -f "$1" "$BUILD_WORKSPACE_DIRECTORY/docs/metrics.md"
chmod 644 "$BUILD_WORKSPACE_DIRECTORY/docs/metrics.md"
