// One client process: its memory shared with the daemon, its objects, its GPU coroutines. Handlers
// work on it; session_driver.h has what the worker does with it.
//
// Threading: made, used and ended by its worker's thread only (session_worker.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ring_abi.h"
#include "server/session/session_config.h"
#include "server/session/session_device.h"

namespace detshare {

class ClientPrinter;
class CodeTable;
class ContextTable;
class Executor;
class GraphTable;
class RingReader;
class SessionImages;
class SessionMemory;
class SharedRegion;
struct ServerOptions;
struct SessionLimits;

class Session {
 public:
  // Makes the directory, its files and what the devices need.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const SessionConfig& config,
                                                       const ServerOptions& options);
  // Waits for what the GPU still does, tasks excepted, and gives everything back.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  uint64_t id() const { return config_.id; }
  const std::string& label() const { return config_.label; }
  const SessionConfig& config() const { return config_; }
  const ServerOptions& options() const { return options_; }
  const SessionLimits& limits() const;

  // ---- the operation that is being handled

  SessionDevice& device() { return *current_device_; }
  ContextId context() const { return current_context_; }
  // The payload of a control call.
  const std::shared_ptr<const std::string>& kept_payload() const { return current_payload_; }
  void SetOperation(SessionDevice& device, ContextId context) {
    current_device_ = &device;
    current_context_ = context;
  }
  void KeepPayload(std::shared_ptr<const std::string> payload);

  // ---- what it has

  Executor& executor() { return *executor_; }
  // Never changes in size.
  std::vector<SessionDevice>& devices() { return devices_; }
  const std::vector<SessionDevice>& devices() const { return devices_; }
  // By index; nullptr when there is none.
  SessionDevice* DeviceAt(uint32_t index) {
    return index < devices_.size() ? &devices_[index] : nullptr;
  }
  ContextTable& contexts() { return *contexts_; }
  CodeTable& code() { return *code_; }
  const CodeTable& code() const { return *code_; }
  GraphTable& graphs() { return *graphs_; }
  // Arrays, textures and surfaces.
  SessionImages& images() { return *images_; }
  const SessionImages& images() const { return *images_; }
  SessionMemory& memory() { return *memory_; }
  const SessionMemory& memory() const { return *memory_; }
  // Where kernels print.
  ClientPrinter& printer() { return *printer_; }
  // ContextTable::Use for the current device.
  absl::Status UseContext(ContextId context);

  // ---- what it shares with its client

  SharedRegion& region() { return *region_; }
  RingReader& reader() { return *reader_; }
  // The daemon's address of a wire fence; nullptr for kNoFence. False when it does not exist.
  bool FindFence(FenceIndex index, Fence** fence);

  // ---- errors

  // From now on every operation answers `result`; everybody who waits is released. The first error
  // stays.
  void SetStickyError(int result, const std::string& why);
  int sticky_error() const { return sticky_error_; }
  // What the client did that ends the session; empty while it did nothing.
  const std::string& violation() const { return violation_; }
  void Violate(std::string what);
  // An error of an operation that nobody waits for.
  void OnAsynchronousError(uint16_t op, const absl::Status& status);
  // Tells the client that nothing will be read or answered any more. `result`: what its calls
  // answer from now on.
  void Close(int result);

 private:
  Session(const SessionConfig& config, const ServerOptions& options);
  absl::Status OpenDevice(const SessionConfig::OnDevice& on, SessionDevice& device);

  const SessionConfig config_;
  const ServerOptions& options_;
  bool directory_made_ = false;

  std::unique_ptr<SharedRegion> region_;
  std::unique_ptr<RingReader> reader_;
  std::unique_ptr<ClientPrinter> printer_;
  std::unique_ptr<Executor> executor_;
  std::vector<SessionDevice> devices_;  // others point into it
  std::unique_ptr<SessionMemory> memory_;
  std::unique_ptr<ContextTable> contexts_;
  std::unique_ptr<CodeTable> code_;
  std::unique_ptr<GraphTable> graphs_;
  std::unique_ptr<SessionImages> images_;

  SessionDevice* current_device_ = nullptr;
  ContextId current_context_ = 0;
  std::shared_ptr<const std::string> current_payload_;
  int sticky_error_ = 0;
  std::string violation_;
};

}  // namespace detshare
