// The parts in which a long control call crosses over gRPC (rpc Call of control.proto).
//
// The first part is short, so the daemon can keep many calls whose turn has not come. It reads the
// others when the call's turn has come and there is room for the whole payload.
#pragma once

#include <cstdint>

namespace detshare {

// The limit of a call's payload. A client sends an image of code as one payload.
inline constexpr uint64_t kMaxCallBytes = uint64_t{1} << 30;
// Limits of the payload in one message.
inline constexpr uint32_t kFirstCallPartBytes = 64 << 10;
inline constexpr uint32_t kCallPartBytes = 1 << 20;

}  // namespace detshare
