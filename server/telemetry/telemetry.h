// What NVML tells a tenant (proto/telemetry.proto): its devices and their memory, its processes,
// how busy it keeps a device, and what the host's own NVML says of the cards.
//
// One thread does everything, since the host's NVML may take milliseconds. How busy a tenant is, is
// sampled from the first question about it until some seconds after the last one; otherwise the
// thread sleeps and nothing is measured.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "coroutine_runtime/host_telemetry.h"
#include "proto/telemetry.pb.h"
#include "server/access/acceptor.h"
#include "server/telemetry/busy_sampler.h"
#include "server/telemetry/host_query_cache.h"
#include "server/access/identity.h"
#include "server/sessions/session_manager.h"

namespace detshare {

class Telemetry {
 public:
  // `host` may be null. The manager outlives it.
  Telemetry(SessionManager& manager, std::shared_ptr<HostTelemetry> host, const Identity& identity);
  // Questions that are not answered yet are answered with NVML_ERROR_UNKNOWN.
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  // Any thread. `request` stays valid until `done` is called, once, on some thread.
  using Done = std::function<void(proto::TelemetryReply)>;
  void Reply(const Peer& peer, const proto::TelemetryRequest& request, Done done);

 private:
  using Clock = std::chrono::steady_clock;
  struct Question {
    Peer peer;
    const proto::TelemetryRequest* request = nullptr;
    Done done;
  };

  void Run();
  void Sample();
  // The rest of a second's samples come later: a reply must not be the accident of one moment.
  bool EnoughSamples() const;
  proto::TelemetryReply Reply(const Peer& peer, const proto::TelemetryRequest& request);

  SessionManager& manager_;
  HostQueryCache host_;
  const Identity& identity_;

  // Of the thread.
  BusySampler sampler_;
  bool sampling_ = false;
  Clock::time_point next_sample_, sample_until_;
  std::vector<Question> waiting_;  // for samples

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> questions_;  // guarded by mutex_
  bool stop_ = false;               // guarded by mutex_
  std::thread thread_;
};

}  // namespace detshare
