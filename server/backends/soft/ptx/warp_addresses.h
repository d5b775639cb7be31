// The addresses of a warp's lanes. The code is compiled twice, for any x86-64 CPU and for CPUs with
// AVX2 (vector_lanes.h).
#pragma once

#include "server/backends/soft/ptx/instr.h"

namespace detshare::soft::ptx {

enum class AddressPattern : uint8_t {
  kAny,
  kSame,         // all lanes have one address
  kConsecutive,  // each lane's address is the one of the lane before, plus the size of the access
};

struct AddressBounds {
  uint64_t low = ~uint64_t{0};
  uint64_t high = 0;
  uint64_t bits = 0;  // all addresses, combined by or
};

// For all lanes of a warp. Sums of 32-bit addresses wrap around.
struct AddressMath {
  AddressPattern (*pattern32)(const uint32_t* addresses, uint64_t step);
  AddressPattern (*pattern64)(const uint64_t* addresses, uint64_t step);
  // Sets out[lane] to the lane's address plus `offset`. Returns the bounds of these sums.
  AddressBounds (*add32)(const uint32_t* addresses, uint64_t offset, uint64_t* out);
  AddressBounds (*add64)(const uint64_t* addresses, uint64_t offset, uint64_t* out);
};

// The code for this machine's CPU.
const AddressMath& SelectAddressMath();

namespace avx2 {
extern const AddressMath kAddressMath;
}
namespace base {
extern const AddressMath kAddressMath;
}

}  // namespace detshare::soft::ptx
