#include "coroutine_runtime/stream_table.h"

#include <algorithm>
#include <utility>

#include "policy/session_caps.h"

namespace detshare {

absl::Status StreamTable::Create(StreamId id, ContextId context_id, const StreamOptions& options) {
  if (id == 0 || context_id == 0 || streams_.contains(id)) {
    return CudaError(kCudaErrorInvalidValue, "the id of a new stream is 0 or in use");
  }
  Reclaim();
  // Retired streams have queues, and the pool limits those.
  if (streams_.size() >= kMaxStreams ||
      (contexts_.size() >= kMaxContexts && !contexts_.contains(context_id))) {
    return CudaError(kCudaErrorOutOfMemory, "too many streams or contexts");
  }
  std::unique_ptr<LogicalContext>& slot = contexts_[context_id];
  if (slot == nullptr) slot = std::make_unique<LogicalContext>();
  LogicalContext& context = *slot;
  if (options.legacy_default && context.legacy != nullptr) {
    return CudaError(kCudaErrorInvalidValue, "the context has its legacy default stream already");
  }
  auto stream = std::make_unique<LogicalStream>();
  stream->serial = ++created_;
  stream->context = &context;
  stream->legacy = options.legacy_default;
  stream->blocking = !options.legacy_default && !options.non_blocking;
  stream->priority = options.priority;
  if (stream->legacy) context.legacy = stream.get();
  context.streams.push_back(stream.get());
  context.dirty.reserve(context.streams.capacity());
  streams_.emplace(id, std::move(stream));
  return absl::OkStatus();
}

LogicalContext* StreamTable::FindContext(ContextId id) const {
  const auto found = contexts_.find(id);
  return found == contexts_.end() ? nullptr : found->second.get();
}

void StreamTable::Retire(StreamId id) {
  const auto found = streams_.find(id);
  found->second->retired = true;
  retired_.push_back(std::move(found->second));
  streams_.erase(found);
}

void StreamTable::Reclaim() {
  std::erase_if(retired_, [](const std::unique_ptr<LogicalStream>& stream) {
    if (stream->queue != nullptr && (!stream->fence || !stream->fence.point().reached())) {
      return false;
    }
    stream->ReturnQueues();
    std::erase(stream->context->streams, stream.get());
    std::erase(stream->context->dirty, stream.get());
    return true;
  });
}

void StreamTable::Ended::ReturnQueues() {
  for (std::unique_ptr<LogicalStream>& stream : streams) stream->ReturnQueues();
  for (PooledQueue& collector : context->collectors) collector.ReturnIdle();
}

StreamTable::Ended StreamTable::End(ContextId id) {
  Ended ended;
  const auto found = contexts_.find(id);
  ended.context = std::move(found->second);
  contexts_.erase(found);
  for (auto stream = streams_.begin(); stream != streams_.end();) {
    const auto current = stream++;
    if (current->second->context != ended.context.get()) continue;
    ended.streams.push_back(std::move(current->second));
    streams_.erase(current);
  }
  for (std::unique_ptr<LogicalStream>& stream : retired_) {
    if (stream->context == ended.context.get()) ended.streams.push_back(std::move(stream));
  }
  std::erase(retired_, nullptr);
  return ended;
}

}  // namespace detshare
