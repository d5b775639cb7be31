// Contexts, streams and events as the shim holds them. They live in HandleTables, so their memory
// stays what it is for ever; what may be read while another thread destroys the object is atomic.
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

// Raises a value that only grows.
inline void RaiseTo(std::atomic<uint64_t>& value, uint64_t to) {
  uint64_t seen = value.load(std::memory_order_relaxed);
  while (seen < to && !value.compare_exchange_weak(seen, to, std::memory_order_release,
                                                   std::memory_order_relaxed)) {
  }
}

inline constexpr uint32_t kLimitCount = 10;  // CUlimit values that are known

// A lock for a few instructions that two threads contend for only when they use one object at the
// same moment.
class TinyLock {
 public:
  void lock();
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

struct Stream;

struct Context {
  std::atomic<uint64_t> handle{0};  // CUcontext; 0 while it is no context
  std::atomic<ContextId> id{0};     // of its life; 0: a primary context that nobody retains
  uint32_t index = 0;
  uint16_t device = 0;
  bool primary = false;
  std::atomic<uint32_t> flags{0};
  uint32_t api_version = 0;
  std::atomic<uint32_t> attached{0};  // uses by cuCtxAttach
  std::atomic<uint32_t> cache_config{0};
  std::atomic<uint32_t> shared_config{0};
  std::array<std::atomic<uint64_t>, kLimitCount> limits{};
  std::atomic<Stream*> legacy{nullptr};  // its default stream, made when first used
  // All work, and that of its blocking streams, is complete up to these ring positions + 1. They
  // only grow.
  std::atomic<uint64_t> complete{0};
  std::atomic<uint64_t> blocking_complete{0};
  std::mutex mutex;  // makes `legacy`, and guards what follows (work/context_events.h)
  CUstream collector = nullptr, gate = nullptr;
  CUevent ordering = nullptr;
  std::atomic<bool> gated{false};  // there is a gate, at which new streams wait
  // The CUgreenCtx that this context stands for; its id is then that of its primary context.
  std::atomic<uint64_t> green{0};
  LocalStorage storage;
};

struct Stream {
  std::atomic<uint64_t> handle{0};  // CUstream; for default streams only internal
  uint64_t unique_id = 0;           // cuStreamGetId
  StreamId id = 0;
  uint32_t index = 0;
  Context* context = nullptr;
  ContextId context_id = 0;
  uint16_t device = 0;
  uint32_t flags = 0;  // CU_STREAM_NON_BLOCKING or 0
  std::atomic<int> priority{0};
  // Whether its launches have to say more than they do by themselves: a priority that was changed
  // since the stream was made, or hints. Release: publishes the hints.
  std::atomic<bool> has_attributes{false};
  std::atomic<bool> priority_changed{false};
  bool legacy = false;
  bool per_thread = false;
  std::atomic<uint32_t> sync_policy{0};  // CUsynchronizationPolicy
  // The capture sequence that its work is added to (work/graph/capture.h); 0: none.
  // kImplicitCapture for a legacy default stream while one that synchronises with it captures.
  std::atomic<uint64_t> capture{0};

  // What is known of its progress, in ring positions + 1 (0: nothing yet). They only grow.
  std::atomic<uint64_t> work{
      0};  // of its last record; of a default stream, also those of the streams that it waits for
  std::atomic<uint64_t> complete{0};  // everything up to here is complete

  TinyLock lock;  // orders the signals, and guards what follows
  wire::LaunchHints hints{};
  FenceIndex fence = kNoFence;
  uint64_t signalled = 0;           // the last value that was asked for ...
  uint64_t signalled_position = 0;  // ... and what it covers
  // Host functions: the stream signals `host_reached` and waits for `host_resume`. Made with the
  // first one.
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
  // Fence in the upper 24 bits, value in the lower 40: reached means that the last recording is
  // complete. 0: never recorded. kUnsignalled instead of a fence: only the daemon knows, and the
  // value tells recordings apart.
  std::atomic<uint64_t> point{0};
  static constexpr FenceIndex kUnsignalled = 0xFFFFFE;
  // Whether the program has asked about it: its recordings are signalled from then on. Most events
  // order streams only, and a signal costs more than the recording.
  std::atomic<bool> asked{false};
  // The capture sequence in which it was last recorded, which may be over; 0: none.
  std::atomic<uint64_t> capture{0};
  TinyLock lock;                         // held while it is recorded
  bool foreign_fence = false;            // the fence of `point` belongs to an executable graph
  uint64_t recorded_stream = 0;          // unique_id of the stream of the last recording ...
  std::atomic<Stream*> stream{nullptr};  // ... and where that stream is or was
  std::atomic<uint64_t> recorded_position{0};  // ring position + 1

  // Whether other processes may use it, too: then the daemon alone knows its state, `point` is 0.
  bool interprocess() const { return (flags & CU_EVENT_INTERPROCESS) != 0; }

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

// At initialisation, once.
void CreateObjects();

}  // namespace detshare::shim
