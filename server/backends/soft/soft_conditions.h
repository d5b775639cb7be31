// The values that decide what a session's conditional nodes run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "proto/mutex.h"
#include "server/backends/soft/ptx/host_services.h"

namespace detshare::soft {

struct Condition {
  uint32_t default_value = 0;
  bool assign_default = false;     // at the beginning of each launch
  std::atomic<uint32_t> value{0};  // relaxed: the engine orders kernels and decisions
};

// Any thread. A handle is the number of its condition. Numbers begin at 1. Conditions are
// never removed.
class Conditions final : public ptx::GraphConditions {
 public:
  uint64_t Create(uint32_t default_value, bool assign_default) {
    auto condition = std::make_shared<Condition>();
    condition->default_value = default_value;
    condition->assign_default = assign_default;
    condition->value.store(default_value, std::memory_order_relaxed);
    const MutexLock lock(&mutex_);
    conditions_.push_back(std::move(condition));
    return conditions_.size();
  }
  // Null when no condition has this handle.
  std::shared_ptr<Condition> Find(uint64_t handle) const {
    const MutexLock lock(&mutex_);
    return handle - 1 < conditions_.size() ? conditions_[handle - 1] : nullptr;
  }
  bool Set(uint64_t handle, uint32_t value) override {
    const std::shared_ptr<Condition> condition = Find(handle);
    if (condition == nullptr) return false;
    condition->value.store(value, std::memory_order_relaxed);
    return true;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Condition>> conditions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::soft
