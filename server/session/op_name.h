// The names of operations in the log.
#pragma once

#include <cstdint>

#include "proto/driver_api/driver_api_ops.h"

namespace detshare {

inline const char* KnownOpName(uint16_t op) {
  const char* name = OpName(op);
  return name != nullptr ? name : "unknown operation";
}

}  // namespace detshare
