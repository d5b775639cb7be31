// The gRPC connection to the daemon. It opens the session, carries control calls, and notices when
// the daemon is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client_shim/transport/daemon_socket.h"
#include "proto/control.pb.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Bytes that the caller owns.
struct ConstBuffer {
  const void* data = nullptr;
  size_t bytes = 0;
};

class Connection {
 public:
  // Whether gRPC has started in this process. gRPC does not survive a fork.
  static bool started();

  // Connects to the daemon, opens a session and waits for its grant. Returns null on failure.
  // *result is then the CUresult that cuInit returns. The reason is printed once in a process. It
  // is not printed when CUDA_VISIBLE_DEVICES names no device, because users do that on purpose to
  // keep programs from using any. May be called again after a failure. Not reentrant.
  static std::unique_ptr<Connection> Open(const std::string& socket_path,
                                          const proto::OpenSessionRequest& request,
                                          CUresult* result);
  virtual ~Connection() = default;

  // The daemon's grant: shared memory, devices and settings. Valid as long as the connection.
  virtual const proto::Grant& grant() const = 0;

  // Asks the connection to set `closed` to 1 when the session ends (release). result() has the
  // reason before that.
  virtual void Watch(std::atomic<uint32_t>* closed) = 0;

  // The CUresult that calls return after the session has ended.
  virtual CUresult result() const = 0;

  // Waits until the session has ended and the reason was logged, or for `timeout`. Any thread.
  virtual void AwaitEnd(std::chrono::milliseconds timeout) = 0;

  // Waits until a notice of the daemon was logged, or for `timeout`. Any thread.
  virtual void AwaitNotice(std::chrono::milliseconds timeout) = 0;

  // Makes one control call and waits for it. `request` lacks only the size of the payload. Returns
  // CUDA_SUCCESS or the daemon's CUresult; the reply is valid in both cases. If gRPC fails, returns
  // the CUresult of that failure. Any thread.
  virtual CUresult Call(proto::CallRequest request, std::span<const ConstBuffer> payload,
                        proto::CallReply* reply) = 0;
  // Takes the reply of the ring that does not fit `slot` (TakeReply in control.proto). Returns
  // CUDA_SUCCESS or the CUresult of the failure. Any thread.
  virtual CUresult TakeReply(uint64_t session, uint32_t slot, std::string* body) = 0;

  // For the child of a fork: closes the child's copy of the parent's descriptor.
  virtual void CloseInChild() = 0;
};

}  // namespace detshare::shim
