// What a session is opened with, and what it tells about itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coroutine_runtime/swap_counters.h"
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
  int slot = 0;  // its place in the address windows
  Owner owner;
  std::string label;  // names the session in the log
  int pid = 0;        // of the client; 0: not known
  std::string tenant;
  std::string directory;  // exists not yet
  struct OnDevice {
    Device* device = nullptr;
    QueuePool* queues = nullptr;
    DeviceScheduler* scheduler = nullptr;
    MemoryBroker* broker = nullptr;  // null: memory does not leave the card
    std::shared_ptr<Quota> quota;    // of device memory; null: no end
    uint64_t memory_base = 0, memory_bytes = 0;
  };
  std::vector<OnDevice> devices;
  std::shared_ptr<Quota> pinned_quota;                   // of pinned host memory; null: no end
  SharedMemoryObjects* shared_memory_objects = nullptr;  // of the daemon
  ImageStore* image_store = nullptr;                     // the same
  SharedEvents* shared_event_tokens = nullptr;           // the same
};

struct SessionCounters {
  uint64_t device_memory = 0, pinned_memory = 0, operations = 0, kernels = 0, bytes_copied = 0,
           migrations = 0, code_bytes = 0;
  SwapCounters swap;
  uint64_t launches = 0, graphs = 0, copies = 0, fills = 0;  // as GpuCoroutine::Counters
};

struct SessionDeviceUse {
  const Device* device = nullptr;
  uint64_t memory = 0;  // bytes of the card, and those that are out
  bool busy = false;    // work of the session is queued or running
};

}  // namespace detshare
