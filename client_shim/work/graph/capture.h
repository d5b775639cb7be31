// Stream capture: work of a stream becomes nodes of a graph.
//
// A sequence begins on one stream, its origin; others join when they wait for an event that was
// recorded in it. Each stream of a sequence has the nodes that its next node will depend on. What a
// stream or an event holds of that is the number of a sequence, so that calls of streams that do
// not capture pay one load.
//
// Functions here take GraphMutex() themselves, unless they say otherwise. CUDA's errors are
// returned as CUDA has them; an operation that breaks the rules invalidates the sequence.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "client_shim/objects/objects.h"
#include "client_shim/work/graph/graph.h"
#include "client_shim/work/streams.h"

namespace detshare::shim {

// Stream::capture of a legacy default stream that must not be used now.
inline constexpr uint64_t kImplicitCapture = UINT64_MAX;

inline bool Capturing(const Stream& stream) {
  return stream.capture.load(std::memory_order_acquire) != 0;
}

CUresult BeginCapture(Stream& stream, CUstreamCaptureMode mode);
// `data` may be null: plain edges.
CUresult BeginCaptureToGraph(Stream& stream, CUgraph graph, const CUgraphNode* dependencies,
                             const CUgraphEdgeData* data, size_t count, CUstreamCaptureMode mode);
// *graph is null with every error but those of a call that ended nothing. A stream that is not the
// sequence's origin invalidates it; a thread that may not end it ends it with an error.
CUresult EndCapture(Stream& stream, CUgraph* graph);

struct CaptureInfo {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // Of an active sequence. The arrays stay until something is done with the stream.
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* data = nullptr;
  size_t count = 0;
  bool plain = true;  // all edges are
};
CUresult QueryCapture(Stream& stream, CaptureInfo* info);

CUresult UpdateCaptureDependencies(Stream& stream, const CUgraphNode* dependencies,
                                   const CUgraphEdgeData* data, size_t count, uint32_t flags);

struct CaptureOptions {
  bool programmatic = false;  // kernels before it may be overlapped
  struct Record {
    Event* event = nullptr;
    CUgraphEdgeData data{};
  };
  std::span<const Record> records;  // events that are recorded by the node
};
// Adds a node behind what the capturing stream depends on.
CUresult AddToCapture(Stream& stream, NodeBody body, const CaptureOptions& options = {});

// cuEventRecord on a capturing stream, and cuStreamWaitEvent where stream or event capture.
CUresult RecordInCapture(Event& event, Stream& stream);
CUresult WaitInCapture(Stream& stream, Event& event);

// For calls that an event does not allow which was last recorded in a capture: the error, and the
// end of the sequence. (RefuseInCapture of streams.h does the same for streams.)
CUresult RefuseCapturedEvent(Event& event);
// For calls that wait for a whole context: CUDA_SUCCESS unless one of its streams captures.
CUresult RefuseContextInCapture(const Context& context);

// How many sequences there are.
extern std::atomic<uint32_t> g_captures;
CUresult RefuseUnsafeCallSlowly();
// For calls that a capture does not see though it may depend on them (cuMemAlloc): CUDA_SUCCESS
// unless the mode of this thread and those of the sequences forbid them now.
inline CUresult RefuseUnsafeCall() {
  return g_captures.load(std::memory_order_relaxed) == 0 ? CUDA_SUCCESS : RefuseUnsafeCallSlowly();
}

// A stream ends, or a context's default stream was made.
void LeaveCapture(Stream& stream);
void NoteDefaultStream(Stream& legacy);

// The stream that a handle means, for a call that gives it work or waits for it, and whose
// implementation knows what to do when the stream captures. StreamForWork is for all others.
inline CUresult StreamForWorkOrCapture(CUstream handle, Stream** stream) {
  if (thread_state.in_host_function) [[unlikely]]
    return CUDA_ERROR_NOT_PERMITTED;
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) [[unlikely]]
    return error;
  return ResolveStream(handle, stream);
}

}  // namespace detshare::shim
