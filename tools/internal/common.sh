# Sourced by the scripts in tools/. Makes the checkout the current folder and defines say, die and
# bazel.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# Bazel and the source cache need a HOME. Some CI systems set none, or one that cannot be written.
if [ -z "${HOME:-}" ] || ! mkdir -p "$HOME" 2>/dev/null || [ ! -w "$HOME" ]; then
  HOME=/tmp/detshare-home-$(id -u)
  export HOME
  mkdir -p "$HOME"
fi

# $DETSHARE_BAZEL_ROOT is the folder of Bazel's output; empty means Bazel's default.
bazel() {
  command bazel ${DETSHARE_BAZEL_ROOT:+"--output_user_root=$DETSHARE_BAZEL_ROOT"} "$@"
}
