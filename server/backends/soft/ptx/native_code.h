// Machine code for the decoded instructions of a function, made when they have run a few times. It
// computes what the handlers compute, with the same bits, faults and costs, in less time: a chain of
// instructions keeps registers in vectors, checks an address once for many accesses, and branches by
// itself while the lanes agree.
//
// The code is divided into *segments* of up to kSegmentInstrs instructions. A segment begins at each
// target of a branch, behind what may end a warp's turn, and where the one before is full. A warp enters
// the code only at the begin of a segment, and only when its turn has room for the whole segment. So
// turns have the lengths that they have with handlers.
//
// CPUs without AVX-512, and processes that may not make executable memory, use the handlers only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/backends/soft/ptx/context.h"

namespace detshare::soft::ptx {

struct FunctionCode;

constexpr uint32_t kSegmentInstrs = 16;

// Whether this CPU can run native code.
bool CpuRunsNativeCode();

struct NativeSegment {
  uint32_t begin = 0;  // the first instruction
  uint32_t length = 0;
  bool target = false;  // of a branch, or behind a control instruction
};

// The native code of a function. Threads may share it.
class NativeCode {
 public:
  // Divides the function into segments and numbers them in Instr::segment. `function` must outlive
  // this object, and its code may not change any more.
  explicit NativeCode(FunctionCode* function);
  ~NativeCode();
  NativeCode(const NativeCode&) = delete;
  NativeCode& operator=(const NativeCode&) = delete;

  // Runs from segment number `segment`, where c.pc stands, as far as there is native code. Returns
  // false, with nothing done, when the turn is too short, or when there is no code yet.
  bool Run(Context& c, uint32_t segment, bool at_once) {
    const Entry& entry = entries_[segment - 1];
    // Whoever makes the code publishes it, and the segment's length with it, to the runners.
    const void* code = entry.code.load(std::memory_order_acquire);
    if (code == nullptr) code = Warm(segment - 1, at_once);
    if (code == nullptr || c.budget < segments_[segment - 1].length) return false;
    enter_(&c, code);
    return true;
  }

 private:
  struct Entry {
    std::atomic<const void*> code{nullptr};
  };
  // The segments whose code is made together.
  struct Region {
    uint32_t begin = 0, end = 0;
    std::atomic<uint32_t> runs{0};
    void* pages = nullptr;  // written by the one thread that makes the code
    size_t size = 0;
  };

  // Counts a run of the segment by its handlers, and makes the code when there are enough, or `at_once`.
  const void* Warm(uint32_t segment, bool at_once);
  void Make(Region* region);

  const FunctionCode& function_;
  void (*enter_)(Context*, const void*) = nullptr;
  std::vector<NativeSegment> segments_;
  std::unique_ptr<Entry[]> entries_;
  std::unique_ptr<Region[]> regions_;
};

}  // namespace detshare::soft::ptx
