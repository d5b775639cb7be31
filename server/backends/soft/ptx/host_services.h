// The interfaces that the caller of the interpreter implements: the memory that a kernel may
// access, its output, its malloc(), its conditions, and the kernels that it launches. Several threads that run blocks call them
// at the same time, so implementations must be thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace detshare::soft::ptx {

// A half-open range of accessible addresses. Device addresses are addresses of this process: the
// interpreter accesses memory in the range directly.
struct MemoryRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool writable = false;
};

// A kernel that a thread of a kernel launches.
struct ChildLaunch {
  uint32_t kernel = 0;  // index in the module
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  uint32_t dynamic_shared_bytes = 0;
  bool tail = false;  // begins when the parent and all its other descendants are complete
  std::vector<uint8_t> params;
};

// Decides which memory the kernel's tenant may access.
class MemoryGuard {
 public:
  virtual ~MemoryGuard() = default;

  // Sets *range to the largest known accessible range that contains `address` and returns true.
  // Returns false when the tenant has no memory there. The interpreter keeps a range until the
  // current BlockRunner::Run returns, so the memory of the range must stay mapped while a kernel of
  // the tenant is inside Run. An implementation may join adjacent allocations in one range. An
  // access that crosses ranges is a fault.
  virtual bool Find(uint64_t address, MemoryRange* range) const = 0;
};

// Receives what kernels print. Each call has the whole text of one thread and statement. Within a
// block the order is deterministic.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void Print(std::string_view text) = 0;       // the formatted text of device printf
  virtual void PrintError(std::string_view text) = 0;  // of an assertion that failed
};

// The device-side malloc()/free() heap.
class DeviceHeap {
 public:
  virtual ~DeviceHeap() = default;
  // Returns the address of `bytes` bytes, aligned to 16, that the MemoryGuard accepts. Returns 0
  // when the heap is used up.
  virtual uint64_t Allocate(uint64_t bytes) = 0;
  // Frees an address that Allocate returned. Ignores other addresses and returns false for them.
  virtual bool Free(uint64_t address) = 0;
};

// The values that decide what conditional nodes of graphs run.
class GraphConditions {
 public:
  virtual ~GraphConditions() = default;
  // Returns false when the tenant has no condition with this handle.
  virtual bool Set(uint64_t handle, uint32_t value) = 0;
};

// Runs the kernels that kernels launch: after their parent, one after the other. The parent's launch
// is complete when its descendants are.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  // Sets *value to an attribute of the device (cudaDeviceAttr). Returns false for an unknown one.
  virtual bool GetAttribute(int attribute, int* value) const = 0;
  // Called by the thread that runs the launching unit, in the order of the unit's launches. Returns
  // a cudaError_t; only with cudaSuccess (0) the kernel will run.
  virtual int Launch(ChildLaunch launch) = 0;
};

}  // namespace detshare::soft::ptx
