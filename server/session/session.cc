#include "server/session/session.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "coroutine_runtime/status_cuda.h"
#include "proto/driver_api/driver_api_ops.h"
#include "proto/driver_api/server_dispatch.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

const char* NameOf(uint16_t op) {
  const char* name = OpName(op);
  return name != nullptr ? name : "unknown operation";
}

// Stands for what a library's kernels execute, so that durations are known again (durations.h). Of
// a large image its ends are enough: taking two for one costs a few wrong estimates.
uint64_t CodeOfImage(std::span<const uint8_t> image) {
  constexpr size_t kEnd = 32768;
  const auto part = [&](size_t first, size_t bytes) {
    return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(image.data()) + first, bytes);
  };
  if (image.size() <= 2 * kEnd) return StableHash(part(0, image.size()));
  return StableHash(part(image.size() - kEnd, kEnd),
                    StableHash(part(0, kEnd), /*seed=*/image.size()));
}

policy::TenantClass ClassOf(const std::string& tenant, const ServerOptions& options) {
  for (const policy::Tenant& known : options.tenants) {
    if (known.name == tenant) return known.tenant_class;
  }
  return policy::TenantClass::kUnset;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const Config& config,
                                                       const ServerOptions& options) {
  std::unique_ptr<Session> session(new Session(config, options));
  DETSHARE_RETURN_IF_ERROR(MakeSharedDirectory(config.directory));
  session->directory_made_ = true;

  auto region = SharedRegion::Create(config.directory + "/session", options.region, config.owner);
  if (!region.ok()) return region.status();
  session->region_ = *std::move(region);
  session->reader_ =
      std::make_unique<RingReader>(session->region_->header(), session->region_->ring(),
                                   options.region.ring_bytes, options.region.reply_count);
  session->pinned_ = std::make_unique<PinnedWindow>(
      config.directory,
      options.windows.pinned_base +
          options.windows.pinned_bytes * static_cast<uint64_t>(config.slot),
      options.windows.pinned_bytes, config.owner, options.limits.pinned, config.pinned_quota);
  RingReader* const reader = session->reader_.get();
  session->executor_ = std::make_unique<Executor>([reader] { reader->Wake(); });

  const std::span<uint8_t> device_part = session->region_->device_part();
  session->devices_.resize(config.devices.size());
  session->swap_ = std::make_unique<SessionSwap>(*session);
  for (size_t i = 0; i < config.devices.size(); ++i) {
    const Config::OnDevice& on = config.devices[i];
    SessionDevice& device = session->devices_[i];
    device.device = on.device;
    auto space = on.device->CreateAddressSpace(on.memory_base, on.memory_bytes);
    if (!space.ok()) return space.status();
    device.space = *std::move(space);
    DETSHARE_RETURN_IF_ERROR(device.space->RegisterHost(device_part.data(), device_part.size()));
    auto coroutine =
        GpuCoroutine::Create(*on.device, *device.space, *on.queues, *session->executor_);
    if (!coroutine.ok()) return coroutine.status();
    device.coroutine = *std::move(coroutine);
    device.memory = std::make_unique<DeviceMemory>(*device.coroutine);
    device.quota = on.quota;
    device.memory->set_quota(on.quota);
    if (on.broker != nullptr)
      session->swap_->Add(*on.broker, ClassOf(config.tenant, options), device);
    on.scheduler->Add(config.id, config.tenant, *device.coroutine);
  }
  session->virtual_memory_ = std::make_unique<VirtualMemory>(session->devices_);
  session->ipc_memory_ = std::make_unique<IpcMemory>(
      session->devices_, *config.shared_memory_objects, config.owner.uid);
  session->current_device_ = session->devices_.empty() ? nullptr : &session->devices_[0];
  session->libraries_.push_back(nullptr);  // ids begin with 1
  session->kernels_.push_back({});
  return session;
}

Session::~Session() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].coroutine != nullptr)
      config_.devices[i].scheduler->Remove(config_.id, *devices_[i].coroutine);
  }
  if (swap_ != nullptr) swap_->Leave();
  if (!devices_.empty() && executor_ != nullptr) {
    WaitForDevices();
  }
  // In this order: tasks use everything, libraries and memory belong to the spaces, the spaces use
  // the shared memory.
  executor_.reset();
  graphs_.clear();
  libraries_.clear();
  virtual_memory_.reset();
  ipc_memory_.reset();
  for (SessionDevice& device : devices_) device.memory.reset();
  // Devices may touch each other's memory.
  for (SessionDevice& device : devices_) {
    if (device.space != nullptr) device.space->WaitForWork();
  }
  // What a faulted space still has queued writes to the fences of the coroutine.
  for (SessionDevice& device : devices_) device.space.reset();
  swap_.reset();
  images_.Clear();
  for (SessionDevice& device : devices_) device.coroutine.reset();
  pinned_.reset();
  reader_.reset();
  region_.reset();
  if (directory_made_) RemoveTree(config_.directory);
}

Task<void> Session::AwaitIdle(int* busy) {
  for (SessionDevice& device : devices_) {
    if (device.coroutine != nullptr) (void)co_await device.coroutine->Idle();
  }
  *busy = 0;
}

void Session::WatchIdle() {
  idle_watch_ = 1;
  executor_->Spawn(AwaitIdle(&idle_watch_));
}

bool Session::Throttle() {
  // An error is answered without any device.
  if (sticky_error_ != 0) return true;
  if (devices_.size() == 1) return devices_[0].coroutine->Throttle();
  const size_t next = reader_->NextDevice();
  return next >= devices_.size() || devices_[next].coroutine->Throttle();
}

void Session::WatchWork(bool pause) {
  for (SessionDevice& device : devices_) device.coroutine->WatchWork(pause);
}

bool Session::watching_work() const {
  return std::any_of(devices_.begin(), devices_.end(),
                     [](const SessionDevice& device) { return device.coroutine->watching_work(); });
}

bool Session::others_throttled() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const SessionDevice& device) {
    return device.coroutine->entity() != nullptr && device.coroutine->entity()->others_throttled();
  });
}

bool Session::awaited() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const SessionDevice& device) {
    return device.coroutine->entity() != nullptr && device.coroutine->entity()->assignment().awaited;
  });
}

bool Session::MakeReady() {
  for (SessionDevice& device : devices_) {
    if (device.coroutine->MakeReady()) return true;
  }
  return false;
}

void Session::WaitForDevices() {
  constexpr auto kTimeout = std::chrono::seconds(10);
  int busy = 1;
  executor_->Spawn(AwaitIdle(&busy));
  const auto begin = std::chrono::steady_clock::now();
  bool warned = false;
  while (busy != 0) {
    executor_->Poll();
    // Whatever a faulted space had queued is not worth waiting for: the space itself waits for what
    // still runs.
    bool all_faulted = true;
    for (const SessionDevice& device : devices_) {
      if (device.space != nullptr && device.space->fault().ok() && device.device->health().ok())
        all_faulted = false;
    }
    if (all_faulted) executor_->AbortWaits();
    if (busy == 0) break;
    if (!warned && std::chrono::steady_clock::now() - begin > kTimeout) {
      warned = true;
      LogWarning(label(), ": its kernels are still running; its memory stays until they end");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

Session::Counters Session::counters() const {
  Counters counters;
  counters.pinned_memory = pinned_bytes_.load(std::memory_order_relaxed);
  counters.device_memory = images_.array_bytes();
  if (virtual_memory_ != nullptr) counters.device_memory += virtual_memory_->bytes();
  counters.swap = swap_->counters();
  counters.code_bytes = code_bytes_.load(std::memory_order_relaxed);
  for (const SessionDevice& device : devices_) {
    if (device.memory != nullptr) counters.device_memory += device.memory->mapped();
    if (device.coroutine == nullptr) continue;
    const GpuCoroutine::Counters one = device.coroutine->counters();
    counters.operations += one.operations;
    counters.kernels += one.kernels;
    counters.bytes_copied += one.bytes_copied;
    counters.migrations += one.migrations;
    counters.launches += one.launches;
    counters.graphs += one.graphs;
    counters.copies += one.copies;
    counters.fills += one.fills;
  }
  return counters;
}

std::vector<Session::DeviceUse> Session::device_use() const {
  std::vector<DeviceUse> uses;
  for (const SessionDevice& device : devices_)
    uses.push_back(
        {device.device, device.memory->mapped() + device.memory->out(), device.space->Busy()});
  return uses;
}

// ---- operations

void Session::HandleRecord(const RingRecord& record) {
  Reply reply(this, record.op, record.reply_slot);
  Execute(Transport::kRing, record.op, record.device, record.context, record.args, record.payload,
          reply);
}

void Session::HandleCall(uint16_t op, uint32_t device, ContextId context,
                         std::span<const uint8_t> args, std::shared_ptr<const std::string> payload,
                         Reply::CallDone done) {
  Reply reply(this, op, std::move(done));
  current_payload_ = std::move(payload);
  Execute(Transport::kGrpc, op, device, context, args,
          {reinterpret_cast<const uint8_t*>(current_payload_->data()), current_payload_->size()},
          reply);
  current_payload_.reset();
}

void Session::Execute(Transport transport, uint16_t op, uint32_t device, ContextId context,
                      std::span<const uint8_t> args, std::span<const uint8_t> payload,
                      Reply& reply) {
  if (sticky_error_ != 0) [[unlikely]] {
    reply.Send(absl::OkStatus());  // which it turns into the sticky error
    return;
  }
  if (device >= devices_.size()) [[unlikely]] {
    Violate(absl::StrCat(NameOf(op), " names device ", device, " of ", devices_.size()));
    reply.Send(CudaError(kCudaErrorInvalidDevice, "no such device"));
    return;
  }
  current_device_ = &devices_[device];
  current_context_ = context;
  switch (Dispatch(transport, op, args, payload, *this, reply)) {
    [[likely]] case Dispatched::kHandled : return;
    case Dispatched::kUnknownOp:
      Violate(absl::StrCat("operation ", op, " does not exist"));
      break;
    case Dispatched::kWrongTransport:
      Violate(absl::StrCat(NameOf(op), " came by the wrong way"));
      break;
    case Dispatched::kWrongLength:
      Violate(absl::StrCat(NameOf(op), " came with ", args.size(), " bytes of arguments"));
      break;
  }
  reply.Send(CudaError(kCudaErrorInvalidValue, "malformed"));
}

void Session::OnAsynchronousError(uint16_t op, const absl::Status& status) {
  if (!violation_.empty()) return;  // which ends the session
  const int result = CudaResultOf(status);
  // Everything that a client could know is checked there, before it submits: what arrives here is
  // lost work.
  SetStickyError(result, absl::StrCat(NameOf(op), ": ", std::string(status.message())));
}

void Session::CheckFault() {
  if (sticky_error_ != 0) return;
  for (const SessionDevice& device : devices_) {
    const absl::Status fault = device.space->fault();
    if (!fault.ok()) [[unlikely]] {
      faulted_ = true;
      SetStickyError(CudaResultOf(fault), std::string(fault.message()));
      return;
    }
  }
}

void Session::SetStickyError(int result, const std::string& why) {
  if (sticky_error_ != 0) return;
  sticky_error_ = result;
  LogError(label(), ": CUDA error ", result, ": ", why);
  // Publishes the error before the fences that are forced: a client that sees such a fence sees the
  // error.
  region_->header()->sticky_error.store(static_cast<uint32_t>(result), std::memory_order_release);
  executor_->AbortWaits();
  region_->ForceFences();
}

void Session::Violate(std::string what) {
  if (violation_.empty()) violation_ = std::move(what);
}

void Session::Close(int result) {
  SessionHeader* const header = region_->header();
  if (sticky_error_ == 0) {
    sticky_error_ = result;
    header->sticky_error.store(static_cast<uint32_t>(result), std::memory_order_release);
  }
  // Publishes sticky_error to clients that look at `closed` only.
  header->closed.store(1, std::memory_order_release);
  // On a device that works, tasks that wait for work go on until it is complete: their libraries
  // and memory are in use until then.
  bool lost = false;
  for (const SessionDevice& device : devices_) lost |= !device.device->health().ok();
  if (lost) {
    executor_->AbortWaits();
    executor_->Poll();
  }
  // Host functions that nobody will run any more are over, too.
  region_->ForceFences();
  region_->ReplyAll(sticky_error_);
}

void Session::Interrupt(int result) {
  SessionHeader* const header = region_->header();
  uint32_t none = 0;
  // A client must not take what was dropped for done: it sees the error before any fence.
  header->sticky_error.compare_exchange_strong(none, static_cast<uint32_t>(result),
                                               std::memory_order_release);
  header->closed.store(1, std::memory_order_release);
  for (SessionDevice& device : devices_) device.space->Abandon();
}

void Session::Abandon() {
  if (abandoned_) return;
  abandoned_ = true;
  for (SessionDevice& device : devices_) device.space->Abandon();
}

// ---- objects

absl::Status Session::UseStaging(uint64_t offset, uint64_t bytes) {
  const uint64_t all = region_->sizes().staging_bytes, first = region_->first_staging();
  if (offset > all || bytes > all - offset)
    return CudaError(kCudaErrorInvalidValue, "a range outside of the staging area");
  if (offset + bytes <= first) return absl::OkStatus();
  if (offset < first)
    return CudaError(kCudaErrorInvalidValue, "a range across the staging area's inner border");
  if (late_staging_registered_) return absl::OkStatus();
  while (!region_->complete()) {
    if (absl::Status space = region_->AllocateSlice(); !space.ok())
      return CudaError(kCudaErrorOutOfMemory, std::string(space.message()));
  }
  const std::span<uint8_t> late = region_->late_part();
  for (SessionDevice& device : devices_) {
    DETSHARE_RETURN_IF_ERROR(device.space->RegisterHost(late.data(), late.size()));
  }
  late_staging_registered_ = true;
  return absl::OkStatus();
}

absl::Status Session::UseContext(ContextId context) {
  return UseContextOf(context, *current_device_);
}

absl::Status Session::UseContextOf(ContextId context, SessionDevice& device) {
  if (context == 0) return CudaError(kCudaErrorInvalidContext, "no context");
  auto found = contexts_.find(context);
  if (found != contexts_.end()) {
    if (found->second == &device) return absl::OkStatus();
    return CudaError(kCudaErrorInvalidContext, "a context of another device");
  }
  if (contexts_.size() >= limits().contexts)
    return CudaError(kCudaErrorOutOfMemory, "too many contexts");
  contexts_.emplace(context, &device);
  return absl::OkStatus();
}

void Session::ForgetContext(ContextId context) {
  peer_access_.ForgetContext(context);
  contexts_.erase(context);
  absl::erase_if(streams_, [context](const auto& stream) { return stream.second == context; });
  absl::erase_if(events_, [context](const auto& event) { return event.second == context; });
  absl::erase_if(shared_events_,
                 [this](const auto& event) { return !events_.contains(event.first); });
}

SessionDevice* Session::DeviceOfMemory(uint64_t address, uint64_t bytes, bool write) {
  if (current_device_->space->Contains(address, bytes, write)) [[likely]]
    return current_device_;
  for (SessionDevice& device : devices_) {
    if (&device != current_device_ && device.space->Contains(address, bytes, write)) return &device;
  }
  return nullptr;
}

absl::Status Session::AddStream(StreamId stream, ContextId context) {
  if (streams_.size() >= limits().streams)
    return CudaError(kCudaErrorOutOfMemory, "too many streams");
  if (!streams_.emplace(stream, context).second)
    return CudaError(kCudaErrorInvalidValue, "the stream id is taken");
  return absl::OkStatus();
}

absl::Status Session::AddEvent(EventId event, ContextId context) {
  if (events_.size() >= limits().events) return CudaError(kCudaErrorOutOfMemory, "too many events");
  if (!events_.emplace(event, context).second)
    return CudaError(kCudaErrorInvalidValue, "the event id is taken");
  return absl::OkStatus();
}

absl::Status Session::CheckRoomForImage(uint64_t bytes) const {
  // Libraries that were unloaded count for their numbers, too: ids are not reused.
  if (libraries_.size() > limits().libraries)
    return CudaError(kCudaErrorOutOfMemory, "too many libraries");
  if (bytes > limits().image_bytes - image_bytes_)
    return CudaError(kCudaErrorOutOfMemory, "too much code");
  return absl::OkStatus();
}

absl::StatusOr<LibraryId> Session::AddLibrary(std::unique_ptr<Library> library, ContextId context,
                                              std::span<const uint8_t> image,
                                              std::shared_ptr<const ManagedBlock> managed,
                                              QuotaCharge charge) {
  const uint64_t image_bytes = image.size();
  auto taken = std::make_shared<const QuotaCharge>(std::move(charge));
  auto loaded = std::make_unique<LoadedLibrary>();
  // Counts until it is unloaded, which graphs may put off.
  loaded->library =
      std::shared_ptr<Library>(library.release(), [this, image_bytes, managed,
                                                   taken = std::move(taken)](Library* unloaded) {
        delete unloaded;
        image_bytes_ -= image_bytes;
      });
  loaded->managed = std::move(managed);
  loaded->device = current_device_;
  loaded->context = context;
  loaded->code = CodeOfImage(image);
  loaded->id = static_cast<LibraryId>(libraries_.size());
  image_bytes_ += image_bytes;
  libraries_.push_back(std::move(loaded));
  return libraries_.back()->id;
}

Session::LoadedLibrary* Session::FindLibrary(LibraryId id) {
  if (id >= libraries_.size() || libraries_[id] == nullptr) return nullptr;
  LoadedLibrary* const library = libraries_[id].get();
  return library->device == current_device_ && !library->unloading ? library : nullptr;
}

absl::StatusOr<KernelId> Session::AddKernel(LoadedLibrary& library, const std::string& name) {
  if (auto known = library.kernels.find(name); known != library.kernels.end()) return known->second;
  if (kernels_.size() > limits().kernels)
    return CudaError(kCudaErrorOutOfMemory, "too many kernels");
  DETSHARE_ASSIGN_OR_RETURN(Kernel* const kernel, library.library->GetKernel(name));
  kernel->set_code(
      StableHash(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(name.data()), name.size()),
                 library.code));
  kernels_.push_back({kernel, library.device, library.id});
  const KernelId id = static_cast<KernelId>(kernels_.size() - 1);
  library.kernels.emplace(name, id);
  return id;
}

void Session::RemoveLibrary(LibraryId id) {
  if (id >= libraries_.size() || libraries_[id] == nullptr) return;
  for (const auto& [name, kernel] : libraries_[id]->kernels) kernels_[kernel] = {};
  libraries_[id].reset();
}

std::vector<LibraryId> Session::LibrariesOf(ContextId context) const {
  std::vector<LibraryId> ids;
  for (size_t id = 1; id < libraries_.size(); ++id) {
    if (libraries_[id] != nullptr && libraries_[id]->context == context)
      ids.push_back(static_cast<LibraryId>(id));
  }
  return ids;
}

absl::Status Session::CheckRoomForGraph(GraphId id, uint64_t payload_bytes) const {
  if (id == 0 || graphs_.contains(id)) {
    return CudaError(kCudaErrorInvalidValue, "the id of a new graph is 0 or in use");
  }
  if (graphs_.size() >= limits().graphs || graph_bytes_ + payload_bytes > limits().graph_bytes) {
    return CudaError(kCudaErrorOutOfMemory, "too many graphs");
  }
  return absl::OkStatus();
}

void Session::AddGraph(GraphId id, ContextId context, std::unique_ptr<GpuGraph> graph) {
  graph_bytes_ += graph->bytes();
  graphs_.insert_or_assign(id, LoadedGraph{std::move(graph), current_device_, context});
}

absl::Status Session::ChangeGraph(GraphId id, uint64_t payload_bytes,
                                  absl::FunctionRef<absl::Status(GpuGraph&)> change) {
  GpuGraph* const graph = FindGraph(id);
  if (graph == nullptr) return CudaError(kCudaErrorInvalidHandle, "no such executable graph");
  if (graph_bytes_ + payload_bytes > limits().graph_bytes) {
    return CudaError(kCudaErrorOutOfMemory, "graphs that are too large");
  }
  graph_bytes_ -= graph->bytes();
  const absl::Status status = change(*graph);
  graph_bytes_ += graph->bytes();
  return status;
}

bool Session::RemoveGraph(GraphId id) {
  const auto found = graphs_.find(id);
  if (found == graphs_.end() || found->second.device != current_device_) return false;
  graph_bytes_ -= found->second.graph->bytes();
  graphs_.erase(found);
  return true;
}

absl::Status Session::CountGraphCondition() {
  if (graph_conditions_ >= limits().graph_conditions) {
    return CudaError(kCudaErrorOutOfMemory, "too many conditional handles");
  }
  ++graph_conditions_;
  return absl::OkStatus();
}

void Session::RemoveGraphsOf(ContextId context) {
  absl::erase_if(graphs_, [&](const auto& entry) {
    if (entry.second.context != context) return false;
    graph_bytes_ -= entry.second.graph->bytes();
    return true;
  });
}

std::function<void(std::string_view)> Session::Printer() {
  return [this](std::string_view text) {
    const std::lock_guard<std::mutex> lock(print_mutex_);
    if (!region_->Print(text) && !print_overflowed_) {
      print_overflowed_ = true;
      LogWarning(label(), ": the buffer for device printf is full, output is lost");
    }
  };
}

}  // namespace detshare
