// The interface of a GPU for the runtime. The backends (server/backends/soft, server/backends/cuda)
// implement it, and so do tests of the runtime. It does not depend on CUDA's headers: attribute,
// limit and option numbers are CUDA's, passed through.
//
// Threading: any thread may call every method, unless the method says otherwise. Only one thread at
// a time uses a Queue. No method waits for the GPU unless it says so.
//
// Lifetime: objects are destroyed before the Device that created them.
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
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/launch_hints.h"
#include "coroutine_runtime/managed_memory.h"
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

// How urgent work gets the device while other work runs. A time-slice group (TSG is NVIDIA's term)
// is a set of queues to which the hardware gives turns. Two groups never run at the same time, and
// one group stops the running kernels of the other between two instructions. A device that can
// preempt has two groups: the ordinary one, which all partitions share, and the urgent one
// (Device::urgent()).
struct Preemption {
  bool available = false;
  // From the launch of urgent work until it runs, while other work fills the device. Measured.
  int64_t latency_ns = 0;
  uint64_t memory_bytes = 0;  // device memory that the urgent group takes while it is open
  std::string reason;         // why it is not available; empty if it is
  bool switched_off = false;  // not available because the configuration says so

  // As operators see it.
  const char* mode() const { return available ? "time-slice groups" : "none"; }
  static Preemption SwitchedOff() {
    Preemption off;
    off.reason = "the configuration turns it off, by preemption = \"off\"";
    off.switched_off = true;
    return off;
  }
};

// Properties of the whole device. They never change while the daemon runs, and do not depend on
// other users of the device.
struct DeviceProperties {
  std::string name;
  std::array<uint8_t, 16> uuid{};
  uint64_t total_memory = 0;        // bytes
  uint64_t memory_granularity = 0;  // of AddressSpace::Map, bytes, a power of two
  int driver_version = 0;           // as cuDriverGetVersion
  int sm_count = 0;
  int sm_group = 1;  // SMs come in groups of this size; partitions consist of whole groups
  int least_stream_priority = 0;
  int greatest_stream_priority = 0;
  // Whether the blocks of kernels on queues of a higher priority start first.
  bool blocks_by_priority = false;
  // Whether its times count only work, and not the idle time in between. Then times of different
  // queues cannot be compared, also not with the host's clock.
  bool virtual_time = false;
  bool ptx_only = false;  // it runs PTX, but no machine code
  Preemption preemption;
  std::map<int, int> attributes;            // CUdevice_attribute -> value
  std::vector<uint64_t> limits;             // indexed by CUlimit
  std::vector<uint8_t> tpc_gpc, tpc_index;  // SM topology, see proto/control.proto; may be empty
};

// Receives what the kernels of one session print. Any thread may call it, also threads of the
// device's driver. It calls nothing of the device.
class KernelOutput {
 public:
  virtual ~KernelOutput() = default;
  // Text for the program's standard output: of printf() in kernels.
  virtual void Print(std::string_view text) = 0;
  // Text for the program's standard error: of assertions that failed.
  virtual void PrintError(std::string_view text) = 0;
  // True: kernels were launched whose text may come after they have completed, unless
  // Device::FlushOutput() is called. False: no longer.
  virtual void SetPending(bool pending) = 0;
  // Text is lost, for a reason in words.
  virtual void NoteLoss(std::string_view why) = 0;
};

// What a session does while a call of its thread waits until the device has no work of other sessions.
// If it did nothing, its own completed work would still count, and it would keep its turn, for which
// that work of other sessions may wait.
class CallWait {
 public:
  virtual ~CallWait() = default;
  // The call waits. Called every few milliseconds meanwhile. The operation that the call submits does
  // not count from now on.
  virtual void Suspend() = 0;
  // The call can go on, and its operation counts again. Returns false if the operation has to wait for
  // its turn: the device asks again.
  virtual bool Resume() = 0;
};

// The memory of one session on one device: a range of addresses that belongs to this session alone.
class AddressSpace {
 public:
  // Waits for the session's work on the GPU, then releases everything.
  virtual ~AddressSpace() = default;

  virtual DeviceAddress base() const = 0;
  virtual uint64_t size() const = 0;

  // Backs [address, address + bytes) with zeroed device memory. Both are multiples of the memory
  // granularity. The range lies inside the space and is not mapped yet. ResourceExhausted if the
  // card is full. Never drains the device.
  virtual absl::Status Map(DeviceAddress address, uint64_t bytes) = 0;
  // Removes exactly the range of one Map. The caller ensures that no work accesses it any more.
  // Never drains the device.
  virtual absl::Status Unmap(DeviceAddress address, uint64_t bytes) = 0;

  // Maps the first `bytes` bytes of `memory` at `address`. The memory belongs to this space's
  // device or to a device that can reach it. The range consists of whole unmapped pages inside the
  // space. No work may access it before SetAccess(). Memory may be mapped several times, by several
  // sessions. Never drains the device.
  virtual absl::Status MapPhysical(DeviceAddress address, uint64_t bytes,
                                   std::shared_ptr<PhysicalMemory> memory) = 0;
  // Removes exactly the range of one MapPhysical. The caller ensures that no work accesses it any
  // more, and has revoked the access of other spaces. Never drains the device.
  virtual absl::Status UnmapPhysical(DeviceAddress address, uint64_t bytes) = 0;
  // Sets the access of this space's work to exactly the range of one MapPhysical of this space, or
  // of one Map or MapPhysical of another space of the same session. The caller revokes the access
  // before the range is unmapped.
  virtual absl::Status SetAccess(DeviceAddress address, uint64_t bytes, MemoryAccess access) = 0;
  // Returns the memory that Map or MapPhysical of this space put at `address`;
  // CUDA_ERROR_INVALID_VALUE if there is none. For memory of Map, the range is the whole pages
  // around the address, which may contain neighbouring memory.
  virtual absl::StatusOr<PhysicalRange> Behind(DeviceAddress address) const = 0;

  // Lets the GPU access host memory (page-aligned, outside the range) at its own address. May block
  // other sessions for a bounded time, so callers register ahead of need.
  virtual absl::Status RegisterHost(void* memory, uint64_t bytes) = 0;
  // Removes a registration. The caller ensures that no work accesses the memory any more. The
  // memory may be unmapped afterwards.
  virtual absl::Status UnregisterHost(void* memory) = 0;

  // Lets the space's work use a range of the device's managed memory, which its client maps.
  virtual absl::Status UseManaged(const ManagedMemory::Range& range);
  // Ends this. No work uses the range any more.
  virtual void LeaveManaged(const ManagedMemory::Range& range) {}

  // Whether [address, address + bytes) is memory of this session, as far as the device can tell:
  // mapped, registered, or a global of one of its libraries. With `write`, also whether it is
  // writable.
  virtual bool Contains(DeviceAddress address, uint64_t bytes, bool write = false) const = 0;

  // The first error of this session's work, OkStatus if there is none. Sticky. Without an error it
  // costs one atomic load.
  virtual absl::Status fault() const = 0;

  // From now on the device calls `wake`, on any thread, after its queues wrote a fence of this
  // space's work, and after the space's first fault. It may also call without a reason. It calls no
  // more once the space is destroyed. Returns false, and never calls, if the hardware writes fences:
  // then the caller has to look at them. `wake` neither blocks nor calls the device. Call once,
  // before the first work.
  virtual bool Announce(std::function<void()> /*wake*/) { return false; }

  // Whether work of this space is queued or running. Does not wait for the work.
  virtual bool Busy() const = 0;
  // The host memory, in bytes, that the device holds for work of this space that is not complete. 0
  // on devices whose queues have a fixed size, because there a full queue makes the caller wait. Any
  // thread.
  virtual uint64_t HeldBytes() const { return 0; }

  // The session has ended. Its queued work may be dropped, and running kernels are stopped if the
  // device can stop them.
  virtual void Abandon() = 0;
  // Waits for the session's work on the GPU. If the work of several spaces may access each other's
  // memory, the caller calls this for all of them before it destroys the first.
  virtual void WaitForWork() {}

  // Receives what the session's kernels print; null: nobody does.
  KernelOutput* output() const { return output_.get(); }
  // Shares the output with the caller, which may outlive the space.
  const std::shared_ptr<KernelOutput>& shared_output() const { return output_; }
  // Call once, before the first launch.
  void set_output(std::shared_ptr<KernelOutput> output) { output_ = std::move(output); }

  // ---- Calls of this thread, the session's, wait as `wait` says, which outlives them. Calls of other
  // threads only wait.
  void set_call_wait(CallWait* wait) {
    call_wait_ = wait;
    call_thread_ = std::this_thread::get_id();
  }
  // For the device, while a call waits for other sessions' work. Any thread.
  void SuspendCall() {
    if (call_wait_ != nullptr && call_thread_ == std::this_thread::get_id()) call_wait_->Suspend();
  }
  bool ResumeCall() {
    return call_wait_ == nullptr || call_thread_ != std::this_thread::get_id() ||
           call_wait_->Resume();
  }

  // ---- The time-slice group of the session's work (Preemption). The session's thread calls these.
  // Other threads may ask. Once bound() is true for them, urgent() does not change.

  // Whether the work runs in the urgent group. Objects that exist in one group are created there.
  bool urgent() const { return urgent_.load(std::memory_order_relaxed); }
  // Requires that the space is not bound.
  void set_urgent(bool urgent) { urgent_.store(urgent, std::memory_order_relaxed); }
  // The session now has an object that exists in one group only: an array, a texture, a surface, the
  // address of a variable. Its work stays in its present group.
  void BindToGroup() { bound_.store(true, std::memory_order_release); }
  bool bound() const { return bound_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> urgent_{false};
  // Release: publishes `urgent_` to threads that show the session's state.
  std::atomic<bool> bound_{false};
  std::shared_ptr<KernelOutput> output_;
  // Set before other threads call the space.
  CallWait* call_wait_ = nullptr;
  std::thread::id call_thread_;
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
  Dim3 cluster{0, 0, 0};  // 0: not given
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
  // As loaded, with the attributes that were set since then.
  virtual const KernelInfo& info() const = 0;
  virtual absl::Status SetAttribute(int attribute, int value) = 0;
  virtual absl::StatusOr<int> MaxActiveBlocks(const OccupancyQuery& query) = 0;
  virtual absl::StatusOr<uint64_t> AvailableDynamicShared(int blocks, int block_size) = 0;
  virtual absl::StatusOr<int> MaxPotentialClusterSize(const LaunchShape& shape) = 0;
  virtual absl::StatusOr<int> MaxActiveClusters(const LaunchShape& shape) = 0;

  // Whether the code uses memory of which each time-slice group has its own: variables of the
  // library that the code may write, or the heap of malloc(). A session that launches such a kernel
  // is bound to its group (AddressSpace::BindToGroup). Never changes.
  virtual bool bound_to_group() const { return false; }
  // Whether a launch in this time-slice group can begin without a wait for any client. Each group has
  // its own copy of the code, and the device makes a copy only while no stream waits for its client.
  // Such a client may itself wait for this launch. True if the other group has no copy either.
  virtual bool CanStartIn(bool /*urgent*/) const { return true; }
  // The same, before a launch in this group: makes the group's copy if there is none and CanStartIn()
  // holds. Returns false if that takes long, because work of the group does not end, and the other
  // group has a copy. That work may wait for this launch. The session's thread calls this.
  virtual bool Prepare(AddressSpace& /*space*/, bool urgent) { return CanStartIn(urgent); }

  // Identifies the code that the kernel executes; the same in every session. 0 if unknown. Set
  // once, before the first launch.
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
  uint64_t info_limit = 0, error_limit = 0;  // maximum bytes that the caller wants
  std::string info, error;
};

// Code that is loaded for one session, with its own globals.
class Library {
 public:
  // Unloads the code. The caller ensures that none of its kernels is queued or running.
  virtual ~Library() = default;
  // In the order of cuLibraryEnumerateKernels: the last kernel of the image comes first.
  virtual std::vector<std::string> KernelNames() const = 0;
  // The library owns the kernel. NotFound if there is none of this name.
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

// A point in a queue's work. A marker belongs to the device that created it: only that device's
// queues record it, but queues of all devices of the backend may wait for it.
class Marker {
 public:
  Marker() = default;
  virtual ~Marker();
  Marker(const Marker&) = delete;
  Marker& operator=(const Marker&) = delete;

  // Whether the last recording has not come to the device yet, because it is parked (parking.h).
  bool parked() const { return parked_ != nullptr && !parked_->submitted; }

 private:
  friend class Parking;
  friend class ParkingQueue;
  struct ParkedPoint {
    Marker* marker = nullptr;  // null if the marker is gone or stands for a later point
    bool submitted = false;
  };
  std::shared_ptr<ParkedPoint> parked_;
};

// A position in a level of an array.
struct ArrayPlace {
  Array* array = nullptr;  // null if the position is an address
  uint32_t level = 0;
  uint64_t x = 0, y = 0, z = 0;  // x in bytes; z counts planes or layers
  friend bool operator==(const ArrayPlace&, const ArrayPlace&) = default;
};

struct CopyRequest {
  // Device addresses or registered host addresses. With `inline_source`, the source is memory of at
  // most kInlineCopyBytes that is valid only during the call.
  DeviceAddress destination = 0, source = 0;
  // If a side is the memory of another device of the session, that device's space. Then the other
  // side is also device memory, and both stay mapped until the copy is complete.
  AddressSpace* destination_space = nullptr;
  AddressSpace* source_space = nullptr;
  bool inline_source = false;
  uint64_t width = 0;  // bytes; a linear copy has height and depth 1
  uint64_t height = 1, depth = 1;
  uint64_t destination_pitch = 0, destination_slice = 0;
  uint64_t source_pitch = 0, source_slice = 0;
  // Used instead of an address and its pitches. The caller has checked that the box lies in the
  // array and consists of whole texels. The array outlives the copy. The source is then not inline.
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

struct PrefetchRequest {
  DeviceAddress address = 0;
  uint64_t bytes = 0;
  ManagedPlace place = nullptr;
};

// A first-in first-out queue of work on one partition (a physical stream). Each piece of work
// belongs to an address space: it must not access memory outside the space, and the space receives
// its faults. Sessions use a queue one after the other. A failed call queues nothing and returns
// its error; the errors of the work itself go to the address space.
class Queue {
 public:
  virtual ~Queue() = default;
  // From this call on, `space` is the one whose session uses the queue. What Record() and Wait() hold
  // counts for it (AddressSpace::HeldBytes). Call while the queue has no work.
  virtual void Serve(AddressSpace& space) {}
  // Reads `parameters` (info().parameter_bytes bytes) during the call. For invalid shapes, returns
  // the CUresult that CUDA gives.
  virtual absl::Status Launch(AddressSpace& space, Kernel& kernel, const LaunchShape& shape,
                              absl::Span<const std::byte> parameters) = 0;
  virtual absl::Status Copy(AddressSpace& space, const CopyRequest& request) = 0;
  virtual absl::Status Fill(AddressSpace& space, const FillRequest& request) = 0;
  // Moves pages of managed memory of the space. It is a hint: what the device refuses stays where it
  // is. Does nothing on devices without managed memory.
  virtual absl::Status Prefetch(AddressSpace& /*space*/, const PrefetchRequest& /*request*/) {
    return absl::OkStatus();
  }
  // Release-stores `value` to *fence when all earlier work is complete. The fence lies in
  // registered memory.
  virtual absl::Status WriteFence(AddressSpace& space, std::atomic<uint64_t>* fence,
                                  uint64_t value) = 0;
  // Blocks later work until *fence >= value or the space is abandoned.
  virtual absl::Status WaitFence(AddressSpace& space, const std::atomic<uint64_t>* fence,
                                 uint64_t value) = 0;
  // Executes the operations in order, as CUDA does. The words lie in the space's memory and are
  // aligned. Each wait must be able to end. A wait that does not end blocks only this queue, and
  // ends when the space is abandoned.
  virtual absl::Status MemoryOps(AddressSpace& space, absl::Span<const MemoryOp> operations) = 0;
  // `marker`, of this queue's device, now stands for this point. Recording it again moves it.
  virtual absl::Status Record(Marker& marker) = 0;
  // Blocks later work until the point is reached for which the marker stands at the time of the
  // call. The marker may be of any device of the backend. No wait if no point was recorded.
  virtual absl::Status Wait(Marker& marker) = 0;
  // Launches a graph of this partition once. The launch runs between the earlier and later work of
  // the queue, and after the graph's earlier launches on any queue. `values` has one value for each
  // signal and wait. CUDA_ERROR_NOT_SUPPORTED on devices without graphs.
  virtual absl::Status LaunchGraph(AddressSpace& space, Graph& graph,
                                   absl::Span<const uint64_t> values);
  // Whether all submitted work is known to be complete. Does not wait.
  virtual bool Idle() { return false; }
  // Prepares the next launch of the graph on this queue, if that needs anything.
  virtual absl::Status UploadGraph(AddressSpace& space, Graph& graph);
};

// A set of SMs.
class Partition {
 public:
  virtual ~Partition() = default;
  virtual int first_sm() const = 0;
  virtual int sm_count() const = 0;
  // May be slow, so callers pool queues. `priority` is as CUDA's stream priorities.
  virtual absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(int priority) = 0;
};

// Keeps the urgent time-slice group on the device while the group has no work for a moment. Without
// a hold the ordinary group gets the device at once, and the next urgent operation has to preempt
// it again. Threading: one thread at a time.
//
// A hold may run a block of one warp, without shared memory, on one SM. It leaves the SM's largest part of
// shared memory to other blocks.
class GroupHold {
 public:
  // What the block needs of the SM's registers, for each thread. Measured on an H200: a warp whose kernel uses
  // 8 does not fit beside blocks that leave 8.
  static constexpr int kRegisters = 24;

  // Ends the hold.
  virtual ~GroupHold() = default;
  // The hold lasts for this time from now on, whatever it lasted before. Cheap while it lasts;
  // otherwise begins a hold behind the work that was submitted before. The device bounds the time.
  // With an error there is no hold: the driver does not bear one now, for instance.
  virtual absl::Status HoldFor(int64_t nanoseconds) = 0;
  // Ends the hold. It is over before work that is submitted after this call needs its resources.
  virtual void End() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceProperties& properties() const = 0;

  // The partition of all SMs, which always exists.
  virtual Partition& whole() = 0;
  // The partition of all SMs in the urgent time-slice group; null if the device cannot preempt, and
  // while the group is not open. Its work stops the work of all other partitions and runs until it is
  // complete. It runs as soon as it is submitted, after about properties().preemption.latency_ns. Any
  // thread; once open, the group stays open.
  virtual Partition* urgent() { return nullptr; }
  // Opens the urgent group of a device that can preempt, unless it is open. Takes
  // properties().preemption.memory_bytes of the device, and some 0.2 s. Any thread.
  virtual absl::Status OpenUrgent() { return absl::OkStatus(); }
  // True: ordinary work keeps the device for a part of a millisecond at a time, also when urgent work
  // or ordinary work of another process is there, until the same caller says false. By default it
  // gives way at once, and makes no progress beside such work. Returns at once; takes effect after a
  // fraction of a millisecond, or after some 200 ms while the driver handles a fault. Does nothing on a
  // device without an urgent group. Any thread.
  virtual void KeepOrdinary(bool /*keep*/) {}
  // The same, with time slices as long as those of programs on the device that are not the daemon's.
  virtual void ShareOrdinary(bool /*share*/) {}
  // `others_work` tells whether other processes have work on the device. Null: nobody knows, so they
  // may have, as before the first call. The driver's own work in slow calls (CreatePartition, the
  // upload of code) belongs to no turn; the device lets it proceed beside others' work. Any thread
  // may call the function, but none does after a later call of ShareWith() has returned.
  virtual void ShareWith(std::function<bool()> /*others_work*/) {}
  // Null if the device needs no holds. ResourceExhausted if all are in use.
  virtual absl::StatusOr<std::unique_ptr<GroupHold>> CreateHold() { return nullptr; }
  // Creates a partition of `count` SMs from `first` on, both multiples of properties().sm_group.
  // SMs that fill no whole group belong to the last group. Partitions may overlap. Slow and may
  // drain the device, so only at start.
  virtual absl::StatusOr<std::unique_ptr<Partition>> CreatePartition(int first, int count) = 0;

  // `timed`: ElapsedMilliseconds accepts the marker.
  virtual absl::StatusOr<std::unique_ptr<Marker>> CreateMarker(bool timed) = 0;
  // Whether the point for which the marker stands is reached; true if there is no point.
  virtual absl::StatusOr<bool> Reached(Marker& marker) = 0;
  // The time between two recorded markers. Unavailable while either is not reached;
  // FailedPrecondition if either was not recorded or is not timed. Waits for the GPU, at most
  // some milliseconds, only if the two were recorded in different time-slice groups.
  virtual absl::StatusOr<float> ElapsedMilliseconds(Marker& start, Marker& end) = 0;

  // The device may keep the first of these addresses. The rest is the range of the space.
  virtual absl::StatusOr<std::unique_ptr<AddressSpace>> CreateAddressSpace(DeviceAddress base,
                                                                           uint64_t size) = 0;
  // Creates zeroed memory. `bytes` is a multiple of kPhysicalGranule. ResourceExhausted if the card
  // is full. Never drains the device.
  virtual absl::StatusOr<std::shared_ptr<PhysicalMemory>> CreatePhysicalMemory(uint64_t bytes) = 0;

  // `image`: ELF, PTX text (not necessarily terminated) or a fatbin. `place`: for managed variables.
  // Errors carry CUDA_ERROR_INVALID_PTX, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_IMAGE and
  // similar codes. May take long and may drain the device.
  virtual absl::StatusOr<std::unique_ptr<Library>> LoadLibrary(
      AddressSpace& space, absl::Span<const std::byte> image,
      absl::Span<const JitOptionValue> options, CompileLogs& logs, const PlaceManaged& place) = 0;
  // Gives the space's output what its kernels that have completed have printed. Does not wait for
  // kernels that run.
  virtual void FlushOutput(AddressSpace& /*space*/) {}
  // Returns the linked image in a form that LoadLibrary accepts.
  virtual absl::StatusOr<std::string> Link(absl::Span<const LinkInputImage> inputs,
                                           absl::Span<const JitOptionValue> options,
                                           CompileLogs& logs) = 0;

  // Prepares a graph for launches on queues of `partition`. Returns errors of nodes that show
  // before a launch, and sets `*refused` to the node. May take long. CUDA_ERROR_NOT_SUPPORTED on
  // devices without graphs.
  virtual absl::StatusOr<std::unique_ptr<Graph>> InstantiateGraph(
      AddressSpace& space, Partition& partition, const GraphDescription& description,
      GraphPlace* refused);

  // Creates a value for conditional nodes of the session's graphs, and returns its id. With
  // `assign_default`, each launch of a graph with its node starts with the default value. Kernels
  // set the value through the low 32 bits of the id. Graphs of one session may share these bits,
  // because CUDA numbers the handles of each graph separately. `sibling` is another id for the same
  // graph, or 0. Only one executable graph at a time may use the ids for one graph, and it uses no
  // other ids. CUDA_ERROR_NOT_SUPPORTED on devices without conditional nodes.
  virtual absl::StatusOr<uint64_t> CreateGraphCondition(AddressSpace& space, uint32_t default_value,
                                                        bool assign_default, uint64_t sibling);
  // The id names no value from now on, and no later value. Executable graphs that have it keep the
  // value until their launches are complete. Ids that nobody ends live as long as the space.
  virtual void EndGraphCondition(AddressSpace& space, uint64_t id) {}

  struct Memory {
    uint64_t free = 0, total = 0;
  };
  virtual Memory memory() const = 0;
  // This device's possible access to the memory of `other`, another device of the backend:
  // CUdevice_P2PAttribute -> value. Access is supported if CUDA reports so for the pair. Never
  // changes.
  virtual std::map<int, int> PeerAttributes(const Device& other) const { return {}; }
  struct Limit {
    // What this session requested, as the device rounds it, independent of other sessions.
    uint64_t value = 0;
    // What its kernels get. It is less than `value` if sessions share the limit and it cannot grow
    // any more.
    uint64_t in_force = 0;
  };
  // Sets a limit of a context (CUlimit). Devices that share one limit among sessions keep the
  // largest.
  virtual absl::StatusOr<Limit> SetLimit(AddressSpace& space, int limit, uint64_t value) = 0;

  // Cache lines that launches made persisting become normal lines again. Does nothing on devices
  // without such a cache.
  virtual absl::Status ResetPersistingCache() { return absl::OkStatus(); }

  // OkStatus while the device works. After an error, everything on the device is lost and the
  // process must be replaced.
  virtual absl::Status health() const = 0;

  // Optional parts, null if the device lacks them. They live as long as the device.
  virtual ImageDevice* images() { return nullptr; }
  virtual TensorMapEncoder* tensor_maps() { return nullptr; }
  // One object for all devices of the backend.
  virtual ManagedMemory* managed_memory() { return nullptr; }
};

}  // namespace detshare
