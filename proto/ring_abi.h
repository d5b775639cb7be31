// The memory that one client process (the shim) and the daemon share: layout, states and who moves them.
//
// A session has one file, `<session directory>/session`, mapped by both sides. Both sides are x86-64 Linux.
//
//   0        +--------------------------+
//            | SessionHeader            |  one page; the layout below is written by the daemon before the client maps it
//   ring     +--------------------------+
//            | submission ring          |  ring_bytes, a power of two; records, client -> daemon
//   replies  +--------------------------+
//            | ReplySlot[reply_count]   |  answers, daemon -> client
//   output   +--------------------------+
//            | text ring                |  what kernels print, daemon -> client
//   fences   +--------------------------+  page aligned; from here on the GPU reads and writes, too
//            | Fence[fence_count]       |  GPU or daemon -> client, and client -> GPU (host functions)
//   staging  +--------------------------+
//            | staging_bytes            |  bulk data of copies, divided by the client, but for one border: no copy crosses the
//            |                          |  end of its first quarter (4 MiB at most), which the GPU reaches from the start
//            +--------------------------+
//
// The daemon keeps its own copy of every offset and size: it never reads the layout back, since the client can write it.
//
// The ring is written by any number of client threads and read by one daemon thread. A record occupies whole lines of
// kRingLine bytes, never wraps, and is preceded by a padding record where the end of the ring is too near.
//
//     free line (first word 0) --client: reserve by advancing `tail`-->  reserved (first word still 0)
//         ^                                                                  |
//         |                                                                  | client: write, then release-store
//         | daemon: zero the first word of                                   v kCommitted to the first word
//         | each line, release-store `head`                              committed
//         +------------------------------------------------------------------+
//
// A reply slot belongs to one client thread from submission to answer:
//
//     kReplyIdle --client: before submitting--> kReplyPending --daemon: result and data, then release--> kReplyDone
//         ^                                                                                                  |
//         +------------------------------------------ client: has read the answer --------------------------+
//
// A layout change raises kAbiVersion: tests/proto/ring_abi_test.cc pins every offset.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace detshare {

inline constexpr uint64_t kSessionMagic = 0x3145524148535444;  // "DTSHARE1" in memory order
// Raised with every change of this file, of wire/ or of the meaning of an op.
inline constexpr uint32_t kAbiVersion = 2;

inline constexpr uint32_t kPageBytes = 4096;
inline constexpr uint32_t kRingLine = 64;
inline constexpr uint32_t kMaxRecordBytes = 64 * 1024;
inline constexpr uint32_t kMaxPayloadBytes = kMaxRecordBytes - 1024;
inline constexpr uint32_t kReplyDataBytes = 448;
inline constexpr uint32_t kNoReply = 0xFFFFFFFF;
// Copies up to this size travel inside their record.
inline constexpr uint32_t kInlineCopyBytes = 4096;

// Ids that a client gives to its own objects. Each kind counts by itself; 0 is never an object. The daemon looks them up in
// the session's own tables only, so one session cannot name what belongs to another.
using ContextId = uint32_t;
using StreamId = uint32_t;
using EventId = uint32_t;
using GraphId = uint32_t;  // of an executable graph
// Ids that the daemon gives out, within the session.
using LibraryId = uint32_t;
using KernelId = uint32_t;
using ArrayId = uint32_t;  // 0 is no array
// Index into the session's fence array.
using FenceIndex = uint32_t;
inline constexpr FenceIndex kNoFence = 0xFFFFFFFF;

// A 64-bit counter that only grows while it is in use. The GPU (or the daemon) publishes "everything before this point of
// the stream is complete" by storing the agreed value; whoever waits compares with >=.
using Fence = std::atomic<uint64_t>;

struct SessionHeader {
  // Constant once the client has mapped the file.
  uint64_t magic;
  uint32_t abi_version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  uint64_t ring_offset;
  uint64_t ring_bytes;
  uint64_t reply_offset;
  uint64_t output_offset;
  uint64_t output_bytes;
  uint64_t fence_offset;
  uint64_t staging_offset;
  uint64_t staging_bytes;
  uint32_t reply_count;
  uint32_t fence_count;

  // Bytes ever reserved in the ring. Moved by the client's threads with compare-and-swap (relaxed: the records publish
  // themselves); read by the daemon only when it goes to sleep and to order rare calls after ring records.
  alignas(64) std::atomic<uint64_t> tail;

  // Bytes ever consumed. Release-stored by the daemon: publishes that the lines below it are zeroed and free again.
  alignas(64) std::atomic<uint64_t> head;
  // 1 while the daemon's reader sleeps on this word (futex). The client, after committing (and a sequentially consistent
  // fence), exchanges a 1 for 0 and wakes it. On a line of its own: clients look at it with every record, and `head` is
  // stored with every record.
  alignas(64) std::atomic<uint32_t> reader_asleep;

  // The first error that made the session's work on a device worthless (a CUresult such as CUDA_ERROR_ILLEGAL_ADDRESS),
  // else 0. Release-stored by the daemon, once; it must be seen before any fence that the daemon forces afterwards.
  alignas(64) std::atomic<uint32_t> sticky_error;
  // 1 once the daemon has ended the session: no record will be read any more, every wait is over.
  std::atomic<uint32_t> closed;

  // Positions of the text ring in bytes ever written and read. Written by the daemon (release: the text below is complete) ...
  alignas(64) std::atomic<uint64_t> output_tail;
  // ... and by the client under its own lock (release: the space is free again).
  alignas(64) std::atomic<uint64_t> output_head;
};

inline constexpr uint32_t kCommitted = 0x54494D43;  // "CMIT"

// Op number of the padding record before the end of the ring. Its size is in `bytes`; nothing else in it is read.
inline constexpr uint16_t kOpPadding = 0;

// A record: this header, the op's argument struct of wire/ (padded to 8 bytes), then payload bytes.
struct RecordHeader {
  std::atomic<uint32_t> state;  // 0 or kCommitted, see above
  uint32_t bytes;               // of the whole record, a multiple of kRingLine
  uint16_t op;                  // detshare::Op
  uint16_t device;              // index among the session's devices
  ContextId context;            // the context that was current, 0 when the op needs none
  uint32_t reply_slot;          // kNoReply: nobody waits, errors become the session's sticky or deferred error
  uint16_t args_bytes;          // sizeof the op's argument struct
  uint16_t reserved;            // 0
  uint32_t payload_bytes;
  uint32_t reserved2;           // 0
};

enum ReplyState : uint32_t { kReplyIdle = 0, kReplyPending = 1, kReplyDone = 2 };

struct alignas(64) ReplySlot {
  std::atomic<uint32_t> state;    // ReplyState; kReplyDone publishes result, bytes and data; the futex word of the waiter
  std::atomic<uint32_t> waiting;  // 1 when the client thread sleeps (or is about to) and must be woken
  int32_t result;                 // CUresult
  uint32_t bytes;                 // of data
  uint8_t padding[48];
  uint8_t data[kReplyDataBytes];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(Fence) == 8 && sizeof(RecordHeader) == 32 && sizeof(ReplySlot) == 512);
static_assert(sizeof(SessionHeader) <= kPageBytes);

}  // namespace detshare
