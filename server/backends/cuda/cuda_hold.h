// Keeps the urgent time-slice group of a GPU on the device in the gaps between its operations.
//
// The hardware gives the device to the other group as soon as no channel of a group has commands to
// read, even if a kernel of the group still runs. A hold is a kernel of one thread that runs until
// a deadline, with a write of a word behind it on its stream: a command that cannot be executed
// yet. Measured on an H200 (driver 580): 50 kernels of 5 us with gaps of 3 us take 0.66 ms alone,
// 19.4 ms beside a full card without a hold, and 0.89 ms with one. A kernel alone, without the
// write behind it, makes it worse.
//
// The driver does not bear a hold beside a graph with conditional nodes. So there is no hold while such a
// graph is in flight in the group (graph_gate.h).
//
// The host sets the deadline by a word in registered memory, so a hold that lasts is extended by
// one store.
//
// The hold's block leaves its SM to other blocks as far as it can. It prefers the largest part of shared
// memory, because an SM changes that part only while it is empty: with the driver's choice, kernels of two
// to 13 blocks on each SM that need all of its shared memory take twice as long beside a hold, and with the
// largest part 2 % longer. Blocks that need all warps or registers of an SM do not fit beside it
// (coroutine_runtime/waves.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/fresh_address.h"
#include "proto/mutex.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

// The holds of one GPU share this: the kernel, and a page of words. Threading: any thread.
// Lifetime: outlives the holds.
class HoldPool {
 public:
  // Before other threads see `urgent`, which outlives the pool.
  static absl::StatusOr<std::unique_ptr<HoldPool>> Create(CudaGroup& urgent);
  ~HoldPool();
  HoldPool(const HoldPool&) = delete;
  HoldPool& operator=(const HoldPool&) = delete;

  absl::StatusOr<std::unique_ptr<GroupHold>> CreateHold();

 private:
  friend class CudaHold;

  // The words of one hold, on cache lines of their own.
  struct Words {
    // The number of the latest request, above kTimeBits, and the time from then on for which to
    // hold, in nanoseconds. Release: the kernel needs no other memory; the order of stores counts.
    alignas(64) std::atomic<uint64_t> request;
    // The number of the latest request. Relaxed.
    std::atomic<uint64_t> requests;
    // The number of the latest kernel. Sequentially consistent: the hold stores it before it asks whether
    // there may be one, and a launch that ends holds reads it after it has forbidden them.
    std::atomic<uint64_t> launched;
    // The number of the latest kernel that has ended. The GPU stores it.
    alignas(64) std::atomic<uint64_t> ended;
  };
  static constexpr size_t kPageBytes = 4096;

  explicit HoldPool(CudaGroup& urgent) : urgent_(urgent), gpu_(urgent.gpu) {}

  // As GraphGate::HaveHolds().
  bool EndAll();

  CudaGroup& urgent_;
  CudaContext& gpu_;
  FreshPages page_;
  bool registered_ = false;
  CUlibrary library_ = nullptr;
  CUfunction kernel_ = nullptr;
  Mutex mutex_;
  std::vector<Words*> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::cuda
