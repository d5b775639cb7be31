#!/bin/bash
# Runs a CUDA program in containers of podman, with a daemon and two endpoints with a limit of memory
# each. The image is an older Debian. As root, with `--device detshare.io/gpu=TENANT` and nothing else,
# and with the example for compose. As an ordinary user (rootless), with the user's own rights; an
# endpoint is refused. Needs root, podman, runc and Debian's mirror; a minute, and the download. Not part
# of ./tools/test:
#
#   apt-get install podman runc uidmap podman-compose debootstrap
#   bazel test //tests/packaging:podman_test [--test_env=RELEASE=bullseye]
#
#   podman_test.sh DETSHARED DETSHARECTL COMPOSE-FILE PROGRAM LIBNVIDIA-ML... LIBCUDA
#
# If $DETSHARE_BASE_SYSTEM is set, the image is that folder, and nothing is downloaded.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin HOME=${HOME:-/root}
release=${RELEASE:-bullseye}
for ((i = 1; i <= $#; i++)); do files[i]=$(realpath "${!i}"); done
detshared=${files[1]} ctl=${files[2]} compose=${files[3]} program=${files[4]} nvml=${files[5]} shim=${files[$#]}

root=$(mktemp -d /tmp/detshare-podman.XXXXXX)
host=$(mktemp -d /dev/shm/detshare-podman.XXXXXX)
user=detshare-podman
daemon=
# All that podman keeps is below $root. Its default limits need rights that this host may not give.
limit=$(ulimit -Hn)
limits=(--ulimit "nofile=$limit:$limit" --ulimit nproc=1000:1000)
engine=(podman --root "$root/storage" --runroot "$root/run" --runtime runc --cgroup-manager=cgroupfs)
finish() {
  rm -f /etc/cdi/detshare-test.json
  [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
  wait
  "${engine[@]}" rmi --all --force >/dev/null 2>&1 || true
  if id "$user" >/dev/null 2>&1; then
    as_user podman rmi --all --force >/dev/null 2>&1 || true
    as_user podman unshare rm -rf "$root/home/storage" 2>/dev/null || true
    # The process that holds the user's namespaces.
    kill "$(cat "$root/home/run/libpod/tmp/pause.pid" 2>/dev/null)" 2>/dev/null && sleep 1 || true
    sed -i "/^$user:/d" /etc/subuid /etc/subgid
    userdel "$user"
  fi
  rm -rf --one-file-system "$root" "$host"
}
trap finish EXIT
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}
as_user() { (cd / && exec runuser -u "$user" -- env HOME="$root/home" XDG_RUNTIME_DIR="$root/home/run" "$@"); }

if [ -n "${DETSHARE_BASE_SYSTEM:-}" ]; then
  cp -a "$DETSHARE_BASE_SYSTEM" "$root/image"
else
  debootstrap --variant=minbase "$release" "$root/image" >"$root/log" 2>&1 || { tail -n 5 "$root/log" && exit 1; }
fi
mkdir "$root/image/app" "$root/libraries"
cp -L "$program" "$root/image/app/program"
tar -C "$root/image" -cf "$root/image.tar" .
"${engine[@]}" import "$root/image.tar" old-system >/dev/null
cp -L "$shim" "$root/libraries/libcuda.so.1"
cp -L "$nvml" "$root/libraries/libnvidia-ml.so.1"
chmod 755 "$root" "$host"

# Every user may connect here: runc takes the groups from rootless containers.
export DETSHARE_SOCKET=$host/detshared.sock
"$detshared" --socket "$DETSHARE_SOCKET" --socket-mode 0666 --backend=soft --soft-memory=256MiB --soft-threads=2 2>"$host/log" &
daemon=$!
for ((i = 0; i < 600; i++)); do [ -S "$DETSHARE_SOCKET" ] && break || sleep 0.1; done
for endpoint in alice serve train; do "$ctl" endpoint open "$endpoint" --memory 64MiB >/dev/null; done
"$ctl" endpoint open bob --memory 4KiB >/dev/null
mkdir -p /etc/cdi
"$ctl" cdi --libraries "$root/libraries" generate >/etc/cdi/detshare-test.json

# ---- as root
run() { "${engine[@]}" run --rm --network none "${limits[@]}" "$@" old-system /app/program; }
run --device detshare.io/gpu=alice >"$host/alice" 2>&1 || fail "alice: $(cat "$host/alice")"
echo "alice: $(tail -n 1 "$host/alice")"
# Limits hold: bob may have less than the program needs.
if run --device detshare.io/gpu=bob >"$host/bob" 2>&1; then fail "bob got more memory than the limit"; fi
grep -q 'tenant bob' "$host/bob" || fail "bob does not learn why: $(cat "$host/bob")"
echo "bob: $(grep 'tenant bob' "$host/bob" | head -n 1)"
if run >"$host/nobody" 2>&1; then fail "without a device the program runs"; fi

# ---- the example for compose
if command -v podman-compose >/dev/null; then
  mkdir "$root/compose"
  cp -L "$compose" "$root/compose/compose.yaml"
  # This host may have no networks for containers, and the test needs none.
  cat >"$root/podman" <<END
#!/bin/bash
[ "\$1" != network ] || exit 0
arguments=("\$1")
[ "\$1" != create ] || arguments+=(--network none ${limits[*]})
while shift && [ \$# -gt 0 ]; do
  case \$1 in
    --net | --network-alias) shift ;;
    *) arguments+=("\$1") ;;
  esac
done
exec ${engine[*]} "\${arguments[@]}"
END
  chmod 755 "$root/podman"
  (cd "$root/compose" && export IMAGE=localhost/old-system PROGRAM=$root/image/app/program &&
    timeout 120 podman-compose --podman-path "$root/podman" up) >"$host/compose" 2>&1 || true
  [ "$(grep -cE '(^|[| ])ok$' "$host/compose")" = 2 ] || fail "the example for compose: $(cat "$host/compose")"
  echo "compose: $(grep -cE '(^|[| ])ok$' "$host/compose") containers say ok"
else
  echo "NOT TESTED: this machine has no podman-compose"
fi

# ---- rootless
if command -v newuidmap >/dev/null; then
  useradd --no-create-home --home-dir "$root/home" "$user"
  echo "$user:2000000:65536" | tee -a /etc/subuid >>/etc/subgid
  mkdir -p "$root/home/run" && chown -R "$user": "$root/home" && chmod 700 "$root/home/run"
  chmod 644 "$root/image.tar"
  rootless=(podman --root "$root/home/storage" --runroot "$root/home/run/podman" --runtime runc --cgroup-manager=cgroupfs)
  as_user "${rootless[@]}" import "$root/image.tar" old-system >/dev/null 2>&1
  run_rootless() { as_user "${rootless[@]}" run --rm --network none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 "$@" old-system /app/program; }
  # The container has the rights of its user on the host, and is the user's tenant.
  run_rootless -v "$host:/run/detshare" -v "$root/libraries/libcuda.so.1:/usr/lib/x86_64-linux-gnu/libcuda.so.1:ro" >"$host/own" 2>&1 ||
    fail "rootless: $(cat "$host/own")"
  grep -q "tenant $user, " "$host/log" || fail "rootless: the container is another tenant than its user"
  echo "rootless: $(tail -n 1 "$host/own")"
  # Who may mount an endpoint is its tenant, and that is root's to decide.
  if run_rootless --device detshare.io/gpu=alice >"$host/refused" 2>&1; then fail "rootless: a user got an endpoint without leave"; fi
  grep -qi 'permission denied' "$host/refused" || fail "rootless, with an endpoint: $(cat "$host/refused")"
  echo "rootless, with an endpoint: $(tail -n 1 "$host/refused")"
else
  echo "NOT TESTED: this machine has no newuidmap (package uidmap)"
fi
exit $failed
