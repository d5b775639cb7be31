#!/bin/sh
# Copies the generated page into the workspace. Run by `bazel run //proto/driver_api:update_docs`.
set -eu
cp -f "$1" "$BUILD_WORKSPACE_DIRECTORY/docs/cuda_support.md"
chmod 644 "$BUILD_WORKSPACE_DIRECTORY/docs/cuda_support.md"
