// The parameters that a session is opened with, and the counters that it reports.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/swap_counters.h"
#include "server/shared_memory/client_file.h"
#include "server/shared_memory/owner.h"

namespace detshare {

class Device;
class DeviceScheduler;
class ImageStore;
class MemoryBroker;
class QueuePool;
class Quota;
class SharedEvents;
class SharedMemoryObjects;

struct SessionConfig {
  uint64_t id = 0;
  int slot = 0;  // index of its addresses in the address windows
  Owner owner;
  std::string label;  // names the session in the log
  int pid = 0;        // of the client process; 0: unknown
  // As OpenClientFile(), for files of the client. May wait for the supervisor.
  std::function<absl::StatusOr<int>(const ClientMapping& mapping, uint64_t bytes)> open_file =
      OpenClientFile;
  std::string tenant;
  std::string directory;  // the session creates it
  struct OnDevice {
    Device* device = nullptr;
    QueuePool* queues = nullptr;
    DeviceScheduler* scheduler = nullptr;
    MemoryBroker* broker = nullptr;  // null: memory is never evicted
    std::shared_ptr<Quota> quota;    // of device memory; null: unlimited
    uint64_t memory_base = 0, memory_bytes = 0;
  };
  std::vector<OnDevice> devices;
  std::shared_ptr<Quota> pinned_quota;   // of pinned host memory; null: unlimited
  std::shared_ptr<Quota> waiting_quota;  // of memory for waiting work; null: unlimited
  std::shared_ptr<Quota> kept_quota;     // of memory for code and graphs; null: unlimited
  SharedMemoryObjects* shared_memory_objects = nullptr;  // the daemon's
  ImageStore* image_store = nullptr;                     // the daemon's
  SharedEvents* shared_event_tokens = nullptr;           // the daemon's
};

// device_memory and pinned_memory are the bytes in use. bytes_copied and code_bytes are bytes since
// the session began. operations, kernels, migrations, launches, graphs, copies and fills are
// numbers since the session began.
struct SessionCounters {
  uint64_t device_memory = 0, pinned_memory = 0, operations = 0, kernels = 0, bytes_copied = 0,
           migrations = 0, code_bytes = 0;
  SwapCounters swap;
  uint64_t launches = 0, graphs = 0, copies = 0, fills = 0;  // as GpuCoroutine::Counters
};

struct SessionDeviceUse {
  const Device* device = nullptr;
  uint64_t memory = 0;  // bytes on the card, plus evicted bytes
  bool busy = false;    // the session has queued or running work
};

}  // namespace detshare
