// Managed memory of the software GPU: a file in memory. Its devices are the CPUs, so pages never move.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "coroutine_runtime/managed_addresses.h"
#include "coroutine_runtime/managed_memory.h"
#include "proto/mutex.h"

namespace detshare::soft {

class SoftManagedMemory final : public ManagedMemory {
 public:
  // At most `capacity` bytes are reserved at a time.
  static absl::StatusOr<std::shared_ptr<ManagedMemory>> Create(const ManagedWindow& window,
                                                               uint64_t capacity);
  ~SoftManagedMemory() override;

  int descriptor() const override { return file_; }
  absl::StatusOr<Range> Reserve(uint64_t bytes) override;
  void Release(const Range& range) override;
  // Advice changes no contents, and pages have one place.
  absl::Status Advise(uint64_t, uint64_t, int, ManagedPlace) override { return absl::OkStatus(); }

 private:
  SoftManagedMemory(int file, const ManagedWindow& window, uint64_t capacity)
      : file_(file), addresses_(window, capacity) {}

  const int file_;  // sealed: no client can shrink it
  Mutex mutex_;
  ManagedAddresses addresses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::soft
