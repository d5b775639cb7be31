// Prints docs/metrics.md.
#include <iostream>

#include "server/web/metrics.h"

int main() {
  std::cout << R"(# Metrics

With `[metrics] listen` in the configuration (or `--metrics ADDRESS`) the daemon serves metrics for Prometheus at `/metrics`. It is off
unless an address is given, and takes loopback addresses and unix sockets only: whoever is to look from elsewhere comes through a proxy
that knows who may. This page is generated from the table that also makes the replies (`server/web/metrics.cc`) by
`bazel run //server/web:update_docs`.

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

A dashboard for Grafana is installed as `/usr/share/detshare/grafana/detshare.json`; the daemon's own is described in
[observing.md](observing.md#the-dashboard).

## How to read them

- **tenant**: at most 128 names, those of the configuration always among them; further ones are counted together as `(other)`. There are no labels
  for processes. What ended sessions did stays in the counts.
- **followed**: figures of the scheduler, which follows sessions operation by operation only while several share a device and the policy
  wants to know. A tenant that is alone adds nothing to them.
- **sampled**: seen by looking ten times a second while sessions are active, and only while metrics are on. Right over minutes, coarse over seconds.
- **estimated**: from the durations of operations that were measured when they ran alone.
- A histogram's buckets double from 16 us to 67 s.
- A daemon that begins anew after the loss of a device begins all counts anew, but for `detshare_device_losses_total`.

`/healthz` answers 200, or 503 while a lost device is being replaced; with strict isolation it is 200 as long as connections are accepted. Requests whose `Host` is not `localhost` or an address are refused,
except on a unix socket, so that no web page reaches the daemon through a name of its own.

## With strict isolation

With `isolation = "strict"` ([security.md](security.md)) each user's programs have a process of the daemon. The process that listens asks each of
them once a second and serves the sum at one address, in the same series as otherwise: one for each tenant, all of its users together. What is
shown is at most a second old, or four while some process does not answer.

- Counts never fall: what a process counted stays when it has ended. A process that ends by itself takes what it counted in its last second with it.
- A process that does not answer for three seconds shows no sessions, no memory and `detshare_user_process_up` 0, and is asked again every ten seconds;
  its counts stand still. The others' figures are not concerned. `detshare_user_process_timeouts_total` counts it.
- `user` is a label of the processes' own metrics only (at most 128 users, further ones are `(other)`). `process_*` are those of the process that listens.
- Users take turns on a device: SM time and busy time that several had at once are divided so that the sum is not more than there was.
- `detshare_device_memory_used_bytes` is what the processes see on the device, and 0 while no user's process runs; `detshare_policy_info` is the policy of
  one of them.

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
