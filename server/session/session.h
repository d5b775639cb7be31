// The daemon's state for one client process: the memory shared with the client, its objects and its
// GPU coroutines. Handlers work on this class. The worker drives it through session_driver.h.
//
// Threading: only the worker's thread creates, uses and destroys a session (session_worker.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ring_abi.h"
#include "server/session/long_replies.h"
#include "server/session/session_config.h"
#include "server/session/session_device.h"

namespace detshare {

class ClientPrinter;
class CodeTable;
class ContextTable;
class Executor;
class GraphTable;
class Parking;
class RingReader;
class SessionImages;
class SessionMemory;
class SharedRegion;
struct ServerOptions;
struct SessionLimits;

class Session {
 public:
  // Creates the session's directory and files, and an address space and a GPU coroutine for each
  // device.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const SessionConfig& config,
                                                       const ServerOptions& options);
  // Drops the tasks, waits for the session's work on the GPU, and releases everything.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  uint64_t id() const { return config_.id; }
  const std::string& label() const { return config_.label; }
  const SessionConfig& config() const { return config_; }
  const ServerOptions& options() const { return options_; }
  const SessionLimits& limits() const;

  // ---- the current operation

  SessionDevice& device() { return *current_device_; }
  ContextId context() const { return current_context_; }
  // The payload of the current control call over gRPC; null for a record of the ring.
  const std::shared_ptr<const std::string>& kept_payload() const { return current_payload_; }
  void SetOperation(SessionDevice& device, ContextId context) {
    current_device_ = &device;
    current_context_ = context;
  }
  void KeepPayload(std::shared_ptr<const std::string> payload);
  LongReplies& long_replies() { return long_replies_; }

  // ---- the session's objects

  Executor& executor() { return *executor_; }
  Parking& parking() { return *parking_; }
  // The size never changes after Open().
  std::vector<SessionDevice>& devices() { return devices_; }
  const std::vector<SessionDevice>& devices() const { return devices_; }
  // nullptr when the index is out of range.
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
  // Calls ContextTable::Use() for the current device.
  absl::Status UseContext(ContextId context);

  // ---- memory shared with the client

  SharedRegion& region() { return *region_; }
  RingReader& reader() { return *reader_; }
  // Sets `*fence` to the daemon's address of the fence; nullptr for kNoFence. Returns false when
  // the index is out of range.
  bool FindFence(FenceIndex index, Fence** fence);

  // ---- errors

  // Makes every later operation return `result`, and ends all waits of tasks and of the client. The
  // first error stays; later calls have no effect.
  void SetStickyError(int result, const std::string& why);
  int sticky_error() const { return sticky_error_; }
  // Any thread. Tells the client that its session ends and that later calls return `result`. The
  // caller then lets the devices drop queued work.
  void Interrupt(int result);
  // What every reply returns, because work may have been dropped: the sticky error, or the error of
  // Interrupt(). 0: no work was.
  int error_of_replies() const {
    return sticky_error_ != 0 ? sticky_error_ : interrupted_.load(std::memory_order_acquire);
  }
  // How the client broke the protocol, which ends the session. Empty when it did not.
  const std::string& violation() const { return violation_; }
  void Violate(std::string what);
  // Handles the error of an operation whose client waits for no reply.
  void OnAsynchronousError(uint16_t op, const absl::Status& status);
  // `limited` is called once, when the tenant's limit first refuses something, with the reason.
  void OnLimit(std::function<void(const std::string& why)> limited) {
    limited_ = std::move(limited);
  }
  // The error of a reply, of which IsLimit() is true.
  void NoteLimit(const absl::Status& status);
  // Tells the client that the daemon reads no more records and sends no more replies. The client's
  // later calls return `result`, or the sticky error when there is one.
  void Close(int result);

 private:
  Session(const SessionConfig& config, const ServerOptions& options);
  absl::Status OpenDevice(const SessionConfig::OnDevice& on, SessionDevice& device);

  const SessionConfig config_;
  const ServerOptions& options_;
  bool directory_made_ = false;

  std::unique_ptr<SharedRegion> region_;
  std::unique_ptr<RingReader> reader_;
  std::shared_ptr<ClientPrinter> printer_;  // the output of the address spaces
  std::unique_ptr<Parking> parking_;        // outlives the tasks of the executor
  std::unique_ptr<Executor> executor_;
  std::vector<SessionDevice> devices_;  // tables and handlers hold pointers to the elements
  std::unique_ptr<SessionMemory> memory_;
  std::unique_ptr<ContextTable> contexts_;
  std::unique_ptr<CodeTable> code_;
  std::unique_ptr<GraphTable> graphs_;
  std::unique_ptr<SessionImages> images_;

  SessionDevice* current_device_ = nullptr;
  ContextId current_context_ = 0;
  std::shared_ptr<const std::string> current_payload_;
  LongReplies long_replies_;
  std::function<void(const std::string& why)> limited_;  // null once it was called
  int sticky_error_ = 0;
  // The error of Interrupt(). Release: stored before work is dropped, so that the thread that sees
  // the end of dropped work also sees this.
  std::atomic<int> interrupted_{0};
  std::string violation_;
};

}  // namespace detshare
