// A running SHA-256 over everything that the program reads back from its devices. With it two runs
// of a program can be compared (`detshare run --digest`, `detsharectl verify`).
//
// The digest covers the bytes that copies put into host memory, as the program finds them there.
// Their order is that of the program's own calls, and not the order of arrival. Each stream has a
// sequence of its reads. Each node of an executable graph that copies to ordinary memory has one,
// too. The digest of a sequence runs over the digests of its reads. The digest of the process runs
// over the digests of all sequences, sorted. So neither timing nor the order in which threads make
// their streams matters. Threads that share a stream without ordering themselves have no order
// natively either.
//
// Copies to pinned memory are complete later than their call. Each such copy signals a fence.
// Whenever the program learns of any completion, it may use the memory again, so the shim then
// digests all copies that have arrived. The digest does not cover memory that kernels write without
// a copy (pinned, managed), asynchronous copies to managed memory, and pinned memory that a program
// polls and reuses without a call in between.
//
// The digest is normally off. Then g_read_digest is null and nothing else is different. Any thread
// may call these functions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "client_shim/transport/fence_allocator.h"
#include "proto/content_hash.h"
#include "proto/wire/common.h"

namespace detshare::shim {

// Rows in host memory. Sizes and pitches are in bytes, except height and depth, which count rows
// and slices.
struct HostBox {
  const std::byte* memory = nullptr;
  uint64_t width = 0, height = 1, depth = 1;
  uint64_t row_pitch = 0, slice_pitch = 0;
  uint64_t bytes() const { return width * height * depth; }
};

class ReadDigest {
 public:
  // Identifies a sequence. It also names the place where the program launched kernels.
  using Place = uint64_t;
  static constexpr Place StreamPlace(uint64_t unique_id) { return unique_id << 1; }
  static constexpr Place GraphPlace(uint32_t graph, uint32_t node) {
    return (uint64_t{graph} << 32 | node) << 1 | 1;
  }

  // `log_fd` gets a line for each read; -1: none. `fences` outlives this object.
  ReadDigest(FenceAllocator& fences, int log_fd, std::string program);

  // Notes that the stream or graph got a kernel of this name, or similar work. The name is never
  // freed.
  void NoteLaunch(Place place, const char* kernel);

  // Adds bytes that are in host memory already.
  void Read(Place place, const HostBox& box);

  // Adds bytes that will be in host memory when a signal arrives. `submit`, a bool(const
  // wire::Signal&), submits that signal with the copy and returns whether it could.
  template <typename Submit>
  void ReadLater(Place place, const HostBox& box, Submit submit) {
    // One thread at a time, so that the signals of a place arrive in the order of their values.
    const std::lock_guard lock(submitting_);
    const wire::Signal signal = Expect(place, box);
    if (!submit(signal)) TakeBack(place, signal);
  }

  // Digests what has arrived. Called when the program has learned of a completion.
  void Collect() {
    if (expected_.load(std::memory_order_acquire) != 0) CollectSlowly();
  }

  struct Summary {
    ContentHash digest{};
    uint64_t reads = 0, bytes = 0, sequences = 0;
    uint64_t lost = 0;  // reads that have not arrived, or that got no fence
  };
  // Waits up to timeout_ms for reads that have not arrived, then returns the digest. Called once,
  // at the end.
  Summary Finish(uint32_t timeout_ms);

  const std::string& program() const { return program_; }

 private:
  struct Entry {
    HostBox box;
    uint64_t value = 0;  // the value of the sequence's fence; 0: it needs no signal
    bool arrived = false;
    ContentHash digest{};
    const char* kernel = nullptr;
  };
  struct Sequence {
    ContentHasher hasher;
    uint64_t reads = 0, bytes = 0;
    std::deque<Entry> entries;  // from the first entry that has not arrived
    OwnedFence fence;           // held while an entry is expected
    const char* kernel = nullptr;
  };

  wire::Signal Expect(Place place, const HostBox& box);
  void TakeBack(Place place, const wire::Signal& signal);
  void CollectSlowly();
  // The following functions need mutex_.
  void CollectLocked();
  void Drain(Place place, Sequence& sequence);
  const char* KernelBefore(const Sequence& sequence) const;
  void FlushLog();

  FenceAllocator& fences_;
  const int log_fd_;
  const std::string program_;
  std::mutex submitting_;              // taken before mutex_
  std::atomic<uint32_t> expected_{0};  // release: the expected entries are in the sequences
  std::mutex mutex_;                   // guards the rest
  std::map<Place, Sequence> sequences_;
  const char* last_kernel_ = nullptr;  // of the whole process
  uint64_t lost_ = 0;
  std::string log_;  // lines that are not written yet
};

// Null if no digest was asked for. Set before the session is published.
extern ReadDigest* g_read_digest;

// Digests what has arrived, if a digest was asked for.
inline void CollectReads() {
  if (g_read_digest != nullptr) [[unlikely]]
    g_read_digest->Collect();
}

// Makes g_read_digest if DETSHARE_DIGEST or DETSHARE_DIGEST_LOG is set.
void StartReadDigest(FenceAllocator& fences);
// Writes the digest to the file that DETSHARE_DIGEST names, one line for each process, or to stderr
// if it is "-".
void FinishReadDigest();

}  // namespace detshare::shim
