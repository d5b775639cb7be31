// What a GPU must offer to the runtime. The backends (server/backends/soft, server/backends/cuda)
// implement it; tests of the runtime implement it too. Nothing here knows CUDA's headers:
// attribute, limit and option numbers are CUDA's, passed through.
//
// Threading: every method may be called from any thread, unless it says otherwise. A Queue is used
// by one thread at a time. No method waits for the GPU unless it says so. Objects are destroyed
// before the Device that made them.
//
// Errors: absl::Status whose payload is the CUresult (status_cuda.h: CudaError(), CudaResultOf()).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/launch_hints.h"
#include "coroutine_runtime/managed_variables.h"
#include "coroutine_runtime/memory_op.h"
#include "coroutine_runtime/physical_memory.h"

namespace detshare {

using DeviceAddress = uint64_t;

// See device_graph.h.
class Graph;
struct GraphDescription;
struct GraphPlace;
class Array;             // device_array.h
class ImageDevice;       // device_array.h
class TensorMapEncoder;  // device_tensor_map.h

// Properties of the whole device. Never change while the daemon runs, and never depend on who else
// is there.
struct DeviceProperties {
  std::string name;
  std::array<uint8_t, 16> uuid{};
  uint64_t total_memory = 0;        // bytes
  uint64_t memory_granularity = 0;  // of AddressSpace::Map, bytes, a power of two
  int driver_version = 0;           // as cuDriverGetVersion
  int sm_count = 0;
  int sm_group = 1;  // SMs come in groups of this size; partitions are made of whole groups
  int least_stream_priority = 0;
  int greatest_stream_priority = 0;
  // Whether blocks of kernels on queues of a greater priority begin first.
  bool blocks_by_priority = false;
  std::map<int, int> attributes;            // CUdevice_attribute -> value
  std::vector<uint64_t> limits;             // indexed by CUlimit
  std::vector<uint8_t> tpc_gpc, tpc_index;  // SM topology, see proto/control.proto; may be empty
};

// The memory of one session on one device: a range of addresses that belongs to it alone.
class AddressSpace {
 public:
  // Waits for the session's work on the GPU, then gives everything back.
  virtual ~AddressSpace() = default;

  virtual DeviceAddress base() const = 0;
  virtual uint64_t size() const = 0;

  // Backs [address, address + bytes) with zeroed device memory. Both are multiples of the memory
  // granularity, inside the range and not mapped yet. ResourceExhausted when the card is full.
  // Never drains the device.
  virtual absl::Status Map(DeviceAddress address, uint64_t bytes) = 0;
  // Takes back exactly what one Map made. The caller knows that no work touches it any more. Never
  // drains the device.
  virtual absl::Status Unmap(DeviceAddress address, uint64_t bytes) = 0;

  // Puts the first `bytes` bytes of `memory`, of this space's device or one that can reach it, at
  // `address`: whole pages inside the range where nothing is mapped. Nobody may touch it yet.
  // Memory may be mapped several times, by several sessions. Never drains the device.
  virtual absl::Status MapPhysical(DeviceAddress address, uint64_t bytes,
                                   std::shared_ptr<PhysicalMemory> memory) = 0;
  // Takes back exactly what one MapPhysical made. The caller knows that no work touches it any
  // more, and has taken back the access of other spaces. Never drains the device.
  virtual absl::Status UnmapPhysical(DeviceAddress address, uint64_t bytes) = 0;
  // What work of this space may do with exactly what one MapPhysical of this space, or one Map or
  // MapPhysical of another space of the same session, has mapped. Whoever unmaps that takes the
  // access back first.
  virtual absl::Status SetAccess(DeviceAddress address, uint64_t bytes, MemoryAccess access) = 0;
  // What Map or MapPhysical of this space put at `address`. CUDA_ERROR_INVALID_VALUE when nothing
  // is there. With memory of Map the whole pages around it, which may hold neighbours.
  virtual absl::StatusOr<PhysicalRange> Behind(DeviceAddress address) const = 0;

  // Lets the GPU reach host memory (page-aligned, outside the range) at its own address. May hold
  // up other sessions for a bounded time, so callers register ahead.
  virtual absl::Status RegisterHost(void* memory, uint64_t bytes) = 0;
  // Takes a registration back. The caller knows that no work touches it any more. The memory may be
  // unmapped afterwards.
  virtual absl::Status UnregisterHost(void* memory) = 0;

  // Whether [address, address + bytes) is memory of this session, as far as the device can tell:
  // mapped, registered, or a global of one of its libraries; with `write` also whether it may be
  // written.
  virtual bool Contains(DeviceAddress address, uint64_t bytes, bool write = false) const = 0;

  // The first error of this session's work, OkStatus while there is none. Sticky. Cheap: an atomic
  // load when there is none.
  virtual absl::Status fault() const = 0;

  // Whether work in its name is queued or running. Asks, and never waits for the work.
  virtual bool Busy() const = 0;

  // The session is gone: its queued work may be dropped, running kernels are stopped where the
  // device can stop them.
  virtual void Abandon() = 0;
  // Waits for the session's work on the GPU. Whoever ends several spaces, of which one's work may
  // touch another's memory, calls this for all before the first one ends.
  virtual void WaitForWork() {}
};

struct KernelParameterInfo {
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

struct KernelInfo {
  std::string name;
  std::vector<KernelParameterInfo> parameters;
  uint32_t parameter_bytes = 0;
  std::array<int32_t, 24> attributes{};  // indexed by CUfunction_attribute
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  friend bool operator==(const Dim3&, const Dim3&) = default;
};

struct OccupancyQuery {
  int block_size = 0;
  uint64_t dynamic_shared_bytes = 0;
  uint32_t flags = 0;
};

struct LaunchShape {
  Dim3 grid, block;
  Dim3 cluster{0, 0, 0};  // 0: the launch gives none
  uint32_t dynamic_shared_bytes = 0;
  bool cooperative = false;
  bool programmatic_serialization = false;
  bool has_priority = false;
  int priority = 0;
  LaunchHints hints;
  friend bool operator==(const LaunchShape&, const LaunchShape&) = default;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // As loaded, with the attributes that were set since.
  virtual const KernelInfo& info() const = 0;
  virtual absl::Status SetAttribute(int attribute, int value) = 0;
  virtual absl::StatusOr<int> MaxActiveBlocks(const OccupancyQuery& query) = 0;
  virtual absl::StatusOr<uint64_t> AvailableDynamicShared(int blocks, int block_size) = 0;
  virtual absl::StatusOr<int> MaxPotentialClusterSize(const LaunchShape& shape) = 0;
  virtual absl::StatusOr<int> MaxActiveClusters(const LaunchShape& shape) = 0;

  // A number that stands for what it executes, the same in every session; 0: not known. Set once,
  // before the first launch.
  uint64_t code() const { return code_; }
  void set_code(uint64_t code) { code_ = code; }

 private:
  uint64_t code_ = 0;
};

struct JitOptionValue {
  int option = 0;  // CUjit_option
  uint32_t value = 0;
};

struct CompileLogs {
  uint64_t info_limit = 0, error_limit = 0;  // bytes that the caller wants at most
  std::string info, error;
};

// Code that was loaded for one session, with its own globals.
class Library {
 public:
  // Unloads. The caller knows that none of its kernels is queued or running.
  virtual ~Library() = default;
  virtual std::vector<std::string> KernelNames() const = 0;
  // Owned by the library. NotFound.
  virtual absl::StatusOr<Kernel*> GetKernel(std::string_view name) = 0;
  struct Global {
    DeviceAddress address = 0;
    uint64_t bytes = 0;
  };
  virtual absl::StatusOr<Global> GetGlobal(std::string_view name) = 0;
};

struct LinkInputImage {
  int type = 0;  // CUjitInputType
  std::string name;
  std::string bytes;
};

// A point in a queue's work. A marker belongs to the device that made it: only that device's queues
// record it, but the queues of all devices of the backend may wait for it.
class Marker {
 public:
  virtual ~Marker() = default;
};

// A place in a level of an array.
struct ArrayPlace {
  Array* array = nullptr;  // null: the place is an address
  uint32_t level = 0;
  uint64_t x = 0, y = 0, z = 0;  // x in bytes; z counts planes or layers
  friend bool operator==(const ArrayPlace&, const ArrayPlace&) = default;
};

struct CopyRequest {
  // Device addresses, registered host addresses, or (source of at most kInlineCopyBytes,
  // `inline_source` set) memory that is only valid during the call.
  DeviceAddress destination = 0, source = 0;
  // Where a side is the memory of another device of the session: that device's space. The other
  // side is then device memory, too, and nobody unmaps either before the copy is complete.
  AddressSpace* destination_space = nullptr;
  AddressSpace* source_space = nullptr;
  bool inline_source = false;
  uint64_t width = 0;  // bytes; a linear copy has height and depth 1
  uint64_t height = 1, depth = 1;
  uint64_t destination_pitch = 0, destination_slice = 0;
  uint64_t source_pitch = 0, source_slice = 0;
  // In place of an address and its pitches. The caller has checked that the box lies in the array
  // and is made of whole texels; the array outlives the copy. Sources are not inline then.
  ArrayPlace destination_array, source_array;
  friend bool operator==(const CopyRequest&, const CopyRequest&) = default;
};

struct FillRequest {
  DeviceAddress address = 0;
  uint64_t pitch = 0, width = 1, height = 1;  // width in elements, pitch in bytes
  uint32_t value = 0;
  int element_bytes = 1;  // 1, 2 or 4
  friend bool operator==(const FillRequest&, const FillRequest&) = default;
};

// A first-in first-out queue of work on one partition (a physical stream). Work is done in the name
// of an address space, which receives its faults and outside of which it must not reach; queues are
// shared by sessions one after the other. Errors of a call are errors of that call only (nothing
// was queued); errors of the work go to the address space.
class Queue {
 public:
  virtual ~Queue() = default;
  // `parameters` (info().parameter_bytes of it) is read during the call. Invalid shapes: the
  // CUresult that CUDA gives.
  virtual absl::Status Launch(AddressSpace& space, Kernel& kernel, const LaunchShape& shape,
                              absl::Span<const std::byte> parameters) = 0;
  virtual absl::Status Copy(AddressSpace& space, const CopyRequest& request) = 0;
  virtual absl::Status Fill(AddressSpace& space, const FillRequest& request) = 0;
  // Release-stores `value` to *fence when everything before is complete. The fence lies in
  // registered memory.
  virtual absl::Status WriteFence(AddressSpace& space, std::atomic<uint64_t>* fence,
                                  uint64_t value) = 0;
  // Holds what follows until *fence >= value (or the space is abandoned).
  virtual absl::Status WaitFence(AddressSpace& space, const std::atomic<uint64_t>* fence,
                                 uint64_t value) = 0;
  // One after the other, as CUDA has it. The words lie in memory of the space, aligned; the waits
  // can end. A wait that does not end holds this queue only, and is over when the space is
  // abandoned.
  virtual absl::Status MemoryOps(AddressSpace& space, absl::Span<const MemoryOp> operations) = 0;
  // `marker`, of this queue's device, then stands for this point; recording again moves it.
  virtual absl::Status Record(Marker& marker) = 0;
  // Holds what follows until the point that the marker, of any device of the backend, stands for at
  // this moment; no point recorded: no wait.
  virtual absl::Status Wait(Marker& marker) = 0;
  // One launch of a graph of this partition: between what is before and what is after on the queue,
  // and after the graph's earlier launches, whatever their queues. `values`: one for each signal
  // and wait. CUDA_ERROR_NOT_SUPPORTED on devices without graphs.
  virtual absl::Status LaunchGraph(AddressSpace& space, Graph& graph,
                                   absl::Span<const uint64_t> values);
  // Makes ready what the next launch of the graph on this queue needs, if anything.
  virtual absl::Status UploadGraph(AddressSpace& space, Graph& graph);
};

// A set of SMs.
class Partition {
 public:
  virtual ~Partition() = default;
  virtual int first_sm() const = 0;
  virtual int sm_count() const = 0;
  // May be slow: pool queues. `priority` as CUDA's stream priorities.
  virtual absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(int priority) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceProperties& properties() const = 0;

  // The partition that is always there: all SMs.
  virtual Partition& whole() = 0;
  // `count` SMs from `first` on, both multiples of properties().sm_group; SMs that make no whole
  // group belong to the last one. Partitions may overlap. Slow and may drain the device: at start
  // only.
  virtual absl::StatusOr<std::unique_ptr<Partition>> CreatePartition(int first, int count) = 0;

  // `timed`: ElapsedMilliseconds may be asked of it.
  virtual absl::StatusOr<std::unique_ptr<Marker>> CreateMarker(bool timed) = 0;
  // Whether the point for which the marker stands is reached; true when there is none.
  virtual absl::StatusOr<bool> Reached(Marker& marker) = 0;
  // Between two recorded markers. Unavailable while either is not reached, FailedPrecondition when
  // not recorded or not timed.
  virtual absl::StatusOr<float> ElapsedMilliseconds(Marker& start, Marker& end) = 0;

  virtual absl::StatusOr<std::unique_ptr<AddressSpace>> CreateAddressSpace(DeviceAddress base,
                                                                           uint64_t size) = 0;
  // Zeroed memory, a multiple of kPhysicalGranule. ResourceExhausted when the card is full. Never
  // drains the device.
  virtual absl::StatusOr<std::shared_ptr<PhysicalMemory>> CreatePhysicalMemory(uint64_t bytes) = 0;

  // `image`: ELF, PTX text (not necessarily terminated) or a fatbin. `print` receives what the
  // library's kernels print, from any thread, in the order of CUDA's rules; it outlives the
  // library. `place`: for managed variables. Errors carry CUDA_ERROR_INVALID_PTX, CUDA_ERROR_NO_BINARY_FOR_GPU,
  // CUDA_ERROR_INVALID_IMAGE and the like. May take long and may drain the device.
  virtual absl::StatusOr<std::unique_ptr<Library>> LoadLibrary(
      AddressSpace& space, absl::Span<const std::byte> image,
      absl::Span<const JitOptionValue> options, CompileLogs& logs,
      std::function<void(std::string_view)> print, const PlaceManaged& place) = 0;
  // The linked image, as LoadLibrary takes it.
  virtual absl::StatusOr<std::string> Link(absl::Span<const LinkInputImage> inputs,
                                           absl::Span<const JitOptionValue> options,
                                           CompileLogs& logs) = 0;

  // Makes a graph ready to be launched on queues of `partition`. Errors are those of its nodes, as
  // far as they show before a launch; `*refused` is then the node. May take long.
  // CUDA_ERROR_NOT_SUPPORTED on devices without graphs.
  virtual absl::StatusOr<std::unique_ptr<Graph>> InstantiateGraph(
      AddressSpace& space, Partition& partition, const GraphDescription& description,
      GraphPlace* refused);

  // A value for conditional nodes of the session's graphs; `assign_default`: each launch of a graph
  // with its node begins with the default. The reply is its id; kernels set it by the low 32 bits,
  // which graphs of one session may have in common, as CUDA numbers handles in each graph.
  // `sibling`: another id for the same graph, or 0. Ids for one graph may be used by one executable
  // graph at a time, which has no others. Lives as long as the space.
  // CUDA_ERROR_NOT_SUPPORTED on devices without conditional nodes.
  virtual absl::StatusOr<uint64_t> CreateGraphCondition(AddressSpace& space, uint32_t default_value,
                                                        bool assign_default, uint64_t sibling);

  struct Memory {
    uint64_t free = 0, total = 0;
  };
  virtual Memory memory() const = 0;
  // What this device may do with the memory of `other`, another device of the backend:
  // CUdevice_P2PAttribute -> value. Access is supported where CUDA says so of the pair. Never
  // changes.
  virtual std::map<int, int> PeerAttributes(const Device& other) const { return {}; }
  // A limit of a context (CUlimit). Devices that share one limit among sessions keep the largest;
  // the reply is what this session asked for, as the device rounds it, whatever the others did.
  virtual absl::StatusOr<uint64_t> SetLimit(AddressSpace& space, int limit, uint64_t value) = 0;

  // Lines of the cache that launches wanted to persist are like all others again. Devices without
  // such a cache have nothing to do.
  virtual absl::Status ResetPersistingCache() { return absl::OkStatus(); }

  // OkStatus while the device works. Otherwise everything on it is lost and the process must be
  // replaced.
  virtual absl::Status health() const = 0;

  // Parts that not every device has: null when it has none. They live as long as the device.
  virtual ImageDevice* images() { return nullptr; }
  virtual TensorMapEncoder* tensor_maps() { return nullptr; }
};

}  // namespace detshare
