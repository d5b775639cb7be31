// The memory that one client process (the shim) and the daemon share: its layout, its states, and
// which side makes each transition.
//
// Each session has one file, `<session directory>/session`, which both sides map. Both sides run
// x86-64 Linux.
//
//   0        +--------------------------+
//            | SessionHeader            |  one page; the daemon writes it before the client maps it
//   ring     +--------------------------+
//            | submission ring          |  ring_bytes, a power of two; records, client -> daemon
//   replies  +--------------------------+
//            | ReplySlot[reply_count]   |  replies, daemon -> client
//   output   +--------------------------+
//            | text ring                |  text that kernels print, daemon -> client
//   fences   +--------------------------+  page aligned; the GPU accesses all memory from here on
//            | Fence[fence_count]       |  GPU or daemon -> client; client -> GPU (host functions)
//   staging  +--------------------------+
//            | staging_bytes            |  bulk data of copies; the client divides it
//            +--------------------------+
//
// The GPU reaches the first quarter of the staging area (at most 4 MiB) from the start. No copy
// crosses the end of that quarter.
//
// The daemon keeps its own copy of every offset and size. It never reads the layout back, because
// the client can overwrite it.
//
// Any number of client threads write the ring, and one daemon thread reads it. A record occupies
// whole lines of kRingLine bytes and never wraps. When the end of the ring is too near, a padding
// record fills the rest.
//
// The states of a ring line:
//
//     free       The first word is 0. A client reserves the line by advancing `tail`.
//     reserved   The first word is still 0. The client writes the record, then release-stores
//                kCommitted to the first word.
//     committed  The daemon reads the record, zeroes the first word of each of its lines, then
//                release-stores `head`, which frees the lines.
//
// A reply slot belongs to one client thread from the submission until that thread has read the
// reply. Its states:
//
//     kReplyIdle     The client sets kReplyPending before it submits the record.
//     kReplyPending  The daemon writes the result and the data, then release-stores kReplyDone.
//     kReplyDone     The client reads the reply, then sets kReplyIdle.
//
// A layout change raises kAbiVersion: tests/proto/ring_abi_test.cc pins every offset.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace detshare {

inline constexpr uint64_t kSessionMagic = 0x3145524148535444;  // "DTSHARE1" in memory order
// Raised with every change of this file, of wire/, or of the meaning of an op.
inline constexpr uint32_t kAbiVersion = 8;

inline constexpr uint32_t kPageBytes = 4096;
inline constexpr uint32_t kRingLine = 64;
inline constexpr uint32_t kMaxRecordBytes = 64 * 1024;
inline constexpr uint32_t kMaxPayloadBytes = kMaxRecordBytes - 1024;
inline constexpr uint32_t kReplyDataBytes = 448;
inline constexpr uint32_t kNoReply = 0xFFFFFFFF;
// Copies up to this size travel inside their record.
inline constexpr uint32_t kInlineCopyBytes = 4096;

// Ids that a client gives to its own objects. Each kind has its own numbers, and 0 is no object.
// The daemon looks ids up in the session's own tables only, so a session cannot name another
// session's objects.
using ContextId = uint32_t;
using StreamId = uint32_t;
using EventId = uint32_t;
using GraphId = uint32_t;  // an executable graph
// Ids that the daemon assigns within a session.
using LibraryId = uint32_t;
using KernelId = uint32_t;
using ArrayId = uint32_t;  // 0 is no array
// Index into the session's fence array.
using FenceIndex = uint32_t;
inline constexpr FenceIndex kNoFence = 0xFFFFFFFF;

// A 64-bit counter that only grows while it is in use. The GPU or the daemon stores the agreed
// value when everything before a point of the stream is complete. This publishes the results of
// that work to the client. Waiting threads compare with >=.
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

  // The number of bytes ever reserved in the ring. Client threads advance it with compare-and-swap.
  // This is relaxed, because each record publishes itself. The daemon reads it only before it
  // sleeps and to order control calls after ring records.
  alignas(64) std::atomic<uint64_t> tail;

  // The number of bytes ever consumed. The daemon release-stores it. This publishes to the client
  // that the lines below it are zeroed and free.
  alignas(64) std::atomic<uint64_t> head;
  // 1 while the daemon's reader sleeps on this word (futex). After a commit and a sequentially
  // consistent fence, the client exchanges a 1 for 0 and wakes the reader. It has a cache line of
  // its own, because clients read it with every record and the daemon stores `head` with every
  // record.
  alignas(64) std::atomic<uint32_t> reader_asleep;

  // The first error that invalidated the session's work on a device, as a CUresult such as
  // CUDA_ERROR_ILLEGAL_ADDRESS; 0 without an error. The daemon release-stores it once, before it
  // forces any fence, so a client that sees a forced fence also sees the error.
  alignas(64) std::atomic<uint32_t> sticky_error;
  // 1 once the daemon has ended the session. The daemon then reads no more records, and clients
  // stop waiting.
  std::atomic<uint32_t> closed;
  // 1 while the client's threads shall poll for results even if all CPUs are busy, because the tenant's
  // class is `latency`. Relaxed: a hint that publishes nothing.
  std::atomic<uint32_t> awaited;
  // The CPU of the client's thread that last woke the reader, plus 1; 0 if it is unknown. Relaxed: a
  // hint for the reader's thread, on which CPU it should sleep.
  std::atomic<uint32_t> client_cpu;

  // The text ring has pieces of text. A piece is a word of 32 bits, its length and perhaps
  // kTextIsError, and then the text.
  //
  // The number of bytes ever written to the text ring. The daemon release-stores it, which
  // publishes the text below it to the client.
  alignas(64) std::atomic<uint64_t> output_tail;
  // The number of bytes ever read from the text ring. The client release-stores it under its own
  // lock, which publishes to the daemon that the space below it is free.
  alignas(64) std::atomic<uint64_t> output_head;
  // 1 while text of completed kernels may be in the driver's buffer, where cuCtxSynchronize with
  // kFlushOutput fetches it. The daemon release-stores 1 before it launches such a kernel, so that a
  // client that sees the kernel complete also sees the 1.
  std::atomic<uint32_t> output_pending;
};

inline constexpr uint32_t kTextIsError = 0x80000000;  // for standard error, not for standard output

inline constexpr uint32_t kCommitted = 0x54494D43;  // "CMIT"

// The op number of the padding record before the end of the ring. Its size is in `bytes`. Its other
// fields are not read.
inline constexpr uint16_t kOpPadding = 0;

// A record is this header, then the op's argument struct of wire/ (padded to 8 bytes), then the
// payload.
struct RecordHeader {
  std::atomic<uint32_t> state;  // 0 or kCommitted, see above
  uint32_t bytes;               // of the whole record, a multiple of kRingLine
  uint16_t op;                  // detshare::Op
  uint16_t device;              // index among the session's devices
  ContextId context;            // the current context; 0 when the op needs none
  uint32_t reply_slot;          // kNoReply: no thread waits; an error becomes sticky or deferred
  uint16_t args_bytes;          // sizeof the op's argument struct
  uint16_t reserved;            // 0
  uint32_t payload_bytes;
  uint32_t reserved2;  // 0
};

enum ReplyState : uint32_t { kReplyIdle = 0, kReplyPending = 1, kReplyDone = 2 };

struct alignas(64) ReplySlot {
  // ReplyState. The daemon's kReplyDone publishes result, bytes and data to the client. The waiting
  // client thread sleeps on this word (futex).
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> waiting;  // 1 when the client thread sleeps or is about to: wake it
  int32_t result;                 // CUresult
  // The size of the reply. `data` holds it, or its first kReplyDataBytes. The client then takes the
  // whole reply over gRPC (TakeReply in control.proto), before it frees the slot.
  uint32_t bytes;
  uint8_t padding[48];
  uint8_t data[kReplyDataBytes];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(Fence) == 8 && sizeof(RecordHeader) == 32 && sizeof(ReplySlot) == 512);
static_assert(sizeof(SessionHeader) <= kPageBytes);

}  // namespace detshare
