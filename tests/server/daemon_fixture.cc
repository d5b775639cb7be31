#include "tests/server/daemon_fixture.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>

#include "proto/control.grpc.pb.h"
#include "proto/preamble.h"
#include "server/base/logging.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/instant_device.h"

namespace detshare {
namespace {

int Connected(const std::string& socket, int connection) {
  const int fd = connection >= 0 ? connection : ConnectTo(socket);
  REQUIRE(fd >= 0);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

// Both before the first library.
void AddKernels(InstantDevice& device) {
  device.recipes.push_back(
      {"add", 16, [](InstantSpace&, const LaunchShape&, const std::byte* parameters) {
         uint64_t address, value;
         std::memcpy(&address, parameters, 8);
         std::memcpy(&value, parameters + 8, 8);
         std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(address)) += value;
       }});
  device.recipes.push_back(
      {"fault", 0,
       [](InstantSpace& space, const LaunchShape&, const std::byte*) { space.Fault(); }});
}

}  // namespace

TestDaemon::TestDaemon(const std::function<void(Daemon::Options&)>& change, int device_count) {
  SetLogLevel(LogLevel::kError);
  Daemon::Options options;
  options.socket = socket();
  options.socket_mode = 0666;
  options.backend = "instant";
  options.server.windows = TestWindows();
  options.server.region.staging_bytes = 1 << 20;
  if (change) change(options);
  std::vector<std::unique_ptr<Device>> owned;
  for (int i = 0; i < device_count; ++i) {
    auto instant = std::make_unique<InstantDevice>();
    instant->mutable_properties().uuid[15] = static_cast<uint8_t>(i);
    AddKernels(*instant);
    devices.push_back(instant.get());
    owned.push_back(std::move(instant));
  }
  auto started = Daemon::Start(std::move(owned), options);
  REQUIRE(started.ok());
  daemon = *std::move(started);
}

TestDaemon::~TestDaemon() = default;

size_t TestDaemon::session_directories() const {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(directory.path + "/sessions"))
    ++count;
  return count;
}

uint64_t SumAt(uint64_t address) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(address)).load();
}

struct TestClient::Connection {
  explicit Connection(int on) : fd(on) {}
  ~Connection() {
    if (channel == nullptr) close(fd);
  }

  void Use() {
    if (channel != nullptr) return;
    channel = grpc::CreateInsecureChannelFromFd("detshared", fd);
    control = proto::Control::NewStub(channel);
  }

  const int fd;  // belongs to the channel once there is one
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<proto::Control::Stub> control;
  proto::OpenSessionRequest request;
  proto::Grant grant;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<proto::SessionEvent>> reader;
  grpc::Status status;
};

TestClient::TestClient(const std::string& socket, int connection)
    : TestClient(socket, std::make_unique<Connection>(Connected(socket, connection))) {}

TestClient::TestClient(const std::string& socket, std::unique_ptr<Connection> connection)
    : request(connection->request),
      grant(connection->grant),
      socket_(socket),
      connection_(std::move(connection)) {
  request.set_abi_version(kAbiVersion);
  request.set_version("test");
  request.set_program("test program");
}

TestClient::~TestClient() {
  if (ring != nullptr) munmap(&ring->header(), grant.file_bytes());
  Close();
}

const std::shared_ptr<grpc::Channel>& TestClient::channel() {
  connection_->Use();
  return connection_->channel;
}

const std::shared_ptr<grpc::Channel>& TestClient::ClientChannel() {
  if (connection_->channel == nullptr) {
    const Preamble preamble = MakePreamble(tenant);
    REQUIRE(write(connection_->fd, &preamble, sizeof(preamble)) == sizeof(preamble));
  }
  return channel();
}

bool TestClient::Open() {
  ClientChannel();
  connection_->reader = connection_->control->OpenSession(&connection_->context, request);
  proto::SessionEvent event;
  if (!connection_->reader->Read(&event)) {
    connection_->status = connection_->reader->Finish();
    connection_->reader.reset();
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

const grpc::Status& TestClient::status() const { return connection_->status; }

uint64_t TestClient::session() const { return grant.session(); }

void TestClient::Close() {
  if (connection_->reader == nullptr) return;
  connection_->context.TryCancel();
  (void)connection_->reader->Finish();
  connection_->reader.reset();
}

std::optional<proto::Ended> TestClient::AwaitEnd() {
  proto::SessionEvent event;
  std::optional<proto::Ended> ended;
  while (connection_->reader->Read(&event)) {
    if (event.has_ended()) ended = event.ended();
    if (event.has_notice()) notices.push_back(event.notice());
  }
  connection_->status = connection_->reader->Finish();
  connection_->reader.reset();
  return ended;
}

std::pair<absl::Status, TestReply> TestClient::CallBytes(Op op, std::span<const char> args,
                                                         const std::string& payload,
                                                         uint64_t session) {
  proto::CallRequest call;
  call.set_session(session != 0 ? session : grant.session());
  call.set_op(static_cast<uint32_t>(op));
  call.set_context(1);
  call.set_after(ring != nullptr ? ring->tail() : 0);
  call.set_args(args.data(), args.size());
  proto::CallReply reply;
  connection_->Use();
  const grpc::Status status =
      CallInParts(*connection_->control, call, payload, &reply, call_timeout);
  return {absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message()),
          TestReply(reply.result(), reply.body())};
}

// ---- shorthand

void TestClient::CreateStream(StreamId stream) {
  ring->Send(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{stream, 1, 0, 0});
}

uint64_t TestClient::Allocate(uint64_t bytes, int* result) {
  wire::cuMemAlloc_v2_Reply body{};
  const int status = ring->Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{bytes}, &body);
  if (result != nullptr) *result = status;
  return status == 0 ? body.address : 0;  // the body may be that of an earlier reply
}

wire::cuMemcpyAsync TestClient::CopyOf(wire::Location destination, wire::Location source,
                                       uint64_t bytes, StreamId stream, FenceIndex fence,
                                       uint64_t value) {
  return {destination, source, bytes, stream, 0, {value, fence, 0}};
}

LibraryId TestClient::Load(const std::string& image) {
  wire::cuLibraryLoadData args{};
  args.context = 1;
  args.image_bytes = image.size();
  auto [status, reply] = Call(Op::cuLibraryLoadData, args, image);
  wire::cuLibraryLoadData_Reply body{};
  if (reply.body().size() >= sizeof(body)) std::memcpy(&body, reply.body().data(), sizeof(body));
  return body.library;
}

KernelId TestClient::GetKernel(LibraryId library, const std::string& name) {
  auto [status, reply] = Call(Op::cuLibraryGetKernel, wire::cuLibraryGetKernel{library, 0}, name);
  wire::cuLibraryGetKernel_Reply body{};
  if (reply.body().size() >= sizeof(body)) std::memcpy(&body, reply.body().data(), sizeof(body));
  return body.kernel;
}

wire::cuLaunchKernelEx TestClient::LaunchOf(KernelId kernel, StreamId stream) {
  wire::cuLaunchKernelEx launch{};
  launch.stream = stream;
  launch.kernel = kernel;
  for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
  return launch;
}

int TestClient::Synchronize(StreamId stream) {
  return ring->Call(Op::cuStreamSynchronize,
                    wire::cuStreamSynchronize{stream, 0, {0, kNoFence, 0}});
}

}  // namespace detshare
