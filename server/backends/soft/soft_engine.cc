#include "server/backends/soft/soft_engine.h"

#include <algorithm>
#include <utility>

#include "coroutine_runtime/status_cuda.h"

namespace detshare::soft {
namespace {

constexpr std::chrono::microseconds kPollInterval(50);

// Carries out a write, or checks whether a wait is over. Returns whether the queue goes on. Kernels
// and the host use the same words, so each access is atomic. The release store publishes earlier
// writes to the kernel, queue or host that reads the word.
template <typename Word>
bool DoMemoryOpOn(const MemoryOp& operation) {
  Word* const word = reinterpret_cast<Word*>(operation.address);
  if (operation.is_wait()) return operation.Satisfied(__atomic_load_n(word, __ATOMIC_ACQUIRE));
  __atomic_store_n(word, static_cast<Word>(operation.value), __ATOMIC_RELEASE);
  return true;
}

bool DoMemoryOp(SpaceState& space, const MemoryOp& operation) {
  const AccessGate::Pass pass(space.gate());
  // The session owned the memory when it submitted the operation, but may have freed it since.
  if (!space.ranges().Covers(operation.address, static_cast<uint64_t>(operation.bytes()))) {
    space.SetFault(kCudaErrorIllegalAddress, "an operation accesses freed memory");
    return true;
  }
  return operation.bytes() == 8 ? DoMemoryOpOn<uint64_t>(operation)
                                : DoMemoryOpOn<uint32_t>(operation);
}

}  // namespace

Engine::Engine(int worker_threads, Timeline& timeline, OrdinaryGroup* ordinary)
    : timeline_(timeline), ordinary_(ordinary) {
  for (int i = 0; i < worker_threads; ++i) workers_.emplace_back([this] { Work(); });
}

Engine::~Engine() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.SignalAll();
  for (std::thread& worker : workers_) worker.join();
}

void Engine::Submit(const std::shared_ptr<QueueState>& queue, Operation operation) {
  if (operation.space != nullptr) operation.space->BeginWork();
  if (operation.owner == nullptr) operation.owner = operation.space;
  if (operation.owner != nullptr) {
    const uint64_t extra = operation.job != nullptr ? operation.job->extra_bytes() : 0;
    operation.held = HeldMemory(std::move(operation.owner), kOperationBytes + extra);
  }
  const MutexLock lock(&mutex_);
  if (operation.kind != Operation::Kind::kWriteFence &&
      operation.kind != Operation::Kind::kWaitFence && operation.kind != Operation::Kind::kMemory) {
    operation.entry = timeline_.Submit(queue->track);
  }
  const bool alone = queue->operations.empty();
  queue->operations.push_back(std::move(operation));
  if (!alone) return;

  const Operation& head = queue->operations.front();
  if (head.kind == Operation::Kind::kJob && head.job->IsShort() && !head.space->stopped()) {
    const std::shared_ptr<Job> job = head.job;
    queue->busy = true;
    Job::Chunk chunk;
    while (job->Claim(&chunk) == Job::Claimed::kChunk) {
      mutex_.Unlock();
      job->Perform(&chunk);
      mutex_.Lock();
      if (job->Finish(&chunk)) break;
    }
    ConcludeHead(queue);
    return;
  }
  Advance(queue);
}

bool Engine::Reached(const Point& point) {
  const MutexLock lock(&mutex_);
  return point.reached.load(std::memory_order_relaxed) != 0;
}

void Engine::Wake() {
  const MutexLock lock(&mutex_);
  PollFences();
  wake_.Signal();
}

void Engine::Retire(QueueState& queue) {
  // The work counts as done only after its objects are released.
  const std::shared_ptr<SpaceState> space = std::move(queue.operations.front().space);
  queue.operations.pop_front();
  if (space != nullptr) space->EndWork();
}

void Engine::Advance(std::shared_ptr<QueueState> first) {
  std::vector<std::shared_ptr<QueueState>> free;
  free.push_back(std::move(first));
  while (!free.empty()) {
    const std::shared_ptr<QueueState> queue = std::move(free.back());
    free.pop_back();
    while (!queue->busy && !queue->waiting && !queue->operations.empty()) {
      Operation& head = queue->operations.front();
      switch (head.kind) {
        case Operation::Kind::kJob:
          if (head.space->stopped()) {
            timeline_.EndNothing(head.entry);
            std::shared_ptr<Point> point = head.job->PointIfSkipped();
            Retire(*queue);
            if (point == nullptr) break;
            Operation record;
            record.kind = Operation::Kind::kRecord;
            record.point = std::move(point);
            record.entry = timeline_.Submit(queue->track);
            queue->operations.push_back(std::move(record));
            break;
          }
          queue->busy = true;
          Begin(queue);
          if (idle_ > 0) wake_.Signal();
          break;
        case Operation::Kind::kWriteFence:
          // Publishes all earlier work of this queue to the client or thread that polls the fence.
          // After a fault the fence stays unwritten, so that lost work does not count as done: the
          // daemon reports the fault first and then releases the waiters.
          if (!head.space->faulted()) {
            head.fence->store(head.value, std::memory_order_release);
            head.space->Announce();
          }
          Retire(*queue);
          break;
        case Operation::Kind::kWaitFence:
          // Pairs with the host's release store: later work of this queue sees everything that the
          // host wrote before the fence.
          if ((head.space != nullptr && head.space->abandoned()) ||
              head.awaited->load(std::memory_order_acquire) >= head.value) {
            Retire(*queue);
          } else {
            WaitAndPoll(queue);
          }
          break;
        case Operation::Kind::kMemory:
          if (head.space->stopped() || DoMemoryOp(*head.space, head.memory)) {
            Retire(*queue);
          } else {
            WaitAndPoll(queue);
          }
          break;
        case Operation::Kind::kRecord: {
          const std::shared_ptr<Point> point = head.point;
          timeline_.EndRecord(head.entry, point->time);
          point->reached.store(1, std::memory_order_release);
          for (std::shared_ptr<QueueState>& waiter : point->waiters) {
            waiter->waiting = false;
            free.push_back(std::move(waiter));
          }
          point->waiters.clear();
          Retire(*queue);
          break;
        }
        case Operation::Kind::kWait:
          if (head.point->reached.load(std::memory_order_relaxed) != 0) {
            timeline_.EndWait(head.entry, head.point->time, head.point->late);
            Retire(*queue);
          } else {
            queue->waiting = true;
            head.point->waiters.push_back(queue);
          }
          break;
      }
    }
  }
}

void Engine::WaitAndPoll(const std::shared_ptr<QueueState>& queue) {
  queue->waiting = true;
  fence_waiters_.push_back(queue);
  // A sleeping worker must begin to poll.
  if (idle_ > 0 && !polling_) wake_.Signal();
}

void Engine::ConcludeHead(const std::shared_ptr<QueueState>& queue) {
  const std::shared_ptr<Job> job = queue->operations.front().job;
  const Timeline::EntryPtr entry = queue->operations.front().entry;
  mutex_.Unlock();
  job->Conclude(timeline_, entry);
  mutex_.Lock();
  queue->busy = false;
  Retire(*queue);
  Advance(queue);
}

bool Engine::RunsKernel(const QueueState& queue) {
  return queue.operations.front().job->RunsOnSms();
}

bool Engine::IsStoppable(const QueueState& queue) const {
  return ordinary_ != nullptr && !queue.track->urgent && RunsKernel(queue);
}

void Engine::Begin(const std::shared_ptr<QueueState>& queue) {
  running_.push_back(queue);
  if (ordinary_ == nullptr || !RunsKernel(*queue)) return;
  if (queue->track->urgent) {
    if (urgent_kernels_++ == 0) ordinary_->SetUrgentWorks(true);
  } else if (stoppable_++ == 0) {
    ordinary_->SetWorks(true);
  }
}

void Engine::End(const std::shared_ptr<QueueState>& queue) {
  std::erase(running_, queue);
  if (ordinary_ == nullptr || !RunsKernel(*queue)) return;
  if (queue->track->urgent) {
    if (--urgent_kernels_ == 0) ordinary_->SetUrgentWorks(false);
  } else if (--stoppable_ == 0) {
    ordinary_->SetWorks(false);
  }
}

bool Engine::RunOneChunk() {
  const bool stands_still = stoppable_ > 0 && !ordinary_->Progresses();
  stands_still_ = stands_still;
  for (size_t tries = running_.size(); tries > 0; --tries) {
    // The task goes to the end of the line, so that the next worker begins with the next task.
    const std::shared_ptr<QueueState> queue = std::move(running_.front());
    running_.pop_front();
    running_.push_back(queue);
    if (stands_still && IsStoppable(*queue)) continue;
    const std::shared_ptr<Job> job = queue->operations.front().job;

    Job::Chunk chunk;
    const Job::Claimed claimed = job->Claim(&chunk);
    if (claimed == Job::Claimed::kNothing) continue;
    bool finished = claimed == Job::Claimed::kFinished;
    if (!finished) {
      const bool nobody_looks = !fence_waiters_.empty() && !polling_;
      if (idle_ > 0 && (job->HasMore() || nobody_looks || running_.size() > 1)) wake_.Signal();
      mutex_.Unlock();
      job->Perform(&chunk);
      mutex_.Lock();
      finished = job->Finish(&chunk);
    }
    if (finished) {
      End(queue);
      ConcludeHead(queue);
    }
    return true;
  }
  return false;
}

void Engine::PollFences() {
  last_poll_ = std::chrono::steady_clock::now();
  std::vector<std::shared_ptr<QueueState>> waiters = std::exchange(fence_waiters_, {});
  for (std::shared_ptr<QueueState>& queue : waiters) {
    queue->waiting = false;
    Advance(std::move(queue));  // back into fence_waiters_ if its wait goes on
  }
}

void Engine::Work() {
  const MutexLock lock(&mutex_);
  while (!stopping_) {
    if (!fence_waiters_.empty() && std::chrono::steady_clock::now() - last_poll_ >= kPollInterval)
      PollFences();
    if (RunOneChunk()) continue;
    ++idle_;
    if ((!fence_waiters_.empty() || stands_still_) && !polling_) {
      polling_ = true;
      wake_.WaitFor(&mutex_, kPollInterval);
      polling_ = false;
    } else {
      wake_.Wait(&mutex_);
    }
    --idle_;
  }
}

}  // namespace detshare::soft
