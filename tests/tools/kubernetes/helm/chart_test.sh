#!/bin/bash
# Checks that the plain manifests are those that the Helm chart makes from its defaults, that other
# values make other manifests, and that Kubernetes' API and the real programs accept all of them.
#
#   chart_test.sh CHECK RENDER.GO CHART.YAML DETSHARED DETSHARECTL PLUGIN DRA_DRIVER
set -euo pipefail
check=$(realpath "$1") render=$(realpath "$2") chart=$(dirname "$(realpath "$3")")
programs=("$(realpath "$4")" "$(realpath "$5")" "$(realpath "$6")" "$(realpath "$7")")
kubernetes=$chart/../..
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/chart.XXXXXX")
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}

for file in "$kubernetes"/manifests/*.yaml "$kubernetes"/examples/*.yaml; do
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
"$work/render" "$chart" kube-system detshare "$kubernetes/helm/claims.yaml" >"$work/claims.yaml" 2>"$work/notes"
grep -q 'gpu.detshare.io' "$work/notes" || fail "the notes do not say what claims name"
diff -u "$kubernetes/manifests/detshare.yaml" "$work/defaults.yaml" && diff -u "$kubernetes/manifests/detshare-claims.yaml" "$work/claims.yaml" ||
  fail "tools/kubernetes/manifests are not what the chart makes: run tools/kubernetes/update_manifests"

cat >"$work/values.yaml" <<'END'
image: {repository: registry.example/detshare, tag: "9"}
imagePullSecrets: [{name: secret}]
resources:
  - {name: chat, shares: 3, class: latency, weight: 1.5, exclusive: true, memory: 0, pinnedMemory: 4GiB, sloLatency: 5ms, sloTtft: 1s, sloTpot: 40ms}
plugin: {inject: cdi}
claims:
  enabled: true
  places: 60
  classes: [{name: batch.gpu.detshare.io, parameters: {class: batch, objectives: {tpot: 40ms}}}]
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
grep -q -e '--places=60' "$work/other.yaml" || fail "claims.places"
grep -A25 'name: batch.gpu.detshare.io' "$work/other.yaml" | grep -q 'kind: ClaimParameters' || fail "a class has no parameters"
! grep -q 'claims' "$work/defaults.yaml" || fail "there are claims that nobody wants"
! grep -q 'device-plugin' "$work/claims.yaml" || fail "there is a plugin that nobody wants"
grep -q 'registry.example/detshare:9' "$work/other.yaml" || fail "the image"

grep -q 'nodeSelectorTerms:' "$work/defaults.yaml" && grep -q 'nvidia.com/gpu.present' "$work/defaults.yaml" ||
  fail "the pods run on nodes without GPUs"
! grep -q 'nvidia.com/gpu.present' "$work/other.yaml" || fail "an affinity does not take the place of the default"
printf 'gpuNodesOnly: false\n' >"$work/everywhere.yaml"
! "$work/render" "$chart" a b "$work/everywhere.yaml" 2>/dev/null | grep -q affinity || fail "gpuNodesOnly"

! grep -q -e --metrics "$work/defaults.yaml" || fail "metrics are on by default"
cat >"$work/metrics.yaml" <<'END'
metrics: {enabled: true, tokenSecret: my-token, serviceMonitor: {enabled: true, labels: {release: prometheus}}}
END
"$work/render" "$chart" kube-system detshare "$work/metrics.yaml" >"$work/scraped.yaml" 2>/dev/null
"$check" "$work/scraped.yaml" "${programs[@]}" || fail "with metrics"
grep -q 'kind: ServiceMonitor' "$work/scraped.yaml" && grep -q 'secretName: my-token' "$work/scraped.yaml" || fail "metrics"
printf 'metrics: {enabled: true}\n' >"$work/metrics.yaml"
! "$work/render" "$chart" a b "$work/metrics.yaml" 2>/dev/null | grep -q ServiceMonitor || fail "a monitor that nobody wants"

printf 'resources: [{shares: 2}]\n' >"$work/wrong.yaml"
! "$work/render" "$chart" a b "$work/wrong.yaml" >/dev/null 2>&1 || fail "a resource without a name is taken"
exit $failed
