// Copies large amounts of memory between a card and the host.
//
//     card <-- queue of a copy channel --> its part of the staging area <-- CPU --> host memory
//
// The host memory is not registered, because registering that much would hold the context's lock
// for seconds. A copy channel is a thread that exists during a move. It takes the next chunk when
// it has finished one, so some channels copy over the bus while others copy in memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_turn.h"
#include "coroutine_runtime/queue_pool.h"
#include "proto/mutex.h"

namespace detshare {

struct MovePiece {
  DeviceAddress address = 0;
  std::byte* host = nullptr;
  uint64_t bytes = 0;
};

// Threading: any thread. One move runs at a time; the others wait for it. Lifetime: ends before its
// device, queues and turn.
class MemoryMover {
 public:
  enum class Direction { kToHost, kToDevice };

  // `turn` is the turn in which the copies run; null: no other process has work on the device.
  MemoryMover(Device& device, QueuePool& queues, int channels, DeviceTurn* turn = nullptr);
  ~MemoryMover();
  MemoryMover(const MemoryMover&) = delete;
  MemoryMover& operator=(const MemoryMover&) = delete;

  // Returns when everything is copied. The memory belongs to `space`, and nothing else uses it.
  // Returns Cancelled if `stop` becomes true during the move; otherwise the device's errors.
  absl::Status Move(AddressSpace& space, Direction direction, absl::Span<const MovePiece> pieces,
                    const std::atomic<bool>& stop);

 private:
  static constexpr uint64_t kChunkBytes = 4 << 20;
  struct Job;

  absl::Status MakeStaging() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunChannel(Job& job, int channel);
  // Waits for this process's turn. Returns Cancelled if the move ends meanwhile.
  absl::Status AwaitTurn(const Job& job, DeviceTurn::Member& member) const;
  absl::Status MoveChunk(Job& job, Queue& queue, int channel, uint64_t turn,
                         const MovePiece& chunk);

  Device& device_;
  QueuePool& queues_;
  const int channels_;
  DeviceTurn* const turn_;
  // Held for a whole move. It also guards the staging area, which the copy channels of the move use
  // meanwhile.
  Mutex mutex_;
  // The staging area, followed by a fence for each copy channel.
  std::byte* staging_ = nullptr;
  uint64_t staging_bytes_ = 0;
  // Keeps the staging area registered with the device between moves, because unregistering drains
  // the device. Null if the space could not be created.
  std::unique_ptr<AddressSpace> keeper_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare
