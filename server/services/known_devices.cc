#include "server/services/known_devices.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "server/base/logging.h"
#include "server/services/settings_store.h"

namespace detshare {

KnownDevices::KnownDevices(Ask ask, Pauses pauses)
    : ask_(std::move(ask)), pauses_(pauses), thread_([this] { Run(); }) {}

KnownDevices::~KnownDevices() {
  {
    // The lock makes sure that the thread either sees the change or sleeps already.
    const MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void KnownDevices::Note(const proto::Status& status) {
  if (status.devices_size() == 0) return;
  const MutexLock lock(&mutex_);
  known_.set_backend(status.backend());
  *known_.mutable_devices() = status.devices();
  for (proto::DeviceStatus& device : *known_.mutable_devices()) {
    device.clear_used_memory();
    device.clear_partitions();
    device.clear_beside_native();
  }
}

void KnownDevices::Refresh() {
  {
    const MutexLock lock(&mutex_);
    wanted_ = true;
  }
  changed_.SignalAll();
}

void KnownDevices::AddTo(proto::Status* status) const {
  if (status->devices_size() != 0) return;
  const MutexLock lock(&mutex_);
  status->set_backend(known_.backend());
  *status->mutable_devices() = known_.devices();
}

absl::Status KnownDevices::Check(const proto::TenantSetting& setting) const {
  int sms = 0;
  size_t devices = 0;
  {
    const MutexLock lock(&mutex_);
    for (const proto::DeviceStatus& device : known_.devices())
      sms = std::max(sms, device.sm_count());
    devices = static_cast<size_t>(known_.devices_size());
  }
  if (devices == 0) return absl::OkStatus();
  DETSHARE_RETURN_IF_ERROR(ToTenant(setting, sms).status());
  return ToQuota(setting, devices).status();
}

void KnownDevices::Run() {
  std::chrono::milliseconds pause = pauses_.first;
  for (;;) {
    {
      MutexLock lock(&mutex_);
      while (!stop_ && (!wanted_ || Clock::now() < not_before_)) {
        if (wanted_) {
          changed_.WaitUntil(&mutex_, not_before_);
        } else {
          changed_.Wait(&mutex_);
        }
      }
      if (stop_) return;
      wanted_ = false;
    }
    const absl::StatusOr<proto::Status> reply = ask_(stop_);
    if (stop_) return;
    if (reply.ok()) Note(*reply);
    pause = reply.ok() ? pauses_.first : std::min(pause * 2, pauses_.most);
    const MutexLock lock(&mutex_);
    not_before_ = Clock::now() + pause;
    if (reply.ok()) continue;
    wanted_ = true;
    LogWarning("the devices are not known: ", std::string(reply.status().message()));
    for (proto::DeviceStatus& device : *known_.mutable_devices())
      device.set_state(absl::StrCat("not known: ", reply.status().message()));
  }
}

}  // namespace detshare
