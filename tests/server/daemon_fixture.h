// A daemon in the test's own process, and clients that speak its protocol without the shim.
// grpc_stubs.h has what a test needs that asks the daemon's services itself.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/driver_api/driver_api_ops.h"
#include "proto/wire/common.h"
#include "proto/wire/copy.h"
#include "proto/wire/launch.h"
#include "proto/wire/library.h"
#include "proto/wire/memory.h"
#include "proto/wire/stream.h"
#include "server/daemon.h"
#include "tests/server/shared_memory/ring_test_client.h"
#include "tests/server/test_windows.h"
#include "tests/server/unix_sockets.h"

namespace grpc {
class Channel;
class Status;
}  // namespace grpc

namespace detshare {

namespace proto {
class Ended;
class Grant;
class OpenSessionRequest;
}  // namespace proto

class InstantDevice;

class TestDaemon {
 public:
  explicit TestDaemon(const std::function<void(Daemon::Options&)>& change = {}, int devices = 1);
  ~TestDaemon();

  std::string socket() const { return directory.path + "/d.sock"; }
  // The number of existing directories of sessions.
  size_t session_directories() const;

  TestDirectory directory;
  // Owned by the daemon. Their kernels: add(u64* a, u64 b): *a += b. fault(): a fault.
  std::vector<InstantDevice*> devices;
  std::unique_ptr<Daemon> daemon;
};

// The sum that `add` has written. The ring orders the kernel before this read. The thread sanitizer
// cannot know that, because client and daemon map the ring at different addresses.
uint64_t SumAt(uint64_t address);

// The reply to a control call.
class TestReply {
 public:
  TestReply(int result, std::string body) : result_(result), body_(std::move(body)) {}
  int result() const { return result_; }
  const std::string& body() const { return body_; }

 private:
  int result_;
  std::string body_;
};

// One connection with one session.
class TestClient {
 public:
  // Uses an existing connection, or makes one.
  explicit TestClient(const std::string& socket, int connection = -1);
  ~TestClient();

  // Returns true if the session is granted. Otherwise status() says why not.
  bool Open();
  const grpc::Status& status() const;
  // Ends the stream, as a client's death does.
  void Close();
  // Waits until the daemon ends the session, and returns its message. Adds earlier ones to notices.
  std::optional<proto::Ended> AwaitEnd();
  std::vector<std::string> notices;
  uint64_t session() const;

  template <typename Args>
  std::pair<absl::Status, TestReply> Call(Op op, const Args& args, const std::string& payload = "",
                                          uint64_t session = 0) {
    return CallBytes(op, {reinterpret_cast<const char*>(&args), sizeof(args)}, payload, session);
  }
  std::pair<absl::Status, TestReply> CallBytes(Op op, std::span<const char> args,
                                               const std::string& payload, uint64_t session = 0);
  // How long a call may take; 0: without limit.
  std::chrono::milliseconds call_timeout{0};

  // ---- short forms of calls

  void CreateStream(StreamId stream);
  uint64_t Allocate(uint64_t bytes, int* result = nullptr);
  wire::cuMemcpyAsync CopyOf(wire::Location destination, wire::Location source, uint64_t bytes,
                             StreamId stream, FenceIndex fence = kNoFence, uint64_t value = 0);
  LibraryId Load(const std::string& image = "code");
  KernelId GetKernel(LibraryId library, const std::string& name);
  wire::cuLaunchKernelEx LaunchOf(KernelId kernel, StreamId stream);
  int Synchronize(StreamId stream);

  // The first call decides what the connection is for: a client of `tenant`, which Open() also
  // means, or an operator. Later calls return the same channel.
  const std::shared_ptr<grpc::Channel>& ClientChannel();
  const std::shared_ptr<grpc::Channel>& channel();

  std::string tenant;  // the tenant that the client wants to be
  proto::OpenSessionRequest& request;
  proto::Grant& grant;
  std::string directory;
  std::unique_ptr<RingTestClient> ring;

 private:
  struct Connection;
  TestClient(const std::string& socket, std::unique_ptr<Connection> connection);

  const std::string socket_;
  const std::unique_ptr<Connection> connection_;
};

}  // namespace detshare
