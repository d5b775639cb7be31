// The gRPC connection to the daemon: opens the session, carries control calls, and notices when the
// daemon is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client_shim/transport/daemon_socket.h"
#include "proto/control.pb.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

class Connection {
 public:
  // Whether gRPC has begun to run in this process. It does not survive a fork.
  static bool started();

  // Connects, opens a session and waits for its grant. Null when that fails: *result is what cuInit
  // answers, and why was printed (once a process; not where CUDA_VISIBLE_DEVICES names no device,
  // which is how programs are kept from using any). May be called again after a failure. Not
  // reentrant.
  static std::unique_ptr<Connection> Open(const std::string& socket_path,
                                          const proto::OpenSessionRequest& request,
                                          CUresult* result);
  virtual ~Connection() = default;

  virtual const proto::Grant& grant() const = 0;

  // From now on `closed` is set to 1 when the session ends; before that, result() says why.
  virtual void Watch(std::atomic<uint32_t>* closed) = 0;

  // The CUresult that calls answer after the session has ended.
  virtual CUresult result() const = 0;

  // One control call. CUDA_SUCCESS or the daemon's CUresult; the reply is valid in both cases. Waits.
  // Any thread.
  virtual CUresult Call(const proto::CallRequest& request, proto::CallReply* reply) = 0;

  // In the child of a fork: the descriptor is the parent's.
  virtual void CloseInChild() = 0;
};

}  // namespace detshare::shim
