# The beginning of programs that are beside this file in a bundle. Each runs its own daemon. Sourced.
#
#   own_options="rounds ..."    set before: variables that options of these names set (--rounds N)
#   begin_daemon PROGRAM "$@"   reads the options, finds PROGRAM and starts the daemon
#
# Afterwards these exist: $detshare and $detsharectl, which reach the daemon by `--socket
# "$folder/s"`; $program; $libraries, the folder of libcuda.so.1; $folder, for the programs' output
# (NAME.out, NAME.err); and fail TEXT, which ends everything. The processes in `programs` end with
# this one.
set -uo pipefail
if [ "${1:-}" = --help ]; then
  sed -n '2,/^[^#]/{/^[^#]/d;s/^# \{0,1\}//p}' "$0"
  exit 0
fi
own_options=
programs=()

fail() {
  echo "FAILED: $*"
  tail -n +1 "$folder"/*.out "$folder"/*.err 2>/dev/null
  grep -v 'begins\|ends:' "$folder/log" | tail -n 20
  exit 1
}

begin_daemon() {
  local name bundle= backend=cuda lib= option
  name=$(basename "$0")
  detshared= detshare= detsharectl= program=$1
  shift
  while [ $# -gt 0 ]; do
    option=${1#--}
    case $1 in
      --bundle | --backend) printf -v "$option" %s "$2" ;;
      # for our own tests, outside a bundle
      --parts) read -r detshared detshare detsharectl program lib <<<"$2" ;;
      --*) [[ " $own_options " == *" $option "* ]] || break; printf -v "$option" %s "$2" ;;
      *) break ;;
    esac
    shift 2
  done
  if [ -z "$detshared" ]; then
    [ -n "$bundle" ] || bundle=$(cd "$(dirname "$0")" && pwd)
    while [ "$bundle" != / ] && [ ! -x "$bundle/bin/detshare" ]; do bundle=$(dirname "$bundle"); done
    [ -x "$bundle/bin/detshare" ] || { echo "$name: no bundle with bin/detshare" >&2; exit 2; }
    detshared=$bundle/bin/detshared detshare=$bundle/bin/detshare detsharectl=$bundle/bin/detsharectl
    program=$bundle/tests/$program libraries=$bundle/lib/detshare
  else
    libraries=$lib
    export DETSHARE_LIB_DIR=$lib
  fi
  if [ "$backend" = cuda ] && ! [ -e /dev/nvidiactl ]; then
    echo "NO GPU ON THIS MACHINE: NOTHING WAS RUN, NOTHING IS PROVED"
    exit 0
  fi
  folder=$(mktemp -d "/dev/shm/detshare-$name-XXXXXX")
  "$detshared" --socket "$folder/s" --backend "$backend" "$@" 2>"$folder/log" &
  daemon=$!
  # SIGTERM would leave the daemon's engines.
  trap 'kill ${programs[@]+"${programs[@]}"} 2>/dev/null; kill -INT $daemon 2>/dev/null; wait; rm -rf "$folder"' EXIT
  until "$detsharectl" --socket "$folder/s" status >/dev/null 2>&1; do
    kill -0 $daemon || { cat "$folder/log"; exit 1; }
    sleep 0.05
  done
}
