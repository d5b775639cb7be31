// The shim's contexts, streams and events. They live in HandleTables, so their memory always holds
// an object of the same type. Fields that one thread may read while another destroys the object are
// atomic.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "client_shim/base/handle_table.h"
#include "client_shim/objects/local_storage.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"
#include "proto/wire/launch_hints.h"

namespace detshare::shim {

// Raises a value that only grows. Release: publishes what the value stands for.
inline void RaiseTo(std::atomic<uint64_t>& value, uint64_t to) {
  uint64_t seen = value.load(std::memory_order_relaxed);
  while (seen < to && !value.compare_exchange_weak(seen, to, std::memory_order_release,
                                                   std::memory_order_relaxed)) {
  }
}

inline constexpr uint32_t kLimitCount = 10;  // CUlimit values that are known

// A lock for a few instructions. Threads contend for it only if they use one object at the same
// moment.
class TinyLock {
 public:
  void lock();
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

struct Stream;

struct Context {
  std::atomic<uint64_t> handle{0};  // CUcontext; 0 while this is no context
  // The handle until a thread begins to destroy the context. Only that thread ends it.
  std::atomic<uint64_t> destroyable{0};
  std::atomic<ContextId> id{0};  // changes with each life of the context; 0: a primary context
                                 // that is not retained
  uint32_t index = 0;
  uint16_t device = 0;
  bool primary = false;
  std::atomic<uint32_t> flags{0};
  uint32_t api_version = 0;
  std::atomic<uint32_t> attached{0};  // uses by cuCtxAttach
  std::atomic<uint32_t> cache_config{0};
  std::atomic<uint32_t> shared_config{0};
  std::array<std::atomic<uint64_t>, kLimitCount> limits{};
  std::atomic<Stream*> legacy{nullptr};  // its default stream, made at the first use
  // All work of the context is complete below `complete`, and all work of its blocking streams
  // below `blocking_complete`. Both are ring positions + 1 and only grow.
  std::atomic<uint64_t> complete{0};
  std::atomic<uint64_t> blocking_complete{0};
  std::mutex mutex;  // for making `legacy`; guards the next four fields (work/context_events.h)
  CUstream collector = nullptr, gate = nullptr;
  CUevent ordering = nullptr;
  std::atomic<bool> gated{false};  // there is a gate, at which new streams wait
  // The CUgreenCtx of which this is the context. Its id is then that of its primary context.
  std::atomic<uint64_t> green{0};
  LocalStorage storage;
};

// The synchronization policy of a stream that was given none, as the driver reports it.
inline constexpr uint32_t kNoSyncPolicy = UINT32_MAX;

struct Stream {
  std::atomic<uint64_t> handle{0};  // CUstream; that of a default stream stays inside the shim
  uint64_t unique_id = 0;           // cuStreamGetId
  StreamId id = 0;
  uint32_t index = 0;
  Context* context = nullptr;
  ContextId context_id = 0;
  uint16_t device = 0;
  uint32_t flags = 0;  // CU_STREAM_NON_BLOCKING or 0
  std::atomic<int> priority{0};
  // Whether launches on the stream need attributes of the stream: hints, or a priority that changed
  // after the stream was made. Release: publishes the hints.
  std::atomic<bool> has_attributes{false};
  std::atomic<bool> priority_changed{false};
  bool legacy = false;
  bool per_thread = false;
  std::atomic<uint32_t> sync_policy{kNoSyncPolicy};  // CUsynchronizationPolicy, or kNoSyncPolicy
  // The capture sequence that the stream's work is added to (work/graph/capture.h). 0: none.
  // kImplicitCapture: this is a legacy default stream, and a stream that synchronises with it
  // captures.
  std::atomic<uint64_t> capture{0};

  // The stream's known progress, in ring positions + 1 (0: nothing yet). Both only grow.
  // The stream's last record. For a default stream, also the records of the streams that it waits
  // for.
  std::atomic<uint64_t> work{0};
  std::atomic<uint64_t> complete{0};  // everything below this is complete

  TinyLock lock;  // orders the signals, and guards the fields below
  wire::LaunchHints hints{};
  FenceIndex fence = kNoFence;
  uint64_t signalled = 0;           // the last value that was asked for
  uint64_t signalled_position = 0;  // the ring position + 1 that this value covers
  // For host functions: the stream signals `host_reached` and waits for `host_resume`. Made with
  // the first host function.
  FenceIndex host_reached = kNoFence;
  FenceIndex host_resume = kNoFence;
  uint64_t host_reached_value = 0;
  uint64_t host_resume_value = 0;
};

struct Event {
  std::atomic<uint64_t> handle{0};
  EventId id = 0;
  uint32_t index = 0;
  Context* context = nullptr;
  ContextId context_id = 0;
  uint16_t device = 0;
  uint32_t flags = 0;
  // Fence in the upper 24 bits, value in the lower 40. The last recording is complete when the
  // fence has reached the value. 0: never recorded. kUnsignalled instead of a fence: only the
  // daemon knows whether the recording is complete, and the value tells recordings apart.
  std::atomic<uint64_t> point{0};
  static constexpr FenceIndex kUnsignalled = 0xFFFFFE;
  // Whether the program has asked about the event. Its later recordings then signal a fence, if one
  // can be spared. Most events only order streams, and a signal costs more than a recording.
  std::atomic<bool> asked{false};
  // The capture sequence in which the event was last recorded. It may be over. 0: none.
  std::atomic<uint64_t> capture{0};
  TinyLock lock;                         // held while the event is recorded
  bool foreign_fence = false;            // the fence of `point` belongs to an executable graph
  uint32_t unsignalled = 0;              // recordings without a fence, also of earlier events here
  uint64_t recorded_stream = 0;          // unique_id of the stream of the last recording
  std::atomic<Stream*> stream{nullptr};  // where that stream is or was
  std::atomic<uint64_t> recorded_position{0};  // ring position + 1

  // Whether other processes may use the event, too. Then only the daemon knows its state, and
  // `point` is 0.
  bool interprocess() const { return (flags & CU_EVENT_INTERPROCESS) != 0; }

  // Makes, tests and takes apart a value of `point`.
  static uint64_t Pack(FenceIndex fence, uint64_t value) {
    return uint64_t{fence + 1} << 40 | value;
  }
  static bool Signalled(uint64_t point) { return point != 0 && FenceOf(point) != kUnsignalled; }
  static FenceIndex FenceOf(uint64_t point) { return static_cast<FenceIndex>(point >> 40) - 1; }
  static uint64_t ValueOf(uint64_t point) { return point & ((uint64_t{1} << 40) - 1); }
};

// The tables of the process. Never destroyed.
struct Objects {
  HandleTable<Context> contexts;
  HandleTable<Stream> streams;
  HandleTable<Event> events;
};
Objects& objects();

// Called once, at initialisation.
void CreateObjects();

}  // namespace detshare::shim
