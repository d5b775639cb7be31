#include "server/session/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "proto/driver_api/error_names.h"
#include "server/base/logging.h"
#include "server/base/remove_tree.h"
#include "server/session/client_printer.h"
#include "server/session/code_table.h"
#include "server/session/context_table.h"
#include "server/session/graph_table.h"
#include "server/session/managed_ranges.h"
#include "server/session/op_name.h"
#include "server/session/server_options.h"
#include "server/session/session_images.h"
#include "server/session/session_memory.h"
#include "server/shared_memory/ring_reader.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {

Session::Session(const SessionConfig& config, const ServerOptions& options)
    : config_(config), options_(options) {}

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const SessionConfig& config,
                                                       const ServerOptions& options) {
  std::unique_ptr<Session> session(new Session(config, options));
  DETSHARE_RETURN_IF_ERROR(MakeSharedDirectory(config.directory));
  session->directory_made_ = true;

  DETSHARE_ASSIGN_OR_RETURN(session->region_, SharedRegion::Create(config.directory + "/session",
                                                                   options.region, config.owner));
  session->reader_ =
      std::make_unique<RingReader>(session->region_->header(), session->region_->ring(),
                                   options.region.ring_bytes, options.region.reply_count);
  session->printer_ = std::make_shared<ClientPrinter>(*session->region_, config.label);
  RingReader* const reader = session->reader_.get();
  session->executor_ = std::make_unique<Executor>([reader] { reader->Wake(); });
  session->parking_ = std::make_unique<Parking>(*session->executor_);
  session->devices_.resize(config.devices.size());
  session->memory_ =
      std::make_unique<SessionMemory>(config, options, *session->region_, session->devices_);
  session->contexts_ = std::make_unique<ContextTable>(options.limits);
  session->code_ = std::make_unique<CodeTable>(options.limits, config.kept_quota);
  session->graphs_ = std::make_unique<GraphTable>(options.limits, config.kept_quota);
  session->images_ = std::make_unique<SessionImages>();
  for (size_t i = 0; i < config.devices.size(); ++i)
    DETSHARE_RETURN_IF_ERROR(session->OpenDevice(config.devices[i], session->devices_[i]));
  session->memory_->managed().Open();
  session->current_device_ = session->devices_.empty() ? nullptr : &session->devices_[0];
  return session;
}

absl::Status Session::OpenDevice(const SessionConfig::OnDevice& on, SessionDevice& device) {
  device.device = on.device;
  DETSHARE_ASSIGN_OR_RETURN(device.space,
                            on.device->CreateAddressSpace(on.memory_base, on.memory_bytes));
  device.space->set_output(printer_);
  const std::span<uint8_t> shared = region_->device_part();
  DETSHARE_RETURN_IF_ERROR(device.space->RegisterHost(shared.data(), shared.size()));
  DETSHARE_ASSIGN_OR_RETURN(device.coroutine,
                            GpuCoroutine::Create(*on.device, *device.space, *on.queues, *parking_));
  device.memory = std::make_unique<DeviceMemory>(*device.coroutine);
  device.quota = on.quota;
  device.memory->set_quota(on.quota);
  return absl::OkStatus();
}

Session::~Session() {
  // The order matters: tasks use everything, libraries and memory belong to the address spaces, and
  // the spaces use the shared memory.
  executor_.reset();
  graphs_.reset();
  code_.reset();
  if (memory_ != nullptr) memory_->EndOnDevices();
  for (SessionDevice& device : devices_) device.memory.reset();
  // Wait for all devices before any space ends, because devices may access each other's memory.
  for (SessionDevice& device : devices_) {
    if (device.space != nullptr) device.space->WaitForWork();
  }
  if (memory_ != nullptr) memory_->managed().End();
  // Spaces end before the coroutines: queued work of a faulted space writes to the coroutine's
  // fences.
  for (SessionDevice& device : devices_) device.space.reset();
  images_.reset();
  for (SessionDevice& device : devices_) device.coroutine.reset();
  memory_.reset();
  reader_.reset();
  if (printer_ != nullptr) printer_->Close();
  region_.reset();
  if (directory_made_) RemoveTree(config_.directory);
}

const SessionLimits& Session::limits() const { return options_.limits; }

void Session::KeepPayload(std::shared_ptr<const std::string> payload) {
  current_payload_ = std::move(payload);
}

absl::Status Session::UseContext(ContextId context) {
  return contexts_->Use(context, *current_device_);
}

bool Session::FindFence(FenceIndex index, Fence** fence) {
  if (index == kNoFence) {
    *fence = nullptr;
    return true;
  }
  if (index >= region_->sizes().fence_count) return false;
  *fence = region_->fences() + index;
  return true;
}

void Session::OnAsynchronousError(uint16_t op, const absl::Status& status) {
  if (!violation_.empty()) return;  // the violation ends the session
  // The client checks every error that it can know before it submits. An error here therefore means
  // lost work.
  SetStickyError(CudaResultOf(status),
                 absl::StrCat(KnownOpName(op), ": ", std::string(status.message())));
}

void Session::NoteLimit(const absl::Status& status) {
  if (limited_) std::exchange(limited_, nullptr)(std::string(status.message()));
}

void Session::SetStickyError(int result, const std::string& why) {
  if (sticky_error_ != 0) return;
  sticky_error_ = result;
  LogError(label(), ": ", ErrorText(result), ": ", why);
  // Release: publishes the error before the forced fences. A client that sees such a fence also
  // sees the error.
  region_->header()->sticky_error.store(static_cast<uint32_t>(result), std::memory_order_release);
  executor_->AbortWaits();
  region_->ForceFences();
}

void Session::Interrupt(int result) {
  SessionHeader* const header = region_->header();
  uint32_t none = 0;
  // Release: publishes the error to the client before any fence of dropped work, so that the client
  // does not take dropped work for complete.
  header->sticky_error.compare_exchange_strong(none, static_cast<uint32_t>(result),
                                               std::memory_order_release);
  header->closed.store(1, std::memory_order_release);
  // Release: a client that gets this error by a reply sees that its session is over, and waits for
  // the reason.
  int never = 0;
  interrupted_.compare_exchange_strong(never, result, std::memory_order_release);
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
  // Release: publishes sticky_error to clients that read only `closed`.
  header->closed.store(1, std::memory_order_release);
  // On a working device, tasks keep waiting for their work, because the work uses its libraries and
  // memory until it is complete. Abort the waits only when a device is lost.
  bool lost = false;
  for (const SessionDevice& device : devices_) lost |= !device.device->health().ok();
  if (lost) {
    executor_->AbortWaits();
    executor_->Poll();
  }
  // This also ends the waits for host functions that the client will not run any more.
  region_->ForceFences();
  region_->ReplyAll(sticky_error_);
}

}  // namespace detshare
