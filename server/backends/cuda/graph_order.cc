#include "server/backends/cuda/graph_order.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/cuda_group.h"

namespace detshare::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// A submission is short, unless it waits for something that may need this thread.
constexpr std::chrono::seconds kMaxSubmission(1);
// Graphs may be short, and so are the pauses between them.
constexpr std::chrono::microseconds kPoll(10);

}  // namespace

void GraphOrder::AddConditional() {
  const MutexLock counting(&counting_);
  if (conditional_graphs_++ > 0) return;
  if (group_.slice != nullptr) group_.slice->Share(true);
  applies_.store(true);
  // What streams have in flight now may contain graphs that have no place.
  const auto end = Clock::now() + kMaxSubmission;
  for (const std::shared_ptr<StreamState>& state : group_.Streams()) {
    // In this order: a submission that does not see `applies_` has ended, and is counted.
    while (state->entering.load() && Clock::now() < end) std::this_thread::yield();
    if (state->submitted.load() == state->completed.load()) continue;
    Note(Add({nullptr, state->stream, /*conditional=*/false}));
  }
}

void GraphOrder::RemoveConditional() {
  const MutexLock counting(&counting_);
  if (--conditional_graphs_ > 0) return;
  applies_.store(false);
  if (group_.slice != nullptr) group_.slice->Share(false);
}

absl::StatusOr<GraphOrder::Place> GraphOrder::Enter(CudaAddressSpace& space, const Launch& launch) {
  group_.Enter();
  Place place(*this, Add(launch));
  for (bool waited = false;; waited = true) {
    Obstacle obstacle;
    {
      const MutexLock lock(&mutex_);
      Prune();
      place.entry_->overtaken = false;
      obstacle = Before(place.entry_);
    }
    if (obstacle == Obstacle::kInFlight && group_.gpu.AnySpaceWaitsForTheHost())
      obstacle = Obstacle::kNone;
    if (obstacle == Obstacle::kNone && (!waited || space.ResumeCall())) return place;
    DETSHARE_RETURN_IF_ERROR(space.Ended());
    space.SuspendCall();
    std::this_thread::sleep_for(kPoll);
  }
}

GraphOrder::Place GraphOrder::EnterIdle(const Launch& launch) {
  const MutexLock lock(&mutex_);
  Prune();
  for (Entry& entry : entries_) entry.overtaken |= Conflict(launch, entry);
  return Place(*this, entries_.insert(entries_.begin(), {launch}));
}

bool GraphOrder::Overtaken(Entries::const_iterator entry) {
  const MutexLock lock(&mutex_);
  return entry->overtaken;
}

bool GraphOrder::Conflict(const Launch& first, const Launch& second) {
  if (first.conditional && second.conditional && first.executable != second.executable) return true;
  return (first.conditional || second.conditional) && first.stream != second.stream;
}

GraphOrder::Obstacle GraphOrder::Before(Entries::const_iterator entry) const {
  Obstacle obstacle = Obstacle::kNone;
  for (auto earlier = entries_.begin(); earlier != entry; ++earlier) {
    if (!Conflict(*earlier, *entry)) continue;
    if (earlier->end == nullptr) return Obstacle::kNotLaunched;
    obstacle = Obstacle::kInFlight;
  }
  return obstacle;
}

CUresult GraphOrder::WaitInStream(Entries::iterator entry) {
  {
    const MutexLock lock(&mutex_);
    for (auto earlier = entries_.begin(); earlier != entry; ++earlier) {
      if (!Conflict(*earlier, *entry)) continue;
      const CUresult result = group_.gpu.api.cuStreamWaitEvent(entry->stream, earlier->end, 0);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  EnterGate(*entry);
  return CUDA_SUCCESS;
}

void GraphOrder::EnterGate(Entry& entry) {
  GraphGate* const gate = group_.gpu.graph_gate.get();
  if (gate == nullptr || !entry.conditional) return;
  const int64_t began = gate->now();
  while (!gate->Enter(gate->now() - began)) std::this_thread::sleep_for(kPoll);
  if (group_.urgent) gate->EndHolds();
  entry.number = gate->Count(group_.urgent);
}

CUresult GraphOrder::LeaveGate(const Entry& entry) {
  if (entry.number == 0) return CUDA_SUCCESS;
  GraphGate& gate = *group_.gpu.graph_gate;
  const CUresult result = group_.gpu.api.cuStreamWriteValue64(
      entry.stream, reinterpret_cast<CUdeviceptr>(&gate.ended(group_.urgent)), entry.number,
      CU_STREAM_WRITE_VALUE_DEFAULT);
  gate.Leave();
  return result;
}

GraphOrder::Entries::iterator GraphOrder::Add(const Launch& launch) {
  const MutexLock lock(&mutex_);
  return entries_.insert(entries_.end(), {launch});
}

void GraphOrder::Prune() {
  std::erase_if(entries_, [this](const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (entry.end == nullptr) return false;
    if (group_.gpu.api.cuEventQuery(entry.end) == CUDA_ERROR_NOT_READY) return false;
    spare_.push_back(entry.end);
    return true;
  });
}

void GraphOrder::Forget(Entries::iterator entry) {
  // The GPU writes the numbers of launches in their order only if the next launch waits for this write.
  if (entry->number != 0) {
    Note(entry);
    return;
  }
  const MutexLock lock(&mutex_);
  entries_.erase(entry);
}

CUresult GraphOrder::Note(Entries::iterator entry) {
  const DriverApi& api = group_.gpu.api;
  const CUresult left =
      LeaveGate(*entry);  // before the event, behind which the next one may be launched
  const MutexLock lock(&mutex_);
  if (left != CUDA_SUCCESS) {
    entries_.erase(entry);
    return left;
  }
  // The end of this launch is also that of the stream's earlier ones, and who waits for one of those
  // and came before this one has been let in before it.
  const auto earlier = std::find_if(entries_.begin(), entry, [&](const Entry& other) {
    return other.end != nullptr && other.stream == entry->stream &&
           other.conditional == entry->conditional &&
           (!other.conditional || other.executable == entry->executable);
  });
  CUevent event = nullptr;
  if (earlier != entry) {
    event = earlier->end;
    entries_.erase(earlier);
  } else if (!spare_.empty()) {
    event = spare_.back();
    spare_.pop_back();
  } else if (const CUresult result = api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
             result != CUDA_SUCCESS) {
    entries_.erase(entry);
    return result;
  }
  const CUresult result = api.cuEventRecord(event, entry->stream);
  if (result == CUDA_SUCCESS) {
    entry->end = event;
  } else {
    spare_.push_back(event);
    entries_.erase(entry);
  }
  return result;
}

}  // namespace detshare::cuda
