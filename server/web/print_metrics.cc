// Prints docs/metrics.md.
#include <iostream>

#include "server/web/metrics.h"

int main() {
  std::cout << R"(# Metrics

The daemon serves metrics for Prometheus at `/metrics` if the configuration has an address in
`[metrics] listen` (or the command line has `--metrics ADDRESS`). This page is generated from the
table that also makes the replies (`server/web/metrics.cc`) by `bazel run //server/web:update_docs`.

```toml
[metrics]
listen = "127.0.0.1:9464"   # or "/run/detshare/metrics.sock"
```

```yaml
# prometheus.yml
scrape_configs:
  - job_name: detshare
    static_configs: [{targets: ["localhost:9464"]}]
```

A dashboard for Grafana is installed as `/usr/share/detshare/grafana/detshare.json`. For the
daemon's own dashboard see [observing.md](observing.md#the-dashboard).

## Let other machines scrape

An address that other machines reach needs a bearer token. Without one the daemon does not start.

```
openssl rand -hex 32 | install -m 600 /dev/stdin /etc/detshare/metrics-token
systemctl edit detshared     # [Service] IPAddressAllow=10.0.0.0/8: the network of your Prometheus
```

```toml
[metrics]
listen = "0.0.0.0:9464"
token_file = "/etc/detshare/metrics-token"
```

```yaml
# prometheus.yml
scrape_configs:
  - job_name: detshare
    authorization: {credentials_file: /etc/prometheus/detshare-token}
    static_configs: [{targets: ["gpu1:9464"]}]
```

- Every request needs the header `Authorization: Bearer TOKEN`, also `/healthz` and the dashboard.
  Others get status 401. The daemon reads the file for each request, so a new token needs no
  restart.
- The token and the figures cross the network as plain text. Where others can read your network,
  keep the address at loopback, and put a proxy with TLS before it.
- A browser does not send the token. For the dashboard use a loopback address and `ssh -L`.

For a cluster see [kubernetes.md](kubernetes.md#let-prometheus-scrape-the-nodes).

## Whose the tenants are

`detshare_tenant_owner_info` has the pod, or the user and job, that a tenant's endpoint is for
([observing.md](observing.md#see-whose-work-it-is)). Its labels `namespace`, `pod` and `container`
are those of kube-state-metrics. Set `honor_labels: true` in the scrape configuration: else
Prometheus renames them, because the daemon's own pod has labels of these names. This query has the
SMs in use by a label of the pods:

```
sum by (namespace, label_app) (
  rate(detshare_tenant_sm_seconds_total[5m])
    * on (instance, tenant) group_left (namespace, pod) detshare_tenant_owner_info
    * on (namespace, pod) group_left (label_app) kube_pod_labels)
```

If a tenant has several endpoints, labels in which they differ are empty.

## Rules and alerts

`/usr/share/detshare/prometheus/detshare.rules.yml` has recording rules, and alerts about late
tokens, throttled latency tenants, faults, memory near a limit, lost GPUs, and daemons that do not
reply. Name it in `rule_files` of your `prometheus.yml`, and give the job a name with `detshare` in
it. To test the rules with `promtool`, and a real Prometheus against a real daemon:

```
apt-get install --no-install-recommends prometheus
bazel test //tests/packaging:prometheus_test
```

## How to read them

- **tenant**: at most 128 names, the configured ones always among them. A further tenant gets the
  place of the tenant that has had no session for the longest time, if that is at least ten minutes;
  the series of that tenant end. If there is no such tenant, the further one is counted with others
  as `(other)`, until its last session ends. So no counter falls, and `(other)` never takes over what
  had a name.
- **rates**: a tenant that comes back later begins at 0, which Prometheus takes for a restart. Add up
  rates, `sum(rate(...))`, and not totals. The counts include the work of sessions that have ended. There
  are no labels for processes.
- **followed**: figures of the scheduler. It follows sessions operation by operation only while
  several share a device and the policy needs it. A tenant that is alone adds nothing to them.
- **sampled**: ten samples a second while sessions are active, and only while metrics are on. Such
  figures are right over minutes and coarse over seconds.
- **estimated**: from the durations of operations that were measured when they ran alone.
- A histogram's buckets double from 16 us to 67 s.
- A daemon that restarts after the loss of a device begins all counts at 0, except
  `detshare_device_losses_total`.

`/healthz` returns 200, or 503 while a lost device is being replaced. With several engines it
returns 200 as long as the daemon accepts connections. The daemon refuses requests whose `Host` is
neither `localhost` nor an IP address, or names another port, except on a unix socket or with a
token. So no web page can reach the daemon through a domain name of its own. To forward the port,
keep its number: `ssh -L 9464:localhost:9464 HOST`. Beyond 64 connections, the daemon closes the
slowest one for each further connection.

## With several engines

With `isolation` other than `none` ([security.md](security.md)) each isolation group has an engine.
The supervisor asks each engine once a second and serves the sum at one address. The series are the
same as with `none`: one for each tenant, over all engines. The figures are at most one second old,
or four seconds while an engine does not reply.

- Counts never fall: the counts of an engine stay when it has ended. If an engine ends by itself,
  its counts of the last second are lost.
- An engine that does not reply for three seconds shows no sessions, no memory and
  `detshare_engine_up` 0. It is asked again every ten seconds, and its counts stand still meanwhile.
  Figures of other engines are not affected. `detshare_engine_timeouts_total` counts these cases.
- `group` is a label of the engines' own metrics only (at most 128 groups; further ones are
  `(other)`). `process_*` are metrics of the supervisor.
- Engines take turns on a device. SM time and busy time that several engines had at once are divided
  among them, so the sum does not exceed the time of the device.
- `detshare_device_memory_used_bytes` is the memory in use as the engines see it, and 0 while no
  engine runs. `detshare_policy_info` is the policy of one of them.

## Metrics

| name | type | labels | what it is |
|---|---|---|---|
)";
  for (const detshare::Metric& metric : detshare::AllMetrics()) {
    std::string labels;
    for (const char c : metric.labels) labels += c == ',' ? std::string("`, `") : std::string(1, c);
    if (!labels.empty()) labels = "`" + labels + "`";
    std::cout << "| `" << metric.name << "` | " << detshare::NameOf(metric.type) << " | " << labels
              << " | " << metric.help << " |\n";
  }
  return std::cout.flush() ? 0 : 1;
}
