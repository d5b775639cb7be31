// The engine of the software GPU: queues of operations, and worker threads that do the work at
// their heads.
//
//   queue:  [ op ][ op ][ op ] ...
//             ^ the head; one at a time
//
//   task    the task runs: workers take pieces of it and of the other running tasks in turn
//   fence   the engine writes the fence at once
//   memory  the engine writes a word of the session's memory at once, or the queue waits until the
//           word has the awaited value
//   record  the point is reached, and the queues that wait for it go on
//   wait    the queue waits until the point is reached, or until the fence has the awaited value
//
// Tasks of all queues run at the same time. Each piece that a worker takes is bounded, and the
// workers go around the running tasks, so a kernel that never ends does not starve other work.
// Workers without work sleep. While a queue waits for a fence that only the host can write, or for
// a word of memory, one worker polls every 50 us.
//
// After a fault of a space the engine skips the work of the space and does not write its fences,
// because a written fence says that the work is done. Points are still reached, so that the queues
// can be used further. The engine also skips the work of an abandoned space, but writes its fences.
//
// Ordinary kernels stand still while urgent kernels or another process have the card (ordinary_group.h).
//
// One mutex guards queues, points and the bookkeeping of tasks. Workers do not hold it while they
// do the work itself.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "coroutine_runtime/memory_op.h"
#include "proto/mutex.h"
#include "server/backends/soft/ordinary_group.h"
#include "server/backends/soft/soft_memory.h"
#include "server/backends/soft/soft_timing.h"

namespace detshare::soft {

struct Point;

// Work that takes long enough to be done in pieces, by several threads at once.
class Job {
 public:
  virtual ~Job() = default;

  // A bounded piece of the work. Only the task itself interprets the fields.
  struct Chunk {
    uint64_t begin = 0, end = 0;
    void* context = nullptr;
  };
  enum class Claimed { kChunk, kNothing, kFinished };

  // Called with the engine's lock held. kNothing: other workers have all of the remaining work.
  // kFinished: all work is done, and no worker has a piece.
  virtual Claimed Claim(Chunk* chunk) = 0;
  // Called with the engine's lock held. True when Claim would return another piece.
  virtual bool HasMore() const = 0;
  // Called without the lock, on any thread.
  virtual void Perform(Chunk* chunk) = 0;
  // Called with the lock held, after Perform. True when this was the last piece.
  virtual bool Finish(Chunk* chunk) = 0;
  // Called once, without the lock, when all pieces are done and before the queue goes on. Produces
  // the effects that other threads see, and ends the task's entry in virtual time.
  virtual void Conclude(Timeline& timeline, const Timeline::EntryPtr& entry) = 0;
  // Called with the lock held, instead of all functions above, when the work is skipped. Returns a
  // point that must be reached nevertheless, or null. When a task returns a point, nothing follows
  // the task on its queue.
  virtual std::shared_ptr<Point> PointIfSkipped();
  // Whether the work occupies SMs: kernels.
  virtual bool RunsOnSms() const { return false; }
  // True for work so short that the submitting thread does it faster than it wakes a worker.
  virtual bool IsShort() const { return false; }
  // The memory that the task holds beyond what every operation takes (kOperationBytes).
  virtual uint64_t extra_bytes() const { return 0; }
};

struct QueueState;

// A point in a queue's work. The mutex of that queue's engine guards it, except for `time` and
// `reached`. Queues of other engines wait for `reached` as for a fence: the release store publishes
// the work before the point to them.
struct Point {
  std::atomic<uint64_t> reached{0};
  bool late = false;  // the record is submitted after the waits for it; constant
  std::vector<std::shared_ptr<QueueState>> waiters;
  std::shared_ptr<TimePoint> time = std::make_shared<TimePoint>();
};

// About what an operation takes in its queue, with its task and its entry in virtual time.
inline constexpr uint64_t kOperationBytes = 1024;

struct Operation {
  enum class Kind { kJob, kWriteFence, kWaitFence, kMemory, kRecord, kWait };
  Kind kind = Kind::kJob;
  // Null for kRecord and kWait, and for a kWaitFence that waits for another engine's `point`.
  std::shared_ptr<SpaceState> space;
  std::shared_ptr<Job> job;
  std::shared_ptr<Point> point;
  std::atomic<uint64_t>* fence = nullptr;          // kWriteFence
  const std::atomic<uint64_t>* awaited = nullptr;  // kWaitFence
  MemoryOp memory;                                 // kMemory: a wait or a write
  uint64_t value = 0;
  Timeline::EntryPtr entry;  // null for fences and memory, which take no virtual time
  // Whose memory the operation takes, if it has no `space`; null: the daemon's.
  std::shared_ptr<SpaceState> owner;
  HeldMemory held;  // set by the engine
};

// The engine's side of a queue; guarded by the engine's mutex.
struct QueueState {
  // `urgent`: the queue is of the urgent time-slice group.
  explicit QueueState(bool urgent = false) : track(std::make_shared<Timeline::Track>(urgent)) {}
  std::deque<Operation> operations;
  bool busy = false;     // the head is a task that is running
  bool waiting = false;  // the head waits for a point or a fence
  const std::shared_ptr<Timeline::Track> track;
};

inline std::shared_ptr<Point> Job::PointIfSkipped() { return nullptr; }

class Engine {
 public:
  // `ordinary` outlives the object. Null: other processes do not stop ordinary kernels.
  Engine(int worker_threads, Timeline& timeline, OrdinaryGroup* ordinary = nullptr);
  // Work that is still queued is dropped.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // One thread at a time for each queue.
  void Submit(const std::shared_ptr<QueueState>& queue, Operation operation);
  bool Reached(const Point& point);
  // To be called after a space was abandoned: the space's operations stop waiting.
  void Wake();

 private:
  void Work();
  // Carries out the operations at the head of `first` that need no wait and no worker, and those of
  // the queues that it lets go on.
  void Advance(std::shared_ptr<QueueState> first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes the operation at the head of `queue`, which was done or skipped.
  void Retire(QueueState& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The head of the queue is a running task from now on, or no longer.
  void Begin(const std::shared_ptr<QueueState>& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const std::shared_ptr<QueueState>& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the queue's running task is a kernel.
  static bool RunsKernel(const QueueState& queue);
  // Whether it is an ordinary kernel, which urgent kernels and other processes may stop.
  bool IsStoppable(const QueueState& queue) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes a piece of a running task and does it, without the mutex. False when no task has a piece
  // left, or those that have one stand still.
  bool RunOneChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the mutex up meanwhile.
  void ConcludeHead(const std::shared_ptr<QueueState>& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The operation at the head waits for a fence or a word of memory. Workers must poll for it.
  void WaitAndPoll(const std::shared_ptr<QueueState>& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PollFences() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Timeline& timeline_;
  OrdinaryGroup* const ordinary_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;          // workers that sleep
  bool polling_ ABSL_GUARDED_BY(mutex_) = false;  // a sleeping worker wakes up every 50 us to poll
  // Queues whose heads are running tasks. The first is next.
  std::deque<std::shared_ptr<QueueState>> running_ ABSL_GUARDED_BY(mutex_);
  int stoppable_ ABSL_GUARDED_BY(mutex_) = 0;          // of the running tasks: ordinary kernels
  int urgent_kernels_ ABSL_GUARDED_BY(mutex_) = 0;     // of the running tasks
  bool stands_still_ ABSL_GUARDED_BY(mutex_) = false;  // workers must look again soon
  std::vector<std::shared_ptr<QueueState>> fence_waiters_ ABSL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point last_poll_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> workers_;
};

}  // namespace detshare::soft
