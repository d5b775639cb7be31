// Prints docs/metrics.md.
#include <iostream>

#include "server/web/metrics.h"

int main() {
  std::cout << R"(# Metrics

With `[metrics] listen` in the configuration (or `--metrics ADDRESS`) the daemon serves metrics for Prometheus at `/metrics`. It is off
unless an address is given, and takes loopback addresses and unix sockets only: whoever is to look from elsewhere comes through a proxy
that knows who may. This page is generated from the table that also makes the answers (`server/web/metrics.cc`) by
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

With `isolation = "strict"` ([security.md](security.md)) there are none: each user has a daemon of its own, and no process sees all. The log says so.

`/healthz` answers 200, or 503 while a lost device is being replaced. Requests whose `Host` is not `localhost` or an address are refused,
except on a unix socket, so that no web page reaches the daemon through a name of its own.

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
