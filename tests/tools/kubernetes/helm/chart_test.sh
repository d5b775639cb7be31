#!/bin/bash
# Checks that the plain manifests are those that the Helm chart makes from its defaults, that other
# values make other manifests, and that Kubernetes' API and the real programs accept all of them.
#
#   chart_test.sh CHECK RENDER.GO CHART.YAML MANIFESTS PODS DETSHARED DETSHARECTL PLUGIN
set -euo pipefail
check=$(realpath "$1") render=$(realpath "$2") chart=$(dirname "$(realpath "$3")") manifests=$(realpath "$4") pods=$(realpath "$5")
programs=("$(realpath "$6")" "$(realpath "$7")" "$(realpath "$8")")
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/chart.XXXXXX")
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}

for file in "$manifests" "$pods"; do
  "$check" "$file" "${programs[@]}" || fail "$(basename "$file")"
done

# Debian has no package of Helm. Helm's template language is Go's, and its functions are Sprig's.
if ! command -v go >/dev/null || [ ! -d /usr/share/gocode/src/github.com/Masterminds/sprig ] || [ ! -d /usr/share/gocode/src/sigs.k8s.io/yaml ]; then
  echo "NOT TESTED: the chart: this machine lacks golang-go, golang-github-masterminds-sprig-dev or golang-k8s-sigs-yaml-dev"
  exit $failed
fi
export GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=$work/cache HOME=$work
go build -o "$work/render" "$render"

"$work/render" "$chart" kube-system detshare >"$work/defaults.yaml" 2>"$work/notes"
grep -q 'detshare.io/gpu-share-latency: 2' "$work/notes" || fail "the notes do not say what is offered"
diff -u "$manifests" "$work/defaults.yaml" || fail "tools/kubernetes/manifests/detshare.yaml is not what the chart makes: run
  tools/kubernetes/update_manifests"

cat >"$work/values.yaml" <<'END'
image: {repository: registry.example/detshare, tag: "9"}
imagePullSecrets: [{name: secret}]
resources:
  - {name: chat, shares: 3, class: latency, weight: 1.5, exclusive: true, memory: 0, pinnedMemory: 4GiB, sloLatency: 5ms, sloTtft: 1s, sloTpot: 40ms}
plugin: {inject: cdi}
daemon: {enabled: false}
paths: {library: /usr/lib/x86_64-linux-gnu/detshare}
nodeSelector: {gpu: "yes"}
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
podAnnotations: {a/b: "c"}
END
"$work/render" "$chart" gpu-tools x "$work/values.yaml" >"$work/other.yaml" 2>/dev/null
"$check" "$work/other.yaml" "${programs[@]}" || fail "with other values"
grep -q -e '--resource=chat,shares=3,class=latency,weight=1.5,exclusive=on,memory=0,pinned-memory=4GiB,slo-latency=5ms,slo-ttft=1s,slo-tpot=40ms$' "$work/other.yaml" ||
  fail "a resource does not become a flag"
grep -q -e '--inject=cdi' "$work/other.yaml" || fail "plugin.inject"
! grep -q 'name: x-detshare-daemon' "$work/other.yaml" || fail "there is a daemon that nobody wants"
grep -q 'registry.example/detshare:9' "$work/other.yaml" || fail "the image"

printf 'resources: [{shares: 2}]\n' >"$work/wrong.yaml"
! "$work/render" "$chart" a b "$work/wrong.yaml" >/dev/null 2>&1 || fail "a resource without a name is taken"
exit $failed
