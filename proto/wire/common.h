// The argument and reply structs of the operations that cross from the shim to the daemon, one pair
// for each op.
//
// A struct has the name of the driver entry point whose row in driver_api/driver_api.table has the
// op's number. The shim reduces other entry points to these: cuLaunchKernel becomes
// cuLaunchKernelEx. Structs have only fixed-width types and explicit padding, and are little
// endian. The daemon works on a private copy of a struct and checks every field.
//
// Ops of transport `ring` are ring records. Their reply, if they have one, comes through a reply
// slot. Ops of transport `control` are ring records if they fit one. Otherwise control.proto's
// CallRequest and CallReply carry the same structs as bytes. An op without a reply struct replies
// with its CUresult only. An op that was submitted without a reply slot gets no reply.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

// The kind of memory at one side of a copy.
enum Space : uint32_t {
  kAddress = 0,  // device or pinned host memory of the session; `address` is the pointer itself
  kStaging = 1,  // `address` is an offset into the session's staging area
  kInline = 2,   // source only: the bytes are the record's payload, `address` is an offset into it
  kArray = 3,    // only in a PitchedLocation, see InArray() in copy.h
};

struct Location {
  uint64_t address;
  uint32_t space;  // Space
  uint32_t reserved;
};

// Stores `value` to fence `index` when all earlier work of the stream is complete. kNoFence: stores
// nothing.
struct Signal {
  uint64_t value;
  FenceIndex index;
  uint32_t reserved;
};

}  // namespace detshare::wire
