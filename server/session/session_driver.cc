#include "server/session/session_driver.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/parking.h"
#include "coroutine_runtime/sched_entity.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "proto/driver_api/driver_api_ops.h"
#include "proto/driver_api/server_dispatch.h"
#include "server/base/logging.h"
#include "server/session/code_table.h"
#include "server/session/managed_ranges.h"
#include "server/session/op_name.h"
#include "server/session/pinned_memory.h"
#include "server/session/server_options.h"
#include "server/session/session_images.h"
#include "server/session/session_memory.h"
#include "server/session/session_swap.h"
#include "server/session/virtual_memory.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {
namespace {

policy::TenantClass ClassOf(const std::string& tenant, const ServerOptions& options) {
  for (const policy::Tenant& known : options.tenants) {
    if (known.name == tenant) return known.tenant_class;
  }
  return policy::TenantClass::kUnset;
}

// Whether the client or another one may wait for the result of the record: it has a reply, writes a
// fence or a word of memory, records an event or calls the host.
bool MayBeAwaited(uint16_t op, uint32_t reply_slot) {
  if (reply_slot != kNoReply) return true;
  switch (static_cast<Op>(op)) {
    case Op::cuLaunchKernelEx:
    case Op::cuMemcpyAsync:
    case Op::cuMemcpy3DAsync_v2:
    case Op::cuMemsetD2D32Async:
    case Op::cuMemFreeAsync:
    case Op::cuMemAllocAsync:
    case Op::cuStreamWaitEvent:
    case Op::cuEventCreate:
    case Op::cuEventDestroy_v2:
      return false;
    default:
      return true;
  }
}

// A client may wait for free lines of the ring from here on.
constexpr uint64_t kFullRingShare = 4;

}  // namespace

SessionDriver::SessionDriver(std::unique_ptr<Session> session)
    : session_(std::move(session)),
      backlog_(session_->devices(), session_->limits().queued_bytes,
               session_->config().waiting_quota) {
  for (SessionDevice& device : session_->devices()) {
    const bool announces =
        device.space->Announce([reader = &session_->reader()] { reader->Wake(); });
    announced_ = announced_ && announces;
  }
}

absl::StatusOr<std::unique_ptr<SessionDriver>> SessionDriver::Open(const SessionConfig& config,
                                                                   const ServerOptions& options) {
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Session> opened, Session::Open(config, options));
  std::unique_ptr<SessionDriver> driver(new SessionDriver(std::move(opened)));
  driver->swap_ = std::make_unique<SessionSwap>(*driver);
  for (size_t i = 0; i < config.devices.size(); ++i) {
    const SessionConfig::OnDevice& on = config.devices[i];
    SessionDevice& device = driver->session_->devices()[i];
    if (on.broker != nullptr)
      driver->swap_->Add(*on.broker, ClassOf(config.tenant, options), device);
    on.scheduler->Add(config.id, config.tenant, *device.coroutine);
    device.space->set_call_wait(driver.get());
  }
  return driver;
}

SessionDriver::~SessionDriver() {
  std::vector<SessionDevice>& devices = session_->devices();
  for (SessionDevice& device : devices) device.space->set_call_wait(nullptr);
  // Sessions and processes that take turns with this one wait until its work is complete.
  const bool takes_turns =
      std::any_of(devices.begin(), devices.end(), [](const SessionDevice& device) {
        const SchedEntity* const entity = device.coroutine->entity();
        return entity != nullptr &&
               (entity->assignment().takes_turns || entity->assignment().shares_device);
      });
  if (takes_turns) WaitForDevices();
  for (size_t i = 0; i < devices.size(); ++i)
    session_->config().devices[i].scheduler->Remove(session_->id(), *devices[i].coroutine);
  swap_->Leave();
  if (!devices.empty() && !takes_turns) WaitForDevices();
  session_.reset();
}

SessionCounters SessionDriver::counters() const {
  const Session& session = *session_;
  SessionCounters counters;
  counters.pinned_memory = session.memory().pinned().bytes_in_use();
  counters.device_memory = session.images().array_bytes() +
                           session.memory().virtual_memory().bytes() +
                           session.memory().managed().bytes_in_use();
  counters.swap = swap_->counters();
  counters.code_bytes = session.code().received_bytes();
  for (const SessionDevice& device : session.devices()) {
    counters.device_memory += device.memory->mapped();
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

std::vector<SessionDeviceUse> SessionDriver::device_use() const {
  std::vector<SessionDeviceUse> uses;
  for (const SessionDevice& device : std::as_const(*session_).devices())
    uses.push_back(
        {device.device, device.memory->mapped() + device.memory->out(), device.space->Busy()});
  return uses;
}

// ---- the schedulers

bool SessionDriver::HasRoom() { return backlog_.HasRoom(session_->executor().waiting()); }

bool SessionDriver::Throttle() {
  // With a sticky error, operations return the error and use no device.
  if (session_->sticky_error() != 0) return true;
  std::vector<SessionDevice>& devices = session_->devices();
  if (devices.size() == 1) return devices[0].coroutine->Throttle();
  const size_t next = session_->reader().NextDevice();
  return next >= devices.size() || devices[next].coroutine->Throttle();
}

bool SessionDriver::CollectsRecords(bool awaited) {
  const policy::Nanoseconds since = coalescing_.collects_since();
  const bool collects = Collects(awaited);
  CountCollection(since);
  return collects;
}

void SessionDriver::EndCollection() {
  const policy::Nanoseconds since = coalescing_.collects_since();
  coalescing_.Stop();
  CountCollection(since);
}

void SessionDriver::CountCollection(policy::Nanoseconds since) {
  if (since == 0 || since == coalescing_.collects_since()) [[likely]]
    return;
  session_->devices()[0].coroutine->entity()->NoteCollection(since);
}

bool SessionDriver::Collects(bool awaited) {
  std::vector<SessionDevice>& devices = session_->devices();
  if (devices.size() != 1) return false;
  GpuCoroutine& coroutine = *devices[0].coroutine;
  if (!coroutine.HoldsDevice()) [[likely]] {
    coalescing_.Stop();
    return false;
  }
  RingReader& reader = session_->reader();
  reader.LookAhead([&awaited](uint16_t op, uint32_t reply_slot) {
    awaited = awaited || MayBeAwaited(op, reply_slot);
  });
  const SchedEntity& entity = *coroutine.entity();
  const SchedEntity::Submitted submitted = entity.submitted();
  const bool full = reader.seen() - reader.position() > reader.ring_bytes() / kFullRingShare;
  const SubmissionCoalescing::Next next =
      coalescing_.NextStep({.now = entity.Now(),
                            .seen = reader.seen(),
                            .ready = reader.Ready(),
                            .awaited = awaited || full,
                            .operations = submitted.operations,
                            .device_time = submitted.device_time,
                            .promised = entity.assignment().promise.burst});
  if (next == SubmissionCoalescing::Next::kRelease) coroutine.ReleaseDevice();
  return next == SubmissionCoalescing::Next::kCollect;
}

void SessionDriver::WatchWork(bool pause) {
  for (SessionDevice& device : session_->devices()) device.coroutine->WatchWork(pause);
}

void SessionDriver::Suspend() {
  for (SessionDevice& device : session_->devices()) device.coroutine->SuspendCall();
}

bool SessionDriver::Resume() {
  std::vector<SessionDevice>& devices = session_->devices();
  return std::all_of(devices.begin(), devices.end(),
                     [](SessionDevice& device) { return device.coroutine->ResumeCall(); });
}

bool SessionDriver::watching_work() const {
  const std::vector<SessionDevice>& devices = session_->devices();
  return std::any_of(devices.begin(), devices.end(),
                     [](const SessionDevice& device) { return device.coroutine->watching_work(); });
}

bool SessionDriver::others_throttled() const {
  const std::vector<SessionDevice>& devices = session_->devices();
  return std::any_of(devices.begin(), devices.end(), [](const SessionDevice& device) {
    return device.coroutine->entity() != nullptr && device.coroutine->entity()->others_throttled();
  });
}

bool SessionDriver::awaited() const {
  const std::vector<SessionDevice>& devices = session_->devices();
  return std::any_of(devices.begin(), devices.end(), [](const SessionDevice& device) {
    return device.coroutine->entity() != nullptr &&
           device.coroutine->entity()->assignment().awaited;
  });
}

bool SessionDriver::MakeReady() {
  for (SessionDevice& device : session_->devices()) {
    if (device.coroutine->MakeReady()) return true;
  }
  return false;
}

// ---- operations

void SessionDriver::HandleRecord(const RingRecord& record) {
  if (coalescing_.in_stretch() && MayBeAwaited(record.op, record.reply_slot)) [[unlikely]]
    coalescing_.NoteAwaited();
  Reply reply(session_.get(), record.op, record.reply_slot);
  Execute(Transport::kRing, record.op, record.device, record.context, record.args, record.payload,
          reply);
}

void SessionDriver::HandleCall(uint16_t op, uint32_t device, ContextId context,
                               std::span<const uint8_t> args,
                               std::shared_ptr<const std::string> payload, Reply::CallDone done) {
  Reply reply(session_.get(), op, std::move(done));
  const std::string& bytes = *payload;
  session_->KeepPayload(std::move(payload));
  Execute(Transport::kControl, op, device, context, args,
          {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, reply);
  session_->KeepPayload(nullptr);
}

void SessionDriver::Execute(Transport transport, uint16_t op, uint32_t device, ContextId context,
                            std::span<const uint8_t> args, std::span<const uint8_t> payload,
                            Reply& reply) {
  Session& session = *session_;
  if (session.sticky_error() != 0) [[unlikely]] {
    reply.Send(absl::OkStatus());  // Reply sends the sticky error instead
    return;
  }
  SessionDevice* const current = session.DeviceAt(device);
  if (current == nullptr) [[unlikely]] {
    session.Violate(
        absl::StrCat(KnownOpName(op), " names device ", device, " of ", session.devices().size()));
    reply.Send(CudaError(kCudaErrorInvalidDevice, "no such device"));
    return;
  }
  session.SetOperation(*current, context);
  switch (Dispatch(transport, op, args, payload, session, reply)) {
    [[likely]] case Dispatched::kHandled : return;
    case Dispatched::kUnknownOp:
      session.Violate(absl::StrCat("operation ", op, " does not exist"));
      break;
    case Dispatched::kWrongTransport:
      session.Violate(absl::StrCat(KnownOpName(op), " came by the wrong transport"));
      break;
    case Dispatched::kWrongLength:
      session.Violate(
          absl::StrCat(KnownOpName(op), " came with ", args.size(), " bytes of arguments"));
      break;
  }
  reply.Send(CudaError(kCudaErrorInvalidValue, "malformed"));
}

Task<void> SessionDriver::AwaitIdle(int* busy) {
  for (SessionDevice& device : session_->devices()) (void)co_await device.coroutine->Idle();
  *busy = 0;
}

void SessionDriver::WatchIdle() {
  idle_watch_ = 1;
  session_->executor().Spawn(AwaitIdle(&idle_watch_));
}

// ---- the end

bool SessionDriver::HasWork() const {
  const std::vector<SessionDevice>& devices = session_->devices();
  return std::any_of(devices.begin(), devices.end(),
                     [](const SessionDevice& device) { return device.space->Busy(); });
}

void SessionDriver::WaitForDevices() {
  constexpr auto kTimeout = std::chrono::seconds(10);
  Executor& executor = session_->executor();
  int busy = 1;
  executor.Spawn(AwaitIdle(&busy));
  const auto begin = std::chrono::steady_clock::now();
  bool warned = false;
  while (busy != 0) {
    executor.Poll();
    // Work that does not end takes further turns.
    for (SessionDevice& device : session_->devices()) {
      if (device.coroutine->entity() != nullptr) device.coroutine->WatchWork(/*pause=*/true);
    }
    // Do not wait for queued work of faulted spaces. The space's destructor waits for running work.
    bool all_faulted = true;
    for (const SessionDevice& device : session_->devices()) {
      if (device.space->fault().ok() && device.device->health().ok()) all_faulted = false;
    }
    if (all_faulted) executor.AbortWaits();
    if (busy == 0) break;
    if (!warned && std::chrono::steady_clock::now() - begin > kTimeout) {
      warned = true;
      LogWarning(session_->label(),
                 ": its kernels are still running; its memory stays until they end");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void SessionDriver::CheckFault() {
  if (faulted_) return;
  for (const SessionDevice& device : session_->devices()) {
    const absl::Status fault = device.space->fault();
    if (!fault.ok()) [[unlikely]] {
      faulted_ = true;
      // A call that met the fault first has set the error.
      if (session_->sticky_error() == 0)
        session_->SetStickyError(CudaResultOf(fault), std::string(fault.message()));
      return;
    }
  }
}

void SessionDriver::Interrupt(int result) {
  session_->Interrupt(result);
  for (SessionDevice& device : session_->devices()) device.space->Abandon();
}

void SessionDriver::Abandon() {
  if (abandoned_) return;
  abandoned_ = true;
  for (SessionDevice& device : session_->devices()) device.space->Abandon();
  session_->parking().Abandon();
}

}  // namespace detshare
