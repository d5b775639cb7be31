// Copies memory between a card and the host, much at a time.
//
//     card  <-- queue of a copy channel -->  the copy channel's part of the staging area  <-- CPU -->  host memory
//
// The host memory is ordinary: registering that much would hold the context's lock for seconds. A
// copy channel is a thread for the time of a move, and takes the next chunk when it is done with one, so
// that some copy on the bus and some in memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/queue_pool.h"

namespace detshare {

struct MovePiece {
  DeviceAddress address = 0;
  std::byte* host = nullptr;
  uint64_t bytes = 0;
};

// Any thread; one move at a time, the others wait for it. Ends before its device and queues.
class MemoryMover {
 public:
  enum class Direction { kToHost, kToDevice };

  MemoryMover(Device& device, QueuePool& queues, int channels);
  ~MemoryMover();
  MemoryMover(const MemoryMover&) = delete;
  MemoryMover& operator=(const MemoryMover&) = delete;

  // Returns when everything is copied. `space` has the memory, and nothing else works on it.
  // Cancelled when `stop` becomes true in the middle; else the device's errors.
  absl::Status Move(AddressSpace& space, Direction direction, absl::Span<const MovePiece> pieces,
                    const std::atomic<bool>& stop);

 private:
  static constexpr uint64_t kChunkBytes = 4 << 20;
  struct Job;

  absl::Status MakeStaging();
  void RunChannel(Job& job, int channel);
  absl::Status MoveChunk(Job& job, Queue& queue, int channel, uint64_t turn,
                         const MovePiece& chunk);

  Device& device_;
  QueuePool& queues_;
  const int channels_;
  std::mutex mutex_;  // a move; guards what follows
  // The staging area, a fence of each copy channel behind it.
  std::byte* staging_ = nullptr;
  uint64_t staging_bytes_ = 0;
  // Keeps the staging area registered with the device between moves: taking a registration back
  // drains it. Null where it could not be made.
  std::unique_ptr<AddressSpace> keeper_;
};

}  // namespace detshare
