// A running SHA-256 over everything that the program reads back from its devices, so that two runs
// of it can be compared (`detshare run --digest`, `detsharectl verify`).
//
// What counts is what copies put into host memory, as the program finds it there. The order is that
// of the program's own calls, not that of arrival: each stream has a sequence of its reads, so has
// each node of an executable graph that copies to ordinary memory; the digest of a sequence runs
// over the digests of its reads, and the digest of the process is that over all sequences' in the
// order of their digests. So neither timing nor the order in which threads make their streams
// matters. Threads that share a stream without order among themselves have no such order natively.
//
// Copies to pinned memory are complete later than their call. Each signals a fence, and all that
// have arrived are digested whenever the program learns of any completion, since from then on it
// may use the memory again. Not covered: memory that kernels write without a copy (pinned,
// managed), asynchronous copies to managed memory, and pinned memory that a program polls and uses
// again without a call in between.
//
// Off, which is the rule, g_read_digest is null and nothing else is different. Any thread.
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

// Rows in host memory.
struct HostBox {
  const std::byte* memory = nullptr;
  uint64_t width = 0, height = 1, depth = 1;
  uint64_t row_pitch = 0, slice_pitch = 0;
  uint64_t bytes() const { return width * height * depth; }
};

class ReadDigest {
 public:
  // What tells sequences apart; also who has launched kernels.
  using Place = uint64_t;
  static constexpr Place StreamPlace(uint64_t unique_id) { return unique_id << 1; }
  static constexpr Place GraphPlace(uint32_t graph, uint32_t node) {
    return (uint64_t{graph} << 32 | node) << 1 | 1;
  }

  // `log_fd`: a line for each read goes there, or -1. `fences` outlives this.
  ReadDigest(FenceAllocator& fences, int log_fd, std::string program);

  // A kernel of that name (never freed), or something like it, was given to the stream.
  void NoteLaunch(Place place, const char* kernel);

  // The bytes are there.
  void Read(Place place, const HostBox& box);

  // They will be there when the signal arrives that `submit`, bool(const wire::Signal&), has
  // submitted with the copy.
  template <typename Submit>
  void ReadLater(Place place, const HostBox& box, Submit submit) {
    // One at a time: the signals of a place arrive in the order of their values.
    const std::lock_guard lock(submitting_);
    const wire::Signal signal = Expect(place, box);
    if (!submit(signal)) TakeBack(place, signal);
  }

  // The program has learned of a completion.
  void Collect() {
    if (expected_.load(std::memory_order_acquire) != 0) CollectSlowly();
  }

  struct Summary {
    ContentHash digest{};
    uint64_t reads = 0, bytes = 0, sequences = 0;
    uint64_t lost = 0;  // reads that have not arrived, or for which there was no fence
  };
  // Waits for what has not arrived, at most that long.
  Summary Finish(uint32_t timeout_ms);

  const std::string& program() const { return program_; }

 private:
  struct Entry {
    HostBox box;
    uint64_t value = 0;  // of the sequence's fence
    bool arrived = false;
    ContentHash digest{};
    const char* kernel = nullptr;
  };
  struct Sequence {
    ContentHasher hasher;
    uint64_t reads = 0, bytes = 0;
    std::deque<Entry> entries;  // from the first one that has not arrived
    OwnedFence fence;           // while one is expected
    const char* kernel = nullptr;
  };

  wire::Signal Expect(Place place, const HostBox& box);
  void TakeBack(Place place, const wire::Signal& signal);
  void CollectSlowly();
  // With mutex_ held.
  void CollectLocked();
  void Drain(Place place, Sequence& sequence);
  const char* KernelBefore(const Sequence& sequence) const;
  void FlushLog();

  FenceAllocator& fences_;
  const int log_fd_;
  const std::string program_;
  std::mutex submitting_;              // before mutex_
  std::atomic<uint32_t> expected_{0};  // release: what is expected is in the sequences
  std::mutex mutex_;                   // guards the rest
  std::map<Place, Sequence> sequences_;
  const char* last_kernel_ = nullptr;  // of the whole process
  uint64_t lost_ = 0;
  std::string log_;  // not written yet
};

// Null when nobody has asked for digests. Set before the session is published.
extern ReadDigest* g_read_digest;

inline void CollectReads() {
  if (g_read_digest != nullptr) [[unlikely]]
    g_read_digest->Collect();
}

// What DETSHARE_DIGEST and DETSHARE_DIGEST_LOG ask for: makes g_read_digest, or nothing.
void StartReadDigest(FenceAllocator& fences);
// Writes the digest where DETSHARE_DIGEST says: to a file, a line a process, or to stderr for "-".
void FinishReadDigest();

}  // namespace detshare::shim
