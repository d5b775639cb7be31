# Sourced by the scripts in tools/: the checkout as the current folder, and Bazel with a place to work in.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# CI systems run with a HOME that is missing or cannot be written; Bazel and the source cache want one.
if [ -z "${HOME:-}" ] || ! mkdir -p "$HOME" 2>/dev/null || [ ! -w "$HOME" ]; then
  HOME=/tmp/detshare-home-$(id -u)
  export HOME
  mkdir -p "$HOME"
fi

# DETSHARE_BAZEL_ROOT: where Bazel keeps its output, if not in its usual place.
bazel() {
  command bazel ${DETSHARE_BAZEL_ROOT:+"--output_user_root=$DETSHARE_BAZEL_ROOT"} "$@"
}
