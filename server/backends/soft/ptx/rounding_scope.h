// The rounding mode of the host's FPU.
#pragma once

#include <cfenv>

#include "server/backends/soft/ptx/float_ops.h"

namespace detshare::soft::ptx {

// Sets the rounding mode of this thread while the object exists.
class RoundingScope {
 public:
  explicit RoundingScope(Rounding rounding)
      : active_(rounding == Rounding::kRz || rounding == Rounding::kRm ||
                rounding == Rounding::kRp) {
    if (active_) {
      std::fesetround(rounding == Rounding::kRz   ? FE_TOWARDZERO
                      : rounding == Rounding::kRm ? FE_DOWNWARD
                                                  : FE_UPWARD);
    }
  }
  ~RoundingScope() {
    if (active_) std::fesetround(FE_TONEAREST);
  }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  bool active_;
};

}  // namespace detshare::soft::ptx
