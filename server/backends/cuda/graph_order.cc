#include "server/backends/cuda/graph_order.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/cuda_group.h"

namespace detshare::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// A submission is short, unless it waits for something that may need this thread.
constexpr std::chrono::seconds kMaxSubmission(1);

}  // namespace

void GraphOrder::AddConditional() {
  const MutexLock counting(&counting_);
  if (conditional_graphs_++ > 0) return;
  applies_.store(true);
  // What streams have in flight now may contain graphs that were not noted.
  const auto end = Clock::now() + kMaxSubmission;
  for (const std::shared_ptr<StreamState>& state : group_.Streams()) {
    // In this order: a submission that does not see `applies_` has ended, and is counted.
    while (state->entering.load() && Clock::now() < end) std::this_thread::yield();
    if (state->submitted.load() == state->completed.load()) continue;
    const MutexLock lock(&mutex_);
    Note(state->stream, /*conditional=*/false);
  }
}

void GraphOrder::RemoveConditional() {
  const MutexLock counting(&counting_);
  if (--conditional_graphs_ == 0) applies_.store(false);
}

CUresult GraphOrder::SubmitInOrder(CUstream stream, bool conditional,
                                   absl::FunctionRef<CUresult()> call) {
  const MutexLock lock(&mutex_);
  Prune();
  for (const InFlight& other : in_flight_) {
    if (other.stream == stream || (!conditional && !other.conditional)) continue;
    const CUresult result = group_.gpu.api.cuStreamWaitEvent(stream, other.end, 0);
    if (result != CUDA_SUCCESS) return result;
  }
  const CUresult result = call();
  return result == CUDA_SUCCESS ? Note(stream, conditional) : result;
}

void GraphOrder::Prune() {
  std::erase_if(in_flight_, [this](const InFlight& graphs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (group_.gpu.api.cuEventQuery(graphs.end) == CUDA_ERROR_NOT_READY) return false;
    spare_.push_back(graphs.end);
    return true;
  });
}

CUresult GraphOrder::Note(CUstream stream, bool conditional) {
  const DriverApi& api = group_.gpu.api;
  const auto same = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& graphs) {
    return graphs.stream == stream && graphs.conditional == conditional;
  });
  if (same != in_flight_.end()) return api.cuEventRecord(same->end, stream);
  CUevent event = nullptr;
  if (!spare_.empty()) {
    event = spare_.back();
    spare_.pop_back();
  } else if (const CUresult result = api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
             result != CUDA_SUCCESS) {
    return result;
  }
  const CUresult result = api.cuEventRecord(event, stream);
  if (result == CUDA_SUCCESS) {
    in_flight_.push_back({stream, conditional, event});
  } else {
    spare_.push_back(event);
  }
  return result;
}

}  // namespace detshare::cuda
