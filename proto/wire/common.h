// The argument and answer structs of the operations that cross from the shim to the daemon, one pair per op.
//
// A struct is named after the driver entry point whose row in driver_api/driver_api.table carries its op number; other entry
// points reduce to these in the shim (cuLaunchKernel becomes cuLaunchKernelEx). Fixed-width types only, no padding that is
// not written down, little endian. Whoever reads one in the daemon works on a private copy and believes nothing in it.
//
// Ops of lane `ring` travel as ring records and answer through a reply slot when they have one; ops of lane `grpc` travel
// with the same structs as bytes inside control.proto's CallRequest and CallReply. An op without an `_Answer` struct answers
// with its CUresult alone, or not at all when it was submitted without a reply slot.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

// Where one side of a copy lives.
enum Space : uint32_t {
  kAddress = 0,  // device or pinned host memory of the session; `address` is the pointer itself
  kStaging = 1,  // `address` is an offset into the session's staging area
  kInline = 2,   // source only: the bytes are the record's payload, `address` is an offset into it
  kArray = 3,    // of PitchedLocation only, see InArray() in copy.h
};

struct Location {
  uint64_t address;
  uint32_t space;  // Space
  uint32_t reserved;
};

// "Store `value` to fence `index` when everything that precedes on the stream is complete." kNoFence: nothing.
struct Signal {
  uint64_t value;
  FenceIndex index;
  uint32_t reserved;
};

}  // namespace detshare::wire
