// What the supervisor, which opens no device, knows of the host's devices. Orchestrators ask for them
// before the first program, when no engine runs.
//
// A thread asks when it is told to, until there is a reply. Engines know more: what they say replaces
// the reply.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "proto/mutex.h"

namespace detshare {

// Any thread may call it.
class KnownDevices {
 public:
  // Returns a status with the backend and the devices. May take long; returns soon once `stop` is
  // true. Called on the object's thread.
  using Ask = std::function<absl::StatusOr<proto::Status>(const std::atomic<bool>& stop)>;
  // The time between two questions, and the most to which it grows while there is no reply.
  struct Pauses {
    std::chrono::milliseconds first{10'000}, most{300'000};
  };

  explicit KnownDevices(Ask ask) : KnownDevices(std::move(ask), Pauses()) {}
  KnownDevices(Ask ask, Pauses pauses);
  ~KnownDevices();
  KnownDevices(const KnownDevices&) = delete;
  KnownDevices& operator=(const KnownDevices&) = delete;

  // An engine's status, or the sum of several.
  void Note(const proto::Status& status);
  // Lets the thread ask: at first, and when the devices may have changed.
  void Refresh();
  // Adds backend and devices to a status without devices. Nobody uses them, as far as the supervisor
  // knows. Without a reply to the last question, their state says so.
  void AddTo(proto::Status* status) const;
  // Returns InvalidArgument, for the operator, if a tenant's setting names more devices or SMs than the
  // host has. OkStatus if the devices are not known yet.
  absl::Status Check(const proto::TenantSetting& setting) const;

 private:
  using Clock = std::chrono::steady_clock;
  void Run();

  const Ask ask_;
  const Pauses pauses_;
  std::atomic<bool> stop_{false};  // tells the thread, in `ask_` too, to end
  mutable Mutex mutex_;
  CondVar changed_;
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::time_point not_before_ ABSL_GUARDED_BY(mutex_);
  proto::Status known_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace detshare
