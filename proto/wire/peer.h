// Access between devices. Transport: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

// Lets the record's context access the memory of context `peer`, which is on the session's device
// `peer_device`.
struct cuCtxEnablePeerAccess {
  ContextId peer;
  uint32_t peer_device;
};

// The reply comes when no earlier work can access the peer's memory.
struct cuCtxDisablePeerAccess {
  ContextId peer;
  uint32_t reserved;
};

}  // namespace detshare::wire
