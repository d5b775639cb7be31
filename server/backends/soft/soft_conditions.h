// The values that decide what a session's conditional nodes run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "proto/mutex.h"
#include "server/backends/soft/ptx/host_services.h"

namespace detshare::soft {

struct Condition {
  uint32_t default_value = 0;
  bool assign_default = false;     // at the beginning of each launch
  std::atomic<uint32_t> value{0};  // relaxed: the engine orders kernels and decisions
};

// Any thread. A handle is the number of its condition. Numbers begin at 1, and none is used again.
// Plans of graphs share their conditions, so that kernels find these until the graphs' launches are
// complete.
class Conditions final : public ptx::GraphConditions {
 public:
  uint64_t Create(uint32_t default_value, bool assign_default) {
    auto condition = std::make_shared<Condition>();
    condition->default_value = default_value;
    condition->assign_default = assign_default;
    condition->value.store(default_value, std::memory_order_relaxed);
    const MutexLock lock(&mutex_);
    conditions_[++created_] = {condition, condition};
    return created_;
  }
  // Null when no condition has this handle, or it has ended.
  std::shared_ptr<Condition> Find(uint64_t handle) const {
    const MutexLock lock(&mutex_);
    const auto found = conditions_.find(handle);
    return found != conditions_.end() ? found->second.owner : nullptr;
  }
  // Only plans have the condition from now on.
  void End(uint64_t handle) {
    const MutexLock lock(&mutex_);
    const auto found = conditions_.find(handle);
    if (found == conditions_.end() || found->second.owner == nullptr) return;
    found->second.owner = nullptr;
    ended_.push_back(handle);
    std::erase_if(ended_, [this](uint64_t ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const auto entry = conditions_.find(ended);
      if (!entry->second.condition.expired()) return false;
      conditions_.erase(entry);
      return true;
    });
  }
  bool Set(uint64_t handle, uint32_t value) override {
    const MutexLock lock(&mutex_);
    const auto found = conditions_.find(handle);
    // Setting a condition on which nothing depends any more has no effect.
    if (found == conditions_.end()) return handle - 1 < created_;
    if (const std::shared_ptr<Condition> condition = found->second.condition.lock())
      condition->value.store(value, std::memory_order_relaxed);
    return true;
  }

 private:
  struct Entry {
    std::shared_ptr<Condition> owner;  // null: ended
    std::weak_ptr<Condition> condition;
  };

  mutable Mutex mutex_;
  uint64_t created_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, Entry> conditions_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> ended_ ABSL_GUARDED_BY(mutex_);  // those that plans still have, or had
};

}  // namespace detshare::soft
