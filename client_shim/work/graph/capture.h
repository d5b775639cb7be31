// Stream capture: the work of a stream becomes nodes of a graph.
//
// A sequence begins on one stream, its origin. Other streams join it when they wait for an event
// that was recorded in it. A sequence knows for each of its streams the nodes on which the stream's
// next node depends. A stream or an event only holds the number of a sequence, so a call on a
// stream that does not capture costs one load.
//
// Functions here take GraphMutex() themselves, unless they say otherwise. Any thread may call them.
// They return CUDA's own errors. An operation that breaks the rules invalidates the sequence.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "client_shim/objects/objects.h"
#include "client_shim/work/graph/graph.h"
#include "client_shim/work/streams.h"

namespace detshare::shim {

// The value of Stream::capture of a legacy default stream while it must not be used.
inline constexpr uint64_t kImplicitCapture = UINT64_MAX;

inline bool Capturing(const Stream& stream) {
  return stream.capture.load(std::memory_order_acquire) != 0;
}

// Does what cuStreamBeginCapture does.
CUresult BeginCapture(Stream& stream, CUstreamCaptureMode mode);
// Does what cuStreamBeginCaptureToGraph does. `data` may be null: all edges are plain.
CUresult BeginCaptureToGraph(Stream& stream, CUgraph graph, const CUgraphNode* dependencies,
                             const CUgraphEdgeData* data, size_t count, CUstreamCaptureMode mode);
// Ends the sequence of which `stream` is the origin. A call on another stream of the sequence
// invalidates the sequence. A call on a thread that may not end it ends it with an error. *graph is
// null after every error, except errors of calls that ended nothing. `graph` may be null: a program
// that captures to its own graph has that.
CUresult EndCapture(Stream& stream, CUgraph* graph);

// A capturing stream as the program sees it.
struct CaptureInfo {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // Set for an active sequence. The arrays are valid until the stream is used again.
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* data = nullptr;
  size_t count = 0;
  bool plain = true;  // all edges are plain
};
// Does not change the capture. CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the stream is a legacy default
// stream that must not be used.
CUresult QueryCapture(Stream& stream, CaptureInfo* info);

// Does what cuStreamUpdateCaptureDependencies does.
CUresult UpdateCaptureDependencies(Stream& stream, const CUgraphNode* dependencies,
                                   const CUgraphEdgeData* data, size_t count, uint32_t flags);

struct CaptureOptions {
  bool programmatic = false;  // earlier kernels may overlap with it
  struct Record {
    Event* event = nullptr;
    CUgraphEdgeData data{};
  };
  std::span<const Record> records;  // the events that the node records
};
// Adds a node behind the nodes on which the capturing stream depends.
CUresult AddToCapture(Stream& stream, NodeBody body, const CaptureOptions& options = {});

// cuEventRecord on a capturing stream, and cuStreamWaitEvent if the stream captures or the event
// was recorded in a capture.
CUresult RecordInCapture(Event& event, Stream& stream);
CUresult WaitInCapture(Stream& stream, Event& event);

// For calls that CUDA does not allow on an event that was last recorded in a capture: returns the
// error and ends the sequence. (RefuseInCapture of streams.h does the same for streams.)
CUresult RefuseCapturedEvent(Event& event);
// For calls that wait for a whole context. CUDA_SUCCESS unless one of its streams captures.
CUresult RefuseContextInCapture(const Context& context);

// The number of sequences.
extern std::atomic<uint32_t> g_captures;
CUresult RefuseUnsafeCallSlowly();
// For calls that a capture does not see although it may depend on them (cuMemAlloc). CUDA_SUCCESS
// unless the mode of this thread and the modes of the sequences forbid such calls.
inline CUresult RefuseUnsafeCall() {
  return g_captures.load(std::memory_order_relaxed) == 0 ? CUDA_SUCCESS : RefuseUnsafeCallSlowly();
}

// Called when a stream ends, and when a context's default stream was made.
void LeaveCapture(Stream& stream);
void NoteDefaultStream(Stream& legacy);

// Finds the stream of a handle for a call that gives it work or waits for it. The caller handles
// capturing streams itself. All other calls use StreamForWork.
inline CUresult StreamForWorkOrCapture(CUstream handle, Stream** stream) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) [[unlikely]]
    return error;
  return ResolveStream(handle, stream);
}

}  // namespace detshare::shim
