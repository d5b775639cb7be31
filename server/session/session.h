// One client process: its memory shared with the daemon, its objects, its GPU coroutines. Handlers
// work on it.
//
// Threading: made, used and ended by its worker's thread only (session_worker.h); what says "any
// thread" excepted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/gpu_graph.h"
#include "coroutine_runtime/queue_pool.h"
#include "coroutine_runtime/shared_event.h"
#include "coroutine_runtime/task.h"
#include "coroutine_runtime/memory_broker.h"
#include "proto/driver_api/row.h"
#include "server/session/ipc_memory.h"
#include "server/session/managed_block.h"
#include "server/session/peer_access.h"
#include "server/session/reply.h"
#include "server/shared_memory/ring_reader.h"
#include "server/session/server_options.h"
#include "server/session/session_images.h"
#include "server/session/session_swap.h"
#include "server/session/shared_events.h"
#include "server/session/shared_memory_objects.h"
#include "server/shared_memory/shared_region.h"
#include "server/session/virtual_memory.h"

namespace detshare {

class ImageStore;

// What the session has on one device.
struct SessionDevice {
  Device* device = nullptr;
  std::unique_ptr<AddressSpace> space;
  std::unique_ptr<GpuCoroutine> coroutine;
  std::unique_ptr<DeviceMemory> memory;
  std::shared_ptr<Quota> quota;  // of its memory; null: no end
};

class Session {
 public:
  struct Config {
    uint64_t id = 0;
    int slot = 0;  // its place in the address windows
    Owner owner;
    std::string label;  // names the session in the log
    int pid = 0;        // of the client; 0: not known
    std::string tenant;
    std::string directory;  // exists not yet
    struct OnDevice {
      Device* device = nullptr;
      QueuePool* queues = nullptr;
      DeviceScheduler* scheduler = nullptr;
      MemoryBroker* broker = nullptr;  // null: memory does not leave the card
      std::shared_ptr<Quota> quota;    // of device memory; null: no end
      uint64_t memory_base = 0, memory_bytes = 0;
    };
    std::vector<OnDevice> devices;
    std::shared_ptr<Quota> pinned_quota;  // of pinned host memory; null: no end
    SharedMemoryObjects* shared_memory_objects = nullptr;  // of the daemon
    ImageStore* image_store = nullptr;                     // the same
    SharedEvents* shared_event_tokens = nullptr;           // the same
  };
  struct Counters {
    uint64_t device_memory = 0, pinned_memory = 0, operations = 0, kernels = 0, bytes_copied = 0,
             migrations = 0, code_bytes = 0;
    MemoryBroker::Account::Counters swap;
    uint64_t launches = 0, graphs = 0, copies = 0, fills = 0;  // as GpuCoroutine::Counters
  };

  // Makes the directory, its files and what the devices need.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const Config& config,
                                                       const ServerOptions& options);
  // Waits for what the GPU still does (call Abandon() first to shorten that) and gives everything
  // back.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  uint64_t id() const { return config_.id; }
  const std::string& label() const { return config_.label; }
  const Config& config() const { return config_; }
  const SessionLimits& limits() const { return options_.limits; }
  SharedRegion& region() { return *region_; }
  RingReader& reader() { return *reader_; }
  Executor& executor() { return *executor_; }
  PinnedWindow& pinned() { return *pinned_; }
  std::vector<SessionDevice>& devices() { return devices_; }
  VirtualMemory& virtual_memory() { return *virtual_memory_; }
  SessionSwap& swap() { return *swap_; }
  SharedMemoryObjects& shared_memory_objects() { return *config_.shared_memory_objects; }
  Counters counters() const;  // any thread, while the session lives
  struct DeviceUse {
    const Device* device = nullptr;
    uint64_t memory = 0;  // bytes of the card, and those that are out
    bool busy = false;    // work of the session is queued or running
  };
  std::vector<DeviceUse> device_use() const;  // any thread, while the session lives

  // ---- for the worker

  // Whether the next record may be read, as far as the schedulers are concerned.
  bool MayRun() {
    if (devices_.size() == 1) [[likely]]
      return devices_[0].coroutine->MayRun();
    const size_t next = reader_->NextDevice();
    return next >= devices_.size() || devices_[next].coroutine->MayRun();
  }
  // A record is there that may not be read. True when it was throttled for so long that it may.
  bool Throttle();
  // Sees how far the work is. `pause`: no record has come for some time.
  void WatchWork(bool pause);
  // Whether work is under way whose end WatchWork() is to see, and whether others wait for that.
  bool watching_work() const;
  bool others_throttled() const;
  // Somebody waits for each result of the session.
  bool awaited() const;
  // Prepares one thing that would hold up a launch later. False: there is none.
  bool MakeReady();
  // Executes one record of the ring, or one control call. What breaks the protocol ends up in
  // violation().
  void HandleRecord(const RingRecord& record);
  void HandleCall(uint16_t op, uint32_t device, ContextId context, std::span<const uint8_t> args,
                  std::shared_ptr<const std::string> payload, Reply::CallDone done);
  // Watches for the end of everything that was submitted so far. Not while watching_idle().
  void WatchIdle();
  bool watching_idle() const { return idle_watch_ != 0; }
  // Looks for a fault of the session's work and makes it the session's error. Cheap when there is
  // none.
  void CheckFault();
  // From now on every operation answers `result`; everybody who waits is released. The first error
  // stays.
  void SetStickyError(int result, const std::string& why);
  int sticky_error() const { return sticky_error_; }
  // Whether the error came from the device.
  bool faulted() const { return faulted_; }
  // What the client did that ends the session; empty while it did nothing.
  const std::string& violation() const { return violation_; }
  void Violate(std::string what);
  // Tells the client that nothing will be read or answered any more. `result`: what its calls
  // answer from now on.
  void Close(int result);
  // Queued work may be dropped.
  void Abandon();
  // Both at once, from any thread: ends what the worker may be waiting for in the middle of an
  // operation.
  void Interrupt(int result);

  // ---- for handlers

  // Of the operation that is being handled.
  SessionDevice& device() { return *current_device_; }
  ContextId context() const { return current_context_; }

  // Whether [offset, offset + bytes) of the staging area can be used. Makes the devices reach the
  // rest of the area when it is first used.
  absl::Status UseStaging(uint64_t offset, uint64_t bytes);

  // The daemon's address of a wire fence; nullptr for kNoFence. False when it does not exist.
  bool FindFence(FenceIndex index, Fence** fence) {
    if (index == kNoFence) {
      *fence = nullptr;
      return true;
    }
    if (index >= region_->sizes().fence_count) return false;
    *fence = region_->fences() + index;
    return true;
  }

  // Contexts are born when a client first names them. CUDA_ERROR_INVALID_CONTEXT for 0 and for one
  // of another device.
  absl::Status UseContext(ContextId context);
  // The same for a context of another device.
  absl::Status UseContextOf(ContextId context, SessionDevice& device);
  void ForgetContext(ContextId context);
  // By index; nullptr when there is none.
  SessionDevice* DeviceAt(uint32_t index) {
    return index < devices_.size() ? &devices_[index] : nullptr;
  }
  PeerAccess& peer_access() { return peer_access_; }
  IpcMemory& ipc_memory() { return *ipc_memory_; }
  // The device of a context that was used; nullptr when there is none.
  SessionDevice* DeviceOfContext(ContextId context) {
    const auto found = contexts_.find(context);
    return found != contexts_.end() ? found->second : nullptr;
  }
  // The device on which an event was made; nullptr when there is no such event.
  SessionDevice* DeviceOfEvent(EventId event) {
    const auto found = events_.find(event);
    return found != events_.end() ? DeviceOfContext(found->second) : nullptr;
  }
  // The device whose work may read (and write) the range, the current one first; nullptr when none
  // may.
  SessionDevice* DeviceOfMemory(uint64_t address, uint64_t bytes, bool write);

  // Streams and events are counted here, and looked up in the coroutine.
  absl::Status AddStream(StreamId stream, ContextId context);
  void RemoveStream(StreamId stream) { streams_.erase(stream); }
  absl::Status AddEvent(EventId event, ContextId context);
  void RemoveEvent(EventId event) {
    events_.erase(event);
    shared_events_.erase(event);
  }
  // Those that other sessions may use, too, are here and not in a coroutine.
  absl::flat_hash_map<EventId, std::shared_ptr<SharedEvent>>& shared_events() {
    return shared_events_;
  }
  std::shared_ptr<SharedEvent> FindSharedEvent(EventId event) const {
    if (shared_events_.empty()) [[likely]]
      return nullptr;
    const auto found = shared_events_.find(event);
    return found != shared_events_.end() ? found->second : nullptr;
  }
  SharedEvents& shared_event_tokens() { return *config_.shared_event_tokens; }

  struct LoadedLibrary {
    LibraryId id = 0;
    std::shared_ptr<Library> library;             // graphs keep those that they use
    std::shared_ptr<const ManagedBlock> managed;  // null: it has no managed variables
    SessionDevice* device = nullptr;
    ContextId context = 0;  // 0: of the process
    absl::flat_hash_map<std::string, KernelId> kernels;
    uint64_t code = 0;  // stands for its image
    bool unloading = false;
  };
  struct LoadedKernel {
    Kernel* kernel = nullptr;  // null: its library is gone
    SessionDevice* device = nullptr;
    LibraryId library = 0;
  };
  // Code that clients of the same user have sent; null when nothing is kept.
  ImageStore* image_store() { return config_.image_store; }
  // The payload of the control call that is being handled.
  const std::shared_ptr<const std::string>& kept_payload() const { return current_payload_; }
  void CountCode(uint64_t bytes) { code_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  absl::Status CheckRoomForImage(uint64_t bytes) const;
  // `image`: what it was loaded from.
  absl::StatusOr<LibraryId> AddLibrary(std::unique_ptr<Library> library, ContextId context,
                                       std::span<const uint8_t> image,
                                       std::shared_ptr<const ManagedBlock> managed,
                                       QuotaCharge charge);
  // Of the current device and not being unloaded, else nullptr.
  LoadedLibrary* FindLibrary(LibraryId id);
  // The managed variables of a library of any device; null when it has none, or is none.
  std::shared_ptr<const ManagedBlock> ManagedOf(LibraryId id) const {
    return id < libraries_.size() && libraries_[id] != nullptr ? libraries_[id]->managed : nullptr;
  }
  absl::StatusOr<KernelId> AddKernel(LoadedLibrary& library, const std::string& name);
  // None of its kernels is queued or running.
  void RemoveLibrary(LibraryId id);
  std::vector<LibraryId> LibrariesOf(ContextId context) const;
  // Of the current device, else nullptr.
  Kernel* FindKernel(KernelId id) const {
    if (id >= kernels_.size() || kernels_[id].device != current_device_) return nullptr;
    return kernels_[id].kernel;
  }

  // The same, with its library: whoever has it may use the kernel, whatever is unloaded.
  std::shared_ptr<Kernel> ShareKernel(KernelId id) const {
    Kernel* const kernel = FindKernel(id);
    if (kernel == nullptr) return nullptr;
    return std::shared_ptr<Kernel>(libraries_[kernels_[id].library]->library, kernel);
  }

  // Executable graphs. `payload_bytes`: of what describes one, before it is made.
  absl::Status CheckRoomForGraph(GraphId id, uint64_t payload_bytes) const;
  void AddGraph(GraphId id, ContextId context, std::unique_ptr<GpuGraph> graph);
  // A change by `payload_bytes` of description, of a graph of the current device.
  absl::Status ChangeGraph(GraphId id, uint64_t payload_bytes,
                           absl::FunctionRef<absl::Status(GpuGraph&)> change);
  // Of the current device, else nullptr.
  GpuGraph* FindGraph(GraphId id) const {
    const auto found = graphs_.find(id);
    if (found == graphs_.end() || found->second.device != current_device_) return nullptr;
    return found->second.graph.get();
  }
  // Of the current device. Whether it was there.
  bool RemoveGraph(GraphId id);
  void RemoveGraphsOf(ContextId context);
  // One more of the conditions of graphs, which stay as long as the session.
  absl::Status CountGraphCondition();

  // Arrays, textures and surfaces.
  SessionImages& images() { return images_; }

  // Which context a pinned allocation belongs to.
  absl::flat_hash_map<uint64_t, ContextId>& pinned_owners() { return pinned_owners_; }
  void UpdatePinnedCounter() {
    pinned_bytes_.store(pinned_->bytes_in_use(), std::memory_order_relaxed);
  }

  // Where kernels print. Any thread.
  std::function<void(std::string_view)> Printer();

  // ---- for Reply

  // An error that nobody waits for.
  void OnAsynchronousError(uint16_t op, const absl::Status& status);

 private:
  Session(const Config& config, const ServerOptions& options)
      : config_(config), options_(options) {}
  void Execute(Transport transport, uint16_t op, uint32_t device, ContextId context,
               std::span<const uint8_t> args, std::span<const uint8_t> payload, Reply& reply);
  void WaitForDevices();
  Task<void> AwaitIdle(int* busy);

  const Config config_;
  const ServerOptions& options_;
  bool directory_made_ = false;

  std::unique_ptr<SharedRegion> region_;
  std::unique_ptr<PinnedWindow> pinned_;
  std::unique_ptr<RingReader> reader_;
  std::unique_ptr<Executor> executor_;
  std::vector<SessionDevice> devices_;  // never changes in size: others point into it
  std::unique_ptr<SessionSwap> swap_;
  std::unique_ptr<VirtualMemory> virtual_memory_;
  PeerAccess peer_access_;
  std::unique_ptr<IpcMemory> ipc_memory_;

  SessionDevice* current_device_ = nullptr;
  ContextId current_context_ = 0;
  std::shared_ptr<const std::string> current_payload_;
  int sticky_error_ = 0;
  bool faulted_ = false;
  bool abandoned_ = false;
  bool late_staging_registered_ = false;
  int idle_watch_ = 0;  // 1 while a task watches
  std::string violation_;

  absl::flat_hash_map<ContextId, SessionDevice*> contexts_;
  absl::flat_hash_map<StreamId, ContextId> streams_;
  absl::flat_hash_map<EventId, ContextId> events_;
  absl::flat_hash_map<EventId, std::shared_ptr<SharedEvent>> shared_events_;
  std::vector<std::unique_ptr<LoadedLibrary>> libraries_;  // by id; null when unloaded
  std::vector<LoadedKernel> kernels_;                      // by id
  uint64_t image_bytes_ = 0;

  struct LoadedGraph {
    std::unique_ptr<GpuGraph> graph;
    SessionDevice* device = nullptr;
    ContextId context = 0;
  };
  absl::flat_hash_map<GraphId, LoadedGraph> graphs_;
  uint64_t graph_bytes_ = 0;  // of all of them
  uint32_t graph_conditions_ = 0;
  absl::flat_hash_map<uint64_t, ContextId> pinned_owners_;
  SessionImages images_;

  std::mutex print_mutex_;
  bool print_overflowed_ = false;          // guarded by print_mutex_
  std::atomic<uint64_t> pinned_bytes_{0};  // relaxed: for reports only
  std::atomic<uint64_t> code_bytes_{0};    // the same
};

}  // namespace detshare
