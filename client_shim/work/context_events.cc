#include "client_shim/work/context_events.h"

#include <mutex>
#include <vector>

#include "client_shim/work/event_work.h"
#include "client_shim/work/streams.h"

namespace detshare::shim {
namespace {

CUstream HandleOf(const Stream& stream) {
  return reinterpret_cast<CUstream>(stream.handle.load(std::memory_order_acquire));
}

// Needs context.mutex. Makes a stream of the context that the program does not see, and the event
// that orders other streams with it.
CUresult MakeHidden(Context& context, CUstream* stream) {
  if (context.ordering == nullptr) {
    const CUresult result = CreateEvent(context, CU_EVENT_DISABLE_TIMING, &context.ordering);
    if (result != CUDA_SUCCESS) return result;
  }
  return *stream != nullptr ? CUDA_SUCCESS
                            : CreateStream(context, CU_STREAM_NON_BLOCKING, 0, stream);
}

// Needs context.mutex. Lets `second` go on behind the work that `first` has so far.
CUresult Order(Context& context, CUstream first, CUstream second) {
  const CUresult result = RecordOnStream(context.ordering, first, CU_EVENT_RECORD_DEFAULT);
  return result != CUDA_SUCCESS ? result : WaitOnStream(second, context.ordering, 0);
}

std::vector<CUstream> StreamsOf(const Context& context) {
  const ContextId id = context.id.load(std::memory_order_acquire);
  const bool green = context.green.load(std::memory_order_acquire) != 0;
  std::vector<CUstream> streams;
  objects().streams.ForEach([&](const Stream& stream) {
    if (green ? stream.context != &context : stream.context_id != id) return;
    const CUstream handle = HandleOf(stream);
    if (handle != context.collector && handle != context.gate) streams.push_back(handle);
  });
  return streams;
}

}  // namespace

CUresult RecordContext(Context& context, Event& event) {
  const std::lock_guard lock(context.mutex);
  CUresult result = MakeHidden(context, &context.collector);
  if (result != CUDA_SUCCESS) return result;
  for (const CUstream stream : StreamsOf(context)) {
    result = Order(context, stream, context.collector);
    // Another thread may have destroyed the stream in the meantime.
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_HANDLE) return result;
  }
  return RecordOnStream(reinterpret_cast<CUevent>(event.handle.load(std::memory_order_acquire)),
                        context.collector, CU_EVENT_RECORD_DEFAULT);
}

CUresult HoldContext(Context& context, CUevent event) {
  const std::lock_guard lock(context.mutex);
  const bool first = context.gate == nullptr;
  CUresult result = MakeHidden(context, &context.gate);
  if (result != CUDA_SUCCESS) return result;
  if (first) context.gated.store(true, std::memory_order_release);
  result = WaitOnStream(context.gate, event, 0);
  if (result != CUDA_SUCCESS) return result;
  for (const CUstream stream : StreamsOf(context)) {
    result = WaitOnStream(stream, event, 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_HANDLE) return result;
  }
  return CUDA_SUCCESS;
}

CUresult HoldNewStream(Context& context, Stream& stream) {
  const std::lock_guard lock(context.mutex);
  return context.gate == nullptr ? CUDA_SUCCESS : Order(context, context.gate, HandleOf(stream));
}

}  // namespace detshare::shim
