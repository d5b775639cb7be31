// The state that the objects of one software GPU share.
#pragma once

#include <memory>
#include <utility>

#include "coroutine_runtime/device.h"
#include "proto/mutex.h"
#include "server/backends/soft/card_processes.h"
#include "server/backends/soft/memory_budget.h"
#include "server/backends/soft/ordinary_group.h"
#include "server/backends/soft/soft_engine.h"
#include "server/backends/soft/soft_memory.h"
#include "server/backends/soft/soft_physical_memory.h"
#include "server/backends/soft/soft_properties.h"
#include "server/backends/soft/soft_timing.h"

namespace detshare::soft {

struct Core {
  Core(const SoftDeviceOptions& device_options, DeviceProperties device_properties,
       std::shared_ptr<MemoryFile> card_file)
      : options(device_options),
        properties(std::move(device_properties)),
        card(std::move(card_file)),
        budget(properties.total_memory, &processes),
        ordinary(processes),
        timeline(properties.sm_count),
        engine(options.worker_threads, timeline,
               properties.preemption.available ? &ordinary : nullptr) {}

  const SoftDeviceOptions options;
  const DeviceProperties properties;
  const std::shared_ptr<MemoryFile> card;  // holds the physical memory
  CardProcesses processes;
  MemoryBudget budget;
  OrdinaryGroup ordinary;
  Timeline timeline;
  Engine engine;
};

inline std::shared_ptr<SpaceState> StateOf(AddressSpace& space) {
  return static_cast<SoftAddressSpace&>(space).state();
}

class SoftMarker final : public Marker {
 public:
  SoftMarker(const Core& core, bool timed) : core(core), timed(timed) {}

  std::shared_ptr<Point> point() const {
    const MutexLock lock(&mutex_);
    return point_;
  }
  void set_point(std::shared_ptr<Point> point) {
    const MutexLock lock(&mutex_);
    point_ = std::move(point);
  }

  const Core& core;  // of the device whose queues record the marker
  const bool timed;

 private:
  mutable Mutex mutex_;
  std::shared_ptr<Point> point_ ABSL_GUARDED_BY(mutex_);  // null until the marker is recorded
};

}  // namespace detshare::soft
