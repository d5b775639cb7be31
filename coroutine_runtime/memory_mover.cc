#include "coroutine_runtime/memory_mover.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "policy/status_macros.h"

namespace detshare {
namespace {

// For the copy channels' fences: a whole page at every page size.
constexpr uint64_t kFenceBytes = 64 << 10;
constexpr uint64_t kFenceStride = 64;
constexpr uint64_t kKeeperBytes = 32 << 20;  // bytes of unused addresses
constexpr int kKeeperTries = 4;
constexpr std::chrono::microseconds kSpin(20), kSleep(20);
// A copy of a chunk takes a millisecond. One that takes so much longer is stopped by urgent work, which
// may not end (progress_guard.h).
constexpr std::chrono::milliseconds kStopped(100);

// Lets ordinary work keep the device, from Keep() to the end of the object.
class Keeper {
 public:
  explicit Keeper(Device& device) : device_(device) {}
  ~Keeper() {
    if (keeps_) device_.KeepOrdinary(false);
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  void Keep() {
    if (!std::exchange(keeps_, true)) device_.KeepOrdinary(true);
  }

 private:
  Device& device_;
  bool keeps_ = false;
};

}  // namespace

struct MemoryMover::Job {
  AddressSpace& space;
  const Direction direction;
  const std::vector<MovePiece> chunks;
  const std::atomic<bool>& stop;
  std::atomic<size_t> next{0};      // the next chunk; relaxed: publishes nothing else
  std::atomic<bool> failed{false};  // relaxed: only makes the other channels end early
  Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);

  void Fail(absl::Status why) {
    const MutexLock lock(&mutex);
    status.Update(why);
    failed.store(true, std::memory_order_relaxed);
  }
};

MemoryMover::MemoryMover(Device& device, QueuePool& queues, int channels, DeviceTurn* turn)
    : device_(device),
      queues_(queues),
      channels_(std::clamp<int>(channels, 1, static_cast<int>(kFenceBytes / kFenceStride))),
      turn_(turn) {}

MemoryMover::~MemoryMover() {
  keeper_.reset();
  if (staging_ != nullptr) munmap(staging_, staging_bytes_);
}

absl::Status MemoryMover::MakeStaging() {
  if (staging_ != nullptr) return absl::OkStatus();
  const uint64_t bytes = static_cast<uint64_t>(channels_) * kChunkBytes + kFenceBytes;
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return absl::ResourceExhaustedError("no memory for a staging area");
  madvise(memory, bytes, MADV_DONTDUMP);
  staging_ = static_cast<std::byte*>(memory);
  staging_bytes_ = bytes;
  for (int i = 0; i < kKeeperTries && keeper_ == nullptr; ++i) {
    // Any free addresses will do. Another thread may take them first, hence the tries.
    void* const free =
        mmap(nullptr, 2 * kKeeperBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (free == MAP_FAILED) break;
    munmap(free, 2 * kKeeperBytes);
    const uint64_t base =
        (reinterpret_cast<uint64_t>(free) + kKeeperBytes - 1) / kKeeperBytes * kKeeperBytes;
    auto space = device_.CreateAddressSpace(base, kKeeperBytes);
    if (space.ok() && (*space)->RegisterHost(staging_, staging_bytes_).ok())
      keeper_ = *std::move(space);
  }
  return absl::OkStatus();
}

absl::Status MemoryMover::Move(AddressSpace& space, Direction direction,
                               absl::Span<const MovePiece> pieces, const std::atomic<bool>& stop) {
  std::vector<MovePiece> chunks;
  for (const MovePiece& piece : pieces) {
    for (uint64_t done = 0; done < piece.bytes; done += kChunkBytes) {
      chunks.push_back(
          {piece.address + done, piece.host + done, std::min(kChunkBytes, piece.bytes - done)});
    }
  }
  const MutexLock lock(&mutex_);
  DETSHARE_RETURN_IF_ERROR(MakeStaging());
  DETSHARE_RETURN_IF_ERROR(space.RegisterHost(staging_, staging_bytes_));
  Job job{space, direction, std::move(chunks), stop, {}, {}, {}, {}};
  std::vector<std::thread> threads;
  const int channels = static_cast<int>(std::min<size_t>(channels_, job.chunks.size()));
  for (int channel = 1; channel < channels; ++channel)
    threads.emplace_back([this, &job, channel] { RunChannel(job, channel); });
  RunChannel(job, 0);
  for (std::thread& thread : threads) thread.join();
  const absl::Status left = space.UnregisterHost(staging_);
  const MutexLock job_lock(&job.mutex);
  job.status.Update(left);
  return job.status;
}

void MemoryMover::RunChannel(Job& job, int channel) {
  Partition& whole = device_.whole();
  constexpr int kLeast = std::numeric_limits<int>::max();  // the pool clamps it
  absl::StatusOr<std::unique_ptr<Queue>> queue = queues_.Acquire(whole, kLeast);
  if (!queue.ok()) return job.Fail(queue.status());
  // The fence may hold any value of an earlier move. The values of this move begin with 1.
  auto* const fence = reinterpret_cast<std::atomic<uint64_t>*>(
      staging_ + staging_bytes_ - kFenceBytes + static_cast<uint64_t>(channel) * kFenceStride);
  fence->store(0, std::memory_order_relaxed);
  absl::Status status;
  for (uint64_t turn = 1; status.ok() && !job.failed.load(std::memory_order_relaxed); ++turn) {
    const size_t index = job.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= job.chunks.size()) break;
    if (job.stop.load(std::memory_order_relaxed)) {
      status = absl::CancelledError("the session ends");
      break;
    }
    // It ends with each chunk, so that the turn of another process can begin.
    std::optional<DeviceTurn::Member> member;
    if (turn_ != nullptr) status = AwaitTurn(job, member.emplace(turn_));
    if (status.ok()) status = MoveChunk(job, **queue, channel, turn, job.chunks[index]);
  }
  if (status.ok() || absl::IsCancelled(status)) {
    queues_.Release(whole, kLeast, *std::move(queue));
  } else {
    queues_.Discard(*std::move(queue));
  }
  if (!status.ok()) job.Fail(status);
}

absl::Status MemoryMover::AwaitTurn(const Job& job, DeviceTurn::Member& member) const {
  while (!member.Enter()) {
    if (job.failed.load(std::memory_order_relaxed) || job.stop.load(std::memory_order_relaxed))
      return absl::CancelledError("the session ends");
    DETSHARE_RETURN_IF_ERROR(job.space.fault());
    DETSHARE_RETURN_IF_ERROR(device_.health());
    std::this_thread::sleep_for(kSleep);
  }
  return absl::OkStatus();
}

absl::Status MemoryMover::MoveChunk(Job& job, Queue& queue, int channel, uint64_t turn,
                                    const MovePiece& chunk) {
  std::byte* const stage = staging_ + static_cast<uint64_t>(channel) * kChunkBytes;
  auto* const fence = reinterpret_cast<std::atomic<uint64_t>*>(
      staging_ + staging_bytes_ - kFenceBytes + static_cast<uint64_t>(channel) * kFenceStride);
  CopyRequest copy;
  copy.width = chunk.bytes;
  if (job.direction == Direction::kToDevice) {
    std::memcpy(stage, chunk.host, chunk.bytes);
    copy.destination = chunk.address;
    copy.source = reinterpret_cast<DeviceAddress>(stage);
  } else {
    copy.destination = reinterpret_cast<DeviceAddress>(stage);
    copy.source = chunk.address;
  }
  DETSHARE_RETURN_IF_ERROR(queue.Copy(job.space, copy));
  DETSHARE_RETURN_IF_ERROR(queue.WriteFence(job.space, fence, turn));
  // Even a move that ends early waits for the copy that it began, because the next move uses this
  // part of the staging area again.
  const auto begin = std::chrono::steady_clock::now();
  Keeper keeper(device_);
  while (fence->load(std::memory_order_acquire) < turn) {
    DETSHARE_RETURN_IF_ERROR(job.space.fault());
    DETSHARE_RETURN_IF_ERROR(device_.health());
    const auto time = std::chrono::steady_clock::now() - begin;
    if (time > kStopped) keeper.Keep();
    if (time > kSpin) std::this_thread::sleep_for(kSleep);
  }
  if (job.direction == Direction::kToHost) std::memcpy(chunk.host, stage, chunk.bytes);
  return absl::OkStatus();
}

}  // namespace detshare
