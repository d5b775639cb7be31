// Replies to what NVML asks on behalf of a tenant (proto/telemetry.proto): its devices and their
// memory, its processes, how busy it keeps a device, and what the host's own NVML says about the
// cards.
//
// One thread does everything, because the host's NVML may take milliseconds. The thread samples how
// busy tenants are from the first question about it until some seconds after the last one.
// Otherwise it sleeps.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "coroutine_runtime/host_telemetry.h"
#include "proto/mutex.h"
#include "proto/telemetry.pb.h"
#include "server/access/peer_table.h"
#include "server/sessions/session_manager.h"
#include "server/telemetry/busy_sampler.h"
#include "server/telemetry/host_query_cache.h"

namespace detshare {

class Telemetry {
 public:
  // `host` may be null. `manager` outlives this object.
  Telemetry(SessionManager& manager, std::shared_ptr<HostTelemetry> host);
  // Replies with NVML_ERROR_UNKNOWN to questions that are still open.
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  // Starts a reply. `request` stays valid until `done` is called, once, on some thread. Any thread
  // may call Reply().
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
  // Returns whether there are enough samples for a reply, so that it does not depend on one moment.
  // The rest of a second's samples come later.
  bool EnoughSamples() const;
  proto::TelemetryReply Reply(const Peer& peer, const proto::TelemetryRequest& request);

  SessionManager& manager_;
  HostQueryCache host_;

  // Used by thread_ only.
  BusySampler sampler_;
  bool sampling_ = false;
  Clock::time_point next_sample_, sample_until_;
  std::vector<Question> waiting_;  // questions that wait for samples

  Mutex mutex_;
  CondVar changed_;
  std::deque<Question> questions_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace detshare
