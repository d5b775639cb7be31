// Memory of a card without an address. It lives as long as it has a holder: a program's handle, a
// mapping, or another session that got it from the first.
#pragma once

#include <cstdint>
#include <memory>

namespace detshare {

// Physical memory consists of these units on every device, as on all GPUs that CUDA supports.
inline constexpr uint64_t kPhysicalGranule = 2 << 20;

// Created by Device::CreatePhysicalMemory, or found behind a mapping of an address space. Lifetime:
// ends before its device. Threading: any thread.
class PhysicalMemory {
 public:
  virtual ~PhysicalMemory() = default;
  virtual uint64_t bytes() const = 0;
};

// The access of an address space's work to mapped memory.
enum class MemoryAccess : uint8_t { kNone, kRead, kReadWrite };

// Physical memory, and the address of its first byte in the address space that was asked.
struct PhysicalRange {
  std::shared_ptr<PhysicalMemory> memory;
  uint64_t begin = 0;
};

}  // namespace detshare
