// A daemon in the test's own process, and clients that speak its protocol without the shim.
#pragma once

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/admin.grpc.pb.h"
#include "proto/control.grpc.pb.h"
#include "proto/wire/common.h"
#include "proto/wire/copy.h"
#include "proto/wire/launch.h"
#include "proto/wire/library.h"
#include "proto/wire/memory.h"
#include "proto/wire/stream.h"
#include "server/daemon.h"
#include "server/base/logging.h"
#include "tests/server/instant_device.h"
#include "tests/server/shared_memory/ring_test_client.h"
#include "tests/server/test_windows.h"
#include "tests/server/unix_sockets.h"

namespace detshare {

class TestDaemon {
 public:
  explicit TestDaemon(const std::function<void(Daemon::Options&)>& change = {}, int devices = 1) {
    SetLogLevel(LogLevel::kError);
    Daemon::Options options;
    options.socket = directory.path + "/d.sock";
    options.backend = "instant";
    options.server.windows = TestWindows();
    options.server.region.staging_bytes = 1 << 20;
    if (change) change(options);
    std::vector<std::unique_ptr<Device>> owned;
    for (int i = 0; i < devices; ++i) {
      auto instant = std::make_unique<InstantDevice>();
      instant->mutable_properties().uuid[15] = static_cast<uint8_t>(i);
      this->devices.push_back(instant.get());
      owned.push_back(std::move(instant));
    }
    // Kernels: add(u64* a, u64 b) does *a += b, and fault() faults. Both are set before the first
    // library.
    for (InstantDevice* device : this->devices) {
      device->recipes.push_back(
          {"add", 16, [](InstantSpace&, const LaunchShape&, const std::byte* parameters) {
             uint64_t address, value;
             std::memcpy(&address, parameters, 8);
             std::memcpy(&value, parameters + 8, 8);
             std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(address)) += value;
           }});
      device->recipes.push_back(
          {"fault", 0,
           [](InstantSpace& space, const LaunchShape&, const std::byte*) { space.Fault(); }});
    }
    auto started = Daemon::Start(std::move(owned), options);
    REQUIRE(started.ok());
    daemon = *std::move(started);
  }

  std::string socket() const { return directory.path + "/d.sock"; }
  // The existing directories of sessions.
  size_t session_directories() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator(directory.path + "/sessions"))
      ++count;
    return count;
  }

  TestDirectory directory;
  std::vector<InstantDevice*> devices;  // owned by the daemon
  std::unique_ptr<Daemon> daemon;
};

// The sum that `add` has written. The ring orders the kernel before this read. The thread sanitizer
// cannot know that, because client and daemon map the ring at different addresses.
inline uint64_t SumAt(uint64_t address) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(address)).load();
}

// One connection with one session.
class TestClient {
 public:
  // Uses an existing connection, or makes one.
  explicit TestClient(const std::string& socket, int connection = -1) : socket_(socket) {
    const int fd = connection >= 0 ? connection : ConnectTo(socket);
    REQUIRE(fd >= 0);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    channel = grpc::CreateInsecureChannelFromFd("detshared", fd);
    control = proto::Control::NewStub(channel);
    admin = proto::Admin::NewStub(channel);
    request.set_abi_version(kAbiVersion);
    request.set_version("test");
    request.set_program("test program");
  }
  ~TestClient() {
    if (ring != nullptr) munmap(&ring->header(), grant.file_bytes());
    Close();
  }

  // Returns true if the session is granted. Otherwise status() says why not.
  bool Open() {
    reader_ = control->OpenSession(&context_, request);
    proto::SessionEvent event;
    if (!reader_->Read(&event)) {
      status_ = reader_->Finish();
      reader_.reset();
      return false;
    }
    REQUIRE(event.has_grant());
    grant = event.grant();
    directory = socket_.substr(0, socket_.rfind('/')) + "/" + grant.directory();
    const int fd = open((directory + "/session").c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0);
    void* memory = mmap(nullptr, grant.file_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    REQUIRE(memory != MAP_FAILED);
    ring = std::make_unique<RingTestClient>(static_cast<SessionHeader*>(memory));
    return true;
  }
  const grpc::Status& status() const { return status_; }

  // Ends the stream, as a client's death does.
  void Close() {
    if (reader_ == nullptr) return;
    context_.TryCancel();
    (void)reader_->Finish();
    reader_.reset();
  }

  // Waits until the daemon ends the session, and returns its message.
  std::optional<proto::Ended> AwaitEnd() {
    proto::SessionEvent event;
    std::optional<proto::Ended> ended;
    while (reader_->Read(&event)) {
      if (event.has_ended()) ended = event.ended();
    }
    status_ = reader_->Finish();
    reader_.reset();
    return ended;
  }

  template <typename Args>
  std::pair<grpc::Status, proto::CallReply> Call(Op op, const Args& args,
                                                 const std::string& payload = "",
                                                 uint64_t session = 0) {
    proto::CallRequest call;
    call.set_session(session != 0 ? session : grant.session());
    call.set_op(static_cast<uint32_t>(op));
    call.set_context(1);
    call.set_after(ring != nullptr ? ring->tail() : 0);
    call.set_args(&args, sizeof(args));
    call.set_payload(payload);
    grpc::ClientContext context;
    proto::CallReply reply;
    const grpc::Status status = control->Call(&context, call, &reply);
    return {status, reply};
  }

  // ---- short forms of calls

  void CreateStream(StreamId stream) {
    ring->Send(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{stream, 1, 0, 0});
  }
  uint64_t Allocate(uint64_t bytes, int* result = nullptr) {
    wire::cuMemAlloc_v2_Reply body{};
    const int status = ring->Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{bytes}, &body);
    if (result != nullptr) *result = status;
    return body.address;
  }
  wire::cuMemcpyAsync CopyOf(wire::Location destination, wire::Location source, uint64_t bytes,
                             StreamId stream, FenceIndex fence = kNoFence, uint64_t value = 0) {
    return {destination, source, bytes, stream, 0, {value, fence, 0}};
  }
  LibraryId Load(const std::string& image = "code") {
    wire::cuLibraryLoadData args{};
    args.context = 1;
    args.image_bytes = image.size();
    auto [status, reply] = Call(Op::cuLibraryLoadData, args, image);
    wire::cuLibraryLoadData_Reply body{};
    if (reply.body().size() >= sizeof(body))
      std::memcpy(&body, reply.body().data(), sizeof(body));
    return body.library;
  }
  KernelId GetKernel(LibraryId library, const std::string& name) {
    auto [status, reply] = Call(Op::cuLibraryGetKernel, wire::cuLibraryGetKernel{library, 0}, name);
    wire::cuLibraryGetKernel_Reply body{};
    if (reply.body().size() >= sizeof(body))
      std::memcpy(&body, reply.body().data(), sizeof(body));
    return body.kernel;
  }
  wire::cuLaunchKernelEx LaunchOf(KernelId kernel, StreamId stream) {
    wire::cuLaunchKernelEx launch{};
    launch.stream = stream;
    launch.kernel = kernel;
    for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
    return launch;
  }
  int Synchronize(StreamId stream) {
    return ring->Call(Op::cuStreamSynchronize,
                      wire::cuStreamSynchronize{stream, 0, {0, kNoFence, 0}});
  }

  proto::OpenSessionRequest request;
  proto::Grant grant;
  std::string directory;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<proto::Control::Stub> control;
  std::unique_ptr<proto::Admin::Stub> admin;
  std::unique_ptr<RingTestClient> ring;

 private:
  const std::string socket_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<proto::SessionEvent>> reader_;
  grpc::Status status_;
};

}  // namespace detshare
