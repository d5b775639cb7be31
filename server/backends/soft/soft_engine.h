// The engine of the software GPU: queues of operations, and worker threads that do the work at
// their heads.
//
//   queue:  [ op ][ op ][ op ] ...
//             ^ the head; one at a time
//
//   task    running: workers take pieces of it, in turns with the other tasks
//   fence   written at once
//   memory  a word of the session's memory is written at once, or the queue stands still until it
//           has the awaited value
//   record  its point is reached: queues that wait for it go on
//   wait    the queue stands still until the point is reached, or the fence has its value
//
// Tasks run at the same time, whatever queues they come from: each piece that a worker takes is
// bounded, and the workers go around the running tasks, so that a kernel that never ends starves
// nobody. With nothing to do the workers sleep; while some queue waits for a fence that only the
// host can write, or for a word of memory, one of them looks every 50 us.
//
// After a fault of a space its work is skipped and its fences are not written: they would say that
// the work is done. Markers are reached, so that queues go on for whoever uses them next. Work of
// an abandoned space is skipped, too; its fences are written.
//
// One mutex guards queues, points and tasks' bookkeeping; work itself is done without it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "coroutine_runtime/memory_op.h"
#include "server/backends/soft/soft_memory.h"
#include "server/backends/soft/soft_timing.h"

namespace detshare::soft {

struct Point;

// Work that takes long enough to be done in pieces, by several threads at once.
class Job {
 public:
  virtual ~Job() = default;

  // A bounded part of the work: what it means is the task's own affair.
  struct Chunk {
    uint64_t begin = 0, end = 0;
    void* context = nullptr;
  };
  enum class Claimed { kChunk, kNothing, kFinished };

  // With the engine's lock. kNothing: all of it is in others' hands at the moment. kFinished: all
  // is done (once nothing is in others' hands).
  virtual Claimed Claim(Chunk* chunk) = 0;
  // With the engine's lock. Whether Claim would give another piece.
  virtual bool HasMore() const = 0;
  // Without the lock, on any thread.
  virtual void Perform(Chunk* chunk) = 0;
  // With the lock, after Perform. True when this was the last piece.
  virtual bool Finish(Chunk* chunk) = 0;
  // Without the lock, once, when all is done and before anything that follows on the queue: effects
  // that others see, the task's place in virtual time.
  virtual void Conclude(Timeline& timeline, const Timeline::EntryPtr& entry) = 0;
  // With the lock, in place of all the above when the work is skipped: a point that is to be
  // reached nevertheless, null for none. Nothing follows on the queue of a task that has one.
  virtual std::shared_ptr<Point> PointIfSkipped();
  // Whether it is so short that the submitting thread had better do it itself.
  virtual bool IsShort() const { return false; }
};

struct QueueState;

// A point in a queue's work. Guarded by the mutex of that queue's engine, but for the time, and
// `reached`, which queues of other engines look at as at a fence: release, publishes the work
// before the point.
struct Point {
  std::atomic<uint64_t> reached{0};
  bool late = false;  // its record is submitted after waits for it; constant
  std::vector<std::shared_ptr<QueueState>> waiters;
  std::shared_ptr<TimePoint> time = std::make_shared<TimePoint>();
};

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
};

// The engine's side of a queue; guarded by the engine's mutex.
struct QueueState {
  std::deque<Operation> operations;
  bool busy = false;     // the head is a task that is running
  bool waiting = false;  // the head waits for a point or a fence
  std::shared_ptr<Timeline::Track> track = std::make_shared<Timeline::Track>();
};

inline std::shared_ptr<Point> Job::PointIfSkipped() { return nullptr; }

class Engine {
 public:
  Engine(int worker_threads, Timeline& timeline);
  // Work that is still queued is dropped.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // One thread at a time for each queue.
  void Submit(const std::shared_ptr<QueueState>& queue, Operation operation);
  bool Reached(const Point& point);
  // A space was abandoned: what waits in its name need not any more.
  void Wake();

 private:
  using Lock = std::unique_lock<std::mutex>;

  void Work();
  // Does what can be done at once at the heads of `first` and of queues that this sets free.
  void Advance(std::shared_ptr<QueueState> first);
  // `operation` has been done or skipped.
  void Retire(QueueState& queue);
  // Takes a piece of some task and does it. False when there is none.
  bool RunOneChunk(Lock& lock);
  void ConcludeHead(const std::shared_ptr<QueueState>& queue, Lock& lock);
  // The head waits for what nobody announces.
  void WaitAndPoll(const std::shared_ptr<QueueState>& queue);
  void PollFences();

  Timeline& timeline_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  int idle_ = 0;          // workers that sleep
  bool polling_ = false;  // one of them wakes up by itself to look at fences
  std::deque<std::shared_ptr<QueueState>>
      running_;  // queues whose heads are running tasks, in turn
  std::vector<std::shared_ptr<QueueState>> fence_waiters_;
  std::chrono::steady_clock::time_point last_poll_;
  std::vector<std::thread> workers_;
};

}  // namespace detshare::soft
