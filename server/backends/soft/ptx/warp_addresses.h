// The addresses of a warp's lanes, and accesses there. The code is compiled for any x86-64 CPU, and for
// CPUs with AVX2 and with AVX-512 (vector_lanes.h).
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
  // Adds `offset` to each lane's address, and returns the bounds of these sums. Sets out[lane] to the
  // lane's sum plus `base`.
  AddressBounds (*add32)(const uint32_t* addresses, uint64_t offset, uint64_t base, uint64_t* out);
  AddressBounds (*add64)(const uint64_t* addresses, uint64_t offset, uint64_t base, uint64_t* out);
  // Access an element at the pointer of each lane, lowest lane first. Blocks of threads are often 8 or 16
  // wide, so eight lanes with one address, or with consecutive ones, are accessed at once. Each pointer is
  // aligned to the element.
  void (*load32)(const uint64_t* pointers, uint32_t* out);
  void (*load64)(const uint64_t* pointers, uint64_t* out);
  void (*store32)(const uint64_t* pointers, const uint32_t* values);
  void (*store64)(const uint64_t* pointers, const uint64_t* values);
};

// The code for this machine's CPU.
const AddressMath& SelectAddressMath();

namespace avx512 {
extern const AddressMath kAddressMath;
}
namespace avx2 {
extern const AddressMath kAddressMath;
}
namespace base {
extern const AddressMath kAddressMath;
}

}  // namespace detshare::soft::ptx
