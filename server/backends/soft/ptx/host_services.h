// What the software GPU core needs from whoever embeds it: which memory a kernel may touch, where
// its output goes, where its malloc() allocates, and its conditions. All are called from the
// threads that run blocks, several at once, so implementations are thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace detshare::soft::ptx {

// Half-open range of accessible addresses. Device addresses are addresses of this process: the
// interpreter reads and writes the memory directly once a range has allowed it.
struct MemoryRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool writable = false;
};

// Says which memory the running tenant may access.
class MemoryGuard {
 public:
  virtual ~MemoryGuard() = default;

  // Sets *range to the largest known accessible range that contains `address` and returns true;
  // returns false when nothing of the tenant lies there. The interpreter keeps returned ranges
  // until the current BlockRunner::Run returns, so the memory of a range must stay mapped as long
  // as a kernel of the tenant is inside Run. Adjacent allocations may be returned as one range or
  // as several: an access that crosses ranges is refused.
  virtual bool Find(uint64_t address, MemoryRange* range) const = 0;
};

// Receives what kernels print: formatted device printf text and assertion messages, whole pieces,
// one call a thread and statement. Within a block the order is deterministic.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void Print(std::string_view text) = 0;
};

// The device-side malloc()/free() heap.
class DeviceHeap {
 public:
  virtual ~DeviceHeap() = default;
  // Returns the address of `bytes` bytes aligned to 16 that the MemoryGuard accepts, or 0 when
  // exhausted.
  virtual uint64_t Allocate(uint64_t bytes) = 0;
  // Frees what Allocate returned; any other non-null address is ignored and returns false.
  virtual bool Free(uint64_t address) = 0;
};

// What conditional nodes of graphs decide by.
class GraphConditions {
 public:
  virtual ~GraphConditions() = default;
  // False when the handle names none of the tenant's.
  virtual bool Set(uint64_t handle, uint32_t value) = 0;
};

}  // namespace detshare::soft::ptx
