#include "server/session/session_swap.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/base/logging.h"
#include "server/session/session_driver.h"

namespace detshare {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// How long a session pauses for its work to end. Work that waits for the client may never end.
constexpr milliseconds kCompletionTimeout(1000);
constexpr microseconds kPause(100);
// After this time, the log reports that a session waits.
constexpr std::chrono::seconds kNotifyAfter(10);
// How long a session waits for more room than its evicted memory needs.
constexpr milliseconds kSlackTimeout(200);
// As in device_memory.cc: a card cannot use all of its free memory. Each retry asks for this
// fraction of the card's memory more.
constexpr uint64_t kRequestSlack = 256;

Task<void> AwaitDevices(std::vector<SessionDevice>& devices, std::shared_ptr<bool> complete) {
  for (SessionDevice& device : devices) (void)co_await device.coroutine->Idle();
  *complete = true;
}

std::string Speed(uint64_t bytes, SteadyClock::duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  return absl::StrFormat("%.1f MiB in %.1f ms (%.1f GB/s)", static_cast<double>(bytes) / (1 << 20),
                         seconds * 1e3, static_cast<double>(bytes) / seconds / 1e9);
}

}  // namespace

void SessionSwap::Leave() {
  for (Part& part : parts_) {
    part.device->memory->set_room(nullptr);
    part.account->Leave();
  }
}

void SessionSwap::Add(MemoryBroker& broker, policy::TenantClass tenant_class,
                      SessionDevice& device) {
  Part& part = parts_.emplace_back();
  part.device = &device;
  part.account = broker.Open(driver_.session().id(), tenant_class, *device.memory, [this] {
    attention_.store(true, std::memory_order_release);
    driver_.session().reader().Wake();
  });
  device.memory->set_room(part.account.get());
}

void SessionSwap::ChangeIdle(policy::Nanoseconds since) {
  idle_ = since != 0;
  for (Part& part : parts_) {
    since != 0 ? part.account->SetIdle(since) : part.account->SetWorking();
  }
}

bool SessionSwap::out() const {
  for (const Part& part : parts_) {
    if (part.device->memory->out() != 0) return true;
  }
  return false;
}

bool SessionSwap::Attend(bool wanted, const std::atomic<bool>& stop) {
  // A later order sets the flag again.
  attention_.exchange(false, std::memory_order_acquire);
  ObeyAll(nullptr, stop);
  if (wanted && out()) TakeBack(stop);
  bool more = out();
  for (Part& part : parts_) {
    if (part.account->waiting() == 0) continue;
    part.account->Look();
    more = true;
  }
  if (more) attention_.store(true, std::memory_order_relaxed);
  return !out() || driver_.session().sticky_error() != 0;
}

void SessionSwap::ObeyAll(const RoomTicket* own, const std::atomic<bool>& stop) {
  for (Part& part : parts_) {
    if (part.account->ordered()) Obey(part, own, stop);
  }
}

void SessionSwap::Obey(Part& part, const RoomTicket* own, const std::atomic<bool>& stop) {
  const uint64_t bytes = part.account->Begin();
  if (bytes == 0) return;
  const bool complete = AwaitCompletion(own, stop);
  // The session is ending and will release its memory.
  if (stop.load(std::memory_order_acquire)) return part.account->Leave();
  if (!complete) {
    LogDebug(driver_.session().label(), ": its work does not end, its memory stays");
    return part.account->End(false);
  }
  const SteadyClock::time_point begin = SteadyClock::now();
  const absl::StatusOr<uint64_t> went = part.account->MoveOut(bytes, stop);
  if (stop.load(std::memory_order_acquire)) return part.account->Leave();
  if (!went.ok()) {
    LogInfo(driver_.session().label(),
            ": its memory stays: ", std::string(went.status().message()));
  } else if (*went != 0) {
    LogInfo(driver_.session().label(),
            ": device memory goes to the host: ", Speed(*went, SteadyClock::now() - begin));
  }
  part.account->End(went.ok() && *went != 0);
}

bool SessionSwap::AwaitCompletion(const RoomTicket* own, const std::atomic<bool>& stop) {
  Executor& executor = driver_.session().executor();
  executor.Poll();
  if (complete_ != nullptr && !*complete_) return false;
  complete_ = std::make_shared<bool>(false);
  executor.Spawn(AwaitDevices(driver_.session().devices(), complete_));
  const SteadyClock::time_point begin = SteadyClock::now();
  for (;;) {
    executor.Poll();
    driver_.WatchWork(/*pause=*/true);
    if (stop.load(std::memory_order_acquire)) return false;
    driver_.CheckFault();
    if (driver_.session().sticky_error() != 0) return false;
    if (*complete_) {
      size_t for_room = 0;
      const bool waits = own != nullptr && own->state().load() == RoomTicket::kWaiting;
      for (const Part& part : parts_) for_room += static_cast<size_t>(part.account->waiting());
      if (driver_.session().executor().waiting() + (waits ? 1 : 0) <= for_room) return true;
    }
    if (SteadyClock::now() - begin >= kCompletionTimeout) return false;
    std::this_thread::sleep_for(kPause);
  }
}

void SessionSwap::TakeBack(const std::atomic<bool>& stop) {
  for (Part& part : parts_) part.account->SetBlocked(true);
  // Take memory back in the order of the devices, so that two sessions with several devices do not
  // deadlock. While the session waits for one device, its memory on other devices may be evicted
  // again.
  bool progress = true;
  while (out() && progress) {
    for (Part& part : parts_) {
      if (part.device->memory->out() == 0) continue;
      progress = TakeBackOne(part, stop);
      break;
    }
  }
  for (Part& part : parts_) part.account->SetBlocked(false);
  SetWorking();
}

bool SessionSwap::TakeBackOne(Part& part, const std::atomic<bool>& stop) {
  uint64_t more = 0;
  const SteadyClock::time_point begin = SteadyClock::now();
  bool told = false;
  for (;;) {
    const std::unique_ptr<RoomTicket> ticket = part.account->AskToReturn(more);
    const SteadyClock::time_point asked = SteadyClock::now();
    while (ticket->state().load(std::memory_order_acquire) == RoomTicket::kWaiting) {
      if (stop.load(std::memory_order_acquire)) return false;
      driver_.CheckFault();
      if (driver_.session().sticky_error() != 0) return false;
      ObeyAll(ticket.get(), stop);
      driver_.session().executor().Poll();
      driver_.WatchWork(/*pause=*/true);
      part.account->Look();
      std::this_thread::sleep_for(kPause);
      if (!told && SteadyClock::now() - begin >= kNotifyAfter) {
        LogWarning(driver_.session().label(), ": waits for ", part.device->memory->out() >> 20,
                   " MiB of its device memory to come back: no other session's memory can be "
                   "evicted, or swap_memory is too small for it");
        told = true;
      }
      // The card may never have this much room. Stop waiting for the extra room.
      if (more != 0 && SteadyClock::now() - asked >= kSlackTimeout) break;
    }
    if (ticket->state().load(std::memory_order_acquire) == RoomTicket::kWaiting) {
      more = 0;
      continue;
    }
    const SteadyClock::time_point moving = SteadyClock::now();
    const absl::StatusOr<uint64_t> back = part.account->MoveIn(stop);
    if (back.ok()) {
      LogInfo(driver_.session().label(),
              ": device memory comes back: ", Speed(*back, SteadyClock::now() - moving));
      return true;
    }
    if (stop.load(std::memory_order_acquire)) return false;
    if (CudaResultOf(back.status()) != kCudaErrorOutOfMemory) {
      driver_.session().SetStickyError(
          CudaResultOf(back.status()),
          absl::StrCat("device memory does not come back: ", std::string(back.status().message())));
      return false;
    }
    // Another session took the room first, or the card reserves some memory for itself.
    more += part.device->device->properties().total_memory / kRequestSlack;
  }
}

MemoryBroker::Account::Counters SessionSwap::counters() const {
  MemoryBroker::Account::Counters sum;
  for (const Part& part : parts_) {
    const MemoryBroker::Account::Counters one = part.account->counters();
    sum.out += one.out;
    sum.bytes_out += one.bytes_out;
    sum.bytes_in += one.bytes_in;
    sum.moves += one.moves;
    sum.nanoseconds += one.nanoseconds;
  }
  return sum;
}

}  // namespace detshare
