// The ids of the contexts, streams and events of a session. The client chooses them, as in
// proto/ring_abi.h. 0 is no id.
#pragma once

#include <cstdint>

namespace detshare {

using ContextId = uint32_t;
using StreamId = uint32_t;
using EventId = uint32_t;

}  // namespace detshare
