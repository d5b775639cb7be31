// Access between devices: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

// The record's context may use the memory of context `peer`, which is of the session's device
// `peer_device`.
struct cuCtxEnablePeerAccess {
  ContextId peer;
  uint32_t peer_device;
};

// Answered when no work that was submitted before can use it any more.
struct cuCtxDisablePeerAccess {
  ContextId peer;
  uint32_t reserved;
};

}  // namespace detshare::wire
