#!/bin/bash
# Runs a CUDA program in a container with its own namespaces and root: no driver, no GPU node, no
# /dev/shm, no network. The only thing from the host is one bind mount, the directory of the
# daemon's socket.
#
#   container_test.sh DETSHARED DETSHARECTL PROGRAM EXPECTED LIBCUDA...
#
# The last LIBCUDA is libcuda.so.1.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin # pivot_root

for ((i = 1; i <= $#; i++)); do files[i]=$(realpath "${!i}"); done
detshared=${files[1]} detsharectl=${files[2]} program=${files[3]} expected=${files[4]} shim=${files[$#]}

spaces=(--user --map-root-user --mount --pid --ipc --net --uts --fork --kill-child)
if ! unshare "${spaces[@]}" mount -t tmpfs tmpfs /mnt 2>/dev/null; then
  echo "NOT TESTED: no namespaces can be made here"
  exit 0
fi

# The image: the system's libraries, the client package and the program.
image=$(mktemp -d /tmp/detshare-image.XXXXXX)
host=$(mktemp -d /dev/shm/detshare-container.XXXXXX)
daemon=
finish() {
  [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
  wait
  rm -rf "$image" "$host"
}
trap finish EXIT
mkdir -p "$image"/{usr,proc,dev,tmp,run/detshare,opt/detshare,app}
for link in bin lib lib64; do [ ! -L "/$link" ] || ln -s "usr/$link" "$image/$link"; done
cp -L "$shim" "$image/opt/detshare/libcuda.so.1"
cp -L "$program" "$image/app/program"
for node in null zero urandom; do : >"$image/dev/$node"; done

"$detshared" --socket "$host/detshared.sock" --backend=soft --soft-memory=256MiB --soft-threads=2 2>"$image/tmp/log" &
daemon=$!
for ((i = 0; i < 600; i++)); do [ -S "$host/detshared.sock" ] && break || sleep 0.1; done

cat >"$image/start" <<'END'
#!/bin/sh
# In the container: checks what must not exist there, then runs the program.
for path in /dev/nvidia* /dev/shm /proc/driver/nvidia; do
  if [ -e "$path" ]; then
    echo "$path is here"
    exit 1
  fi
done
[ "$$" -lt 10 ] || exit 1
exec env LD_LIBRARY_PATH=/opt/detshare /app/program
END
chmod 755 "$image/start"

cat >"$image/enter" <<END
set -e
mount --bind "$image" "$image"
mount --rbind /usr "$image/usr"
for node in null zero urandom; do mount --bind /dev/\$node "$image/dev/\$node"; done
mount --bind "$host" "$image/run/detshare"
mount -t proc proc "$image/proc"
# As container runtimes do: the old root is unmounted, not only hidden.
cd "$image"
mkdir old
pivot_root . old
umount -l /old
exec /start
END

status=0
unshare "${spaces[@]}" /bin/sh "$image/enter" >"$image/tmp/out" 2>"$image/tmp/err" </dev/null || status=$?
if [ $status != 0 ] || ! diff -u "$expected" "$image/tmp/out"; then
  echo "FAILED: exit code $status"
  cat "$image/tmp/err" "$image/tmp/log"
  exit 1
fi
# The daemon must have ended the session.
for ((i = 0; i < 600; i++)); do
  left=$("$detsharectl" --socket "$host/detshared.sock" status --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["sessions"]))')
  [ "$left" = 0 ] && exit 0
  sleep 0.1
done
echo "FAILED: the session is still there"
exit 1
