// Memory of a card without an address. It lives as long as anybody holds it: a handle of a
// program's, a mapping, another session that got it from the first.
#pragma once

#include <cstdint>
#include <memory>

namespace detshare {

// Physical memory is made in these units on every device, as on all GPUs that CUDA supports.
inline constexpr uint64_t kPhysicalGranule = 2 << 20;

// Made by Device::CreatePhysicalMemory, or found behind what an address space has mapped. Ends
// before its device. Any thread.
class PhysicalMemory {
 public:
  virtual ~PhysicalMemory() = default;
  virtual uint64_t bytes() const = 0;
};

// What the work of an address space may do with mapped memory.
enum class MemoryAccess : uint8_t { kNone, kRead, kReadWrite };

// Physical memory, and where its first byte is mapped in the address space that was asked.
struct PhysicalRange {
  std::shared_ptr<PhysicalMemory> memory;
  uint64_t begin = 0;
};

}  // namespace detshare
