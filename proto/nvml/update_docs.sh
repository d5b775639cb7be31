#!/bin/sh
# Copies the generated page into the workspace. Run by `bazel run //proto/nvml:update_docs`.
set -eu
cp -f "$1" "$BUILD_WORKSPACE_DIRECTORY/docs/nvml_support.md"
chmod 644 "$BUILD_WORKSPACE_DIRECTORY/docs/nvml_support.md"
