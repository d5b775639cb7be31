#!/bin/bash
# Runs a real JupyterHub with the configurations of docs/serving/jupyterhub.md, and two users whose
# notebooks want more memory together than the GPU has. An idle notebook's memory must leave the card
# for the other, and come back with its contents. Needs root and Debian's JupyterHub; a minute. Not
# part of ./tools/test:
#
#   apt-get install --no-install-recommends jupyterhub python3-ipykernel iproute2
#   bazel test //tests/packaging:jupyterhub_test
#
#   jupyterhub_test.sh CLIENT.PY PAGE DETSHARED DETSHARE DETSHARECTL LIBCUDA...
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
skip() {
  echo "NOT TESTED: $*"
  exit 0
}
[ "$(id -u)" = 0 ] || skip "only root can start processes of other users"
for program in jupyterhub configurable-http-proxy ip; do
  command -v "$program" >/dev/null || skip "this machine has no $program: apt-get install --no-install-recommends jupyterhub python3-ipykernel iproute2"
done

# Everything runs in namespaces with users, ports and a /run of its own.
if [ -z "${DETSHARE_JUPYTERHUB_TEST:-}" ]; then
  DETSHARE_JUPYTERHUB_TEST=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc -- "$0" "$@"
fi
client=$(realpath "$1") page=$(realpath "$2")
work=$(mktemp -d /tmp/detshare-jupyterhub.XXXXXX)
chmod 755 "$work"
trap 'rm -rf --one-file-system "$work"' EXIT
die() {
  echo "FAILED: $*"
  tail -n 30 "$work"/log/* 2>/dev/null
  exit 1
}
ip link set lo up
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p "$work"/{bin,lib,hub,log,home/alice,home/bob} /run/detshare
cp -L "$3" "$work/bin/detshared"
cp -L "$4" "$work/bin/detshare"
cp -L "$5" "$work/bin/detsharectl"
for library in "${@:6}"; do cp -L "$library" "$work/lib/"; done
cp /etc/passwd "$work/passwd"
cp /etc/group "$work/group"
id=54321
for user in alice bob; do
  echo "$user:x:$id:$id::$work/home/$user:/bin/sh" >>"$work/passwd"
  echo "$user:x:$id:" >>"$work/group"
  chown "$id:$id" "$work/home/$user"
  id=$((id + 1))
done
mount --bind "$work/passwd" /etc/passwd
mount --bind "$work/group" /etc/group
# Where Debian's packages have modules for node, which may be another node than Debian's.
export PATH=$work/bin:$PATH DETSHARE_LIB_DIR=$work/lib NODE_PATH=/usr/share/nodejs

"$work/bin/detshared" --backend=soft --soft-memory=64MiB --soft-threads=1 --swap-memory=512MiB --socket-mode=666 2>"$work/log/detshared" &
for _ in $(seq 600); do detsharectl status >/dev/null 2>&1 && break || sleep 0.1; done

# hub NUMBER TENANT_OF_ALICE TENANT_OF_BOB: runs the notebooks with the page's configuration of this number.
hub() {
  rm -rf "$work"/hub/*
  python3 - "$page" "$1" >"$work/hub/config.py" <<'END'
import re
import sys

with open(sys.argv[1], encoding="utf-8") as page:
    blocks = re.findall(r"^```python\n(# jupyterhub_config.py\n.*?)^```$", page.read(), re.MULTILINE | re.DOTALL)
print(blocks[int(sys.argv[2])])
END
  # The limit of the page is for a larger GPU.
  sed -i 's/20GiB/48MiB/' "$work/hub/config.py"
  [ "$1" = 0 ] || cat "$(dirname "$client")/jupyterhub_containers.py" >>"$work/hub/config.py"
  cat >>"$work/hub/config.py" <<'END'
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.bind_url = "http://127.0.0.1:8000"
c.JupyterHub.services = [{"name": "test", "api_token": "a-token-of-this-test"}]
c.JupyterHub.load_roles = [{"name": "test", "scopes": ["admin:users", "admin:servers", "access:servers"], "services": ["test"]}]
c.Authenticator.admin_users = set()
c.Spawner.env_keep = ["PATH", "LANG", "LC_ALL", "DETSHARE_LIB_DIR"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 300
c.Spawner.default_url = "/tree"
END
  (cd "$work/hub" && exec jupyterhub -f config.py >"$work/log/hub$1" 2>&1) &
  local hub=$!
  python3 "$client" "${@:2}" || die "the notebooks with configuration $1"
  kill -TERM $hub
  wait $hub || true
}

# With users of the host, a user is the tenant.
hub 0 alice bob
# With containers, the endpoint is.
hub 1 "jupyter-[0-9]-alice" "jupyter-[0-9]-bob"
detsharectl endpoint list | grep -q 'There are no endpoints' || die "endpoints are left: $(detsharectl endpoint list)"
detsharectl sessions | grep -q 'No sessions' || die "sessions are left: $(detsharectl sessions)"
grep -m 6 'device memory' "$work/log/detshared"
echo ok
