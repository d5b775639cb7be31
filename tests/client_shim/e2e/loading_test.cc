// The ways in which a program loads the shim, and the errors that it gets if the shim cannot serve
// it.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "proto/control.grpc.pb.h"
#include "proto/preamble.h"
#include "proto/ring_abi.h"
#include "tests/client_shim/e2e/harness.h"

namespace detshare::e2e {
namespace {

int Lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

std::string Shim() {
  return std::filesystem::canonical(ShimDirectory() + "/libcuda.so.1").string();
}

TEST_CASE("detshare run puts the shim first on the library path") {
  Daemon daemon;
  const Outcome where = RunThrough(daemon, {ClientProgram(), "where"});
  CHECK(where.exit_code == 0);
  CHECK(where.out == Shim() + "\n");
  const Outcome outcome = RunThrough(daemon, {ClientProgram(), "compute"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.rfind("digest ", 0) == 0);
  CHECK(outcome.err.empty());
}

TEST_CASE("The shim can be preloaded") {
  Daemon daemon;
  const Strings environment = {"LD_PRELOAD=" + Shim(), "DETSHARE_SOCKET=" + daemon.socket()};
  const Outcome where = Run({ClientProgram(), "where"}, environment);
  CHECK(where.exit_code == 0);
  CHECK(where.out == Shim() + "\n");
  const Outcome outcome = Run({ClientProgram(), "compute"}, environment);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err.empty());
}

TEST_CASE("A program that is linked with -lcuda finds the shim by its soname") {
  Daemon daemon;
  const Outcome outcome = Run({LinkedProgram()}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "ok\n");
  CHECK(outcome.err.empty());
}

TEST_CASE("NVRTC gets the same code again, and other code for other options") {
  Daemon daemon;
  const Outcome outcome = Run({Path("tests/client_shim/e2e/nvrtc_program")}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "ok\n");
}

TEST_CASE("A program that asks for a profiler runs without one, and one line says so") {
  Daemon daemon;
  const Outcome outcome = Run({Path("tests/client_shim/e2e/cupti_program")}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "64 cudaSuccess\n");
  CHECK(
      outcome.err.starts_with("detshare: CUPTI, Nsight and compute-sanitizer work with NVIDIA's"));
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
}

TEST_CASE("Later processes find what NVRTC compiled in one process, unless the cache is disabled") {
  Daemon daemon;
  const std::string cache = daemon.directory() + "/cache";
  const auto compile = [&](const Strings& more) {
    Strings environment = daemon.Environment();
    environment.insert(environment.end(), more.begin(), more.end());
    const Outcome outcome = Run({Path("tests/client_shim/e2e/nvrtc_program")}, environment);
    CHECK(outcome.out == "ok\n");
  };
  const auto entries = [&] {
    std::map<std::string, std::filesystem::file_time_type> times;
    std::error_code none;
    for (const auto& file : std::filesystem::recursive_directory_iterator(cache, none)) {
      if (file.is_regular_file()) times[file.path().string()] = file.last_write_time();
    }
    return times;
  };
  compile({"CUDA_CACHE_PATH=" + cache, "CUDA_CACHE_DISABLE=1"});
  CHECK(entries().empty());
  compile({"CUDA_CACHE_PATH=" + cache});
  const auto first = entries();
  CHECK(first.size() == 4);  // one for each of its variants
  compile({"CUDA_CACHE_PATH=" + cache});
  const auto second = entries();
  CHECK(second.size() == 4);
  for (const auto& [file, used] : first) CHECK(second.at(file) > used);
  // No user can write there. The compilation must succeed anyway.
  compile({"CUDA_CACHE_PATH=/proc"});
  compile({"CUDA_CACHE_PATH", "XDG_CACHE_HOME", "HOME"});
}

TEST_CASE("The exit code is the program's") {
  Daemon daemon;
  CHECK(RunThrough(daemon, {"/bin/sh", "-c", "exit 42"}).exit_code == 42);
}

TEST_CASE("Without a daemon the first CUDA call prints once what to start, and nothing on stdout") {
  const Outcome outcome = Run({LinkedProgram()}, {"LD_LIBRARY_PATH=" + ShimDirectory(),
                                                  "DETSHARE_SOCKET=/nonexistent/socket"});
  CHECK(outcome.exit_code == 3);
  CHECK(outcome.out == "cuInit(0): CUDA_ERROR_SYSTEM_NOT_READY\n");
  CHECK(Lines(outcome.err) == 1);
  CHECK(outcome.err.find("/nonexistent/socket") != std::string::npos);
  CHECK(outcome.err.find("start") != std::string::npos);
  const Outcome debugged =
      Run({LinkedProgram()}, {"LD_LIBRARY_PATH=" + ShimDirectory(), "DETSHARE_LOG=debug",
                              "DETSHARE_SOCKET=/nonexistent/socket"});
  CHECK(debugged.err.find("detshare: cuInit: CUDA_ERROR_SYSTEM_NOT_READY\n") != std::string::npos);
  // The runtime calls cuInit again and again, but the line is printed once.
  const Outcome runtime =
      Run({ClientProgram(), "fork-before-init"},
          {"LD_LIBRARY_PATH=" + ShimDirectory(), "DETSHARE_SOCKET=/nonexistent/socket"});
  CHECK(runtime.out.find("cudaErrorSystemNotReady") != std::string::npos);
}

// A listening socket in place of a daemon.
class Listener {
 public:
  explicit Listener(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(fd_, 8) == 0);
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Accepts the next client's connection. The caller closes it.
  int Accept() { return accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); }

 private:
  const int fd_;
};

TEST_CASE(
    "A program whose daemon ends before it has a session gets one from the daemon's successor") {
  Daemon successor;
  const std::string endpoint = successor.directory() + "/endpoint";
  Listener going(endpoint);
  Process program({LinkedProgram()},
                  {"LD_LIBRARY_PATH=" + ShimDirectory(), "DETSHARE_SOCKET=" + endpoint});
  const int connection = going.Accept();
  std::filesystem::create_symlink(successor.socket(), endpoint + ".new");
  std::filesystem::rename(endpoint + ".new", endpoint);
  close(connection);
  const Outcome outcome = program.Wait();
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err.empty());
}

TEST_CASE("The daemon refuses a shim of another version and names both") {
  Daemon daemon;
  auto stub = proto::Control::NewStub(
      grpc::CreateChannel("unix:" + daemon.socket(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  proto::OpenSessionRequest request;
  request.set_abi_version(kAbiVersion + 7);
  request.set_version("77.7");
  const auto stream = stub->OpenSession(&context, request);
  proto::SessionEvent event;
  CHECK_FALSE(stream->Read(&event));
  const grpc::Status status = stream->Finish();
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(status.error_message().find("77.7 (ABI " + std::to_string(kAbiVersion + 7) + ")") !=
        std::string::npos);
  CHECK(status.error_message().find("(ABI " + std::to_string(kAbiVersion) + ")") !=
        std::string::npos);
}

// A daemon of another version.
class ForeignDaemon final : public proto::Control::Service {
  grpc::Status OpenSession(grpc::ServerContext*, const proto::OpenSessionRequest*,
                           grpc::ServerWriter<proto::SessionEvent>*) override {
    return {grpc::StatusCode::FAILED_PRECONDITION, "this is detshared 99.9 (ABI 999)"};
  }
};

TEST_CASE(
    "A program that the daemon refuses for its version prints both versions, and cuInit fails") {
  char directory[] = "/dev/shm/detshare-e2e-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const std::string socket = std::string(directory) + "/s";
  ForeignDaemon service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  Listener listener(socket);
  Process program({LinkedProgram()},
                  {"LD_LIBRARY_PATH=" + ShimDirectory(), "DETSHARE_SOCKET=" + socket});
  const int connection = listener.Accept();
  Preamble preamble;
  REQUIRE(recv(connection, &preamble, sizeof(preamble), MSG_WAITALL) == sizeof(preamble));
  fcntl(connection, F_SETFL, O_NONBLOCK);
  grpc::AddInsecureChannelFromFd(server.get(), connection);
  const Outcome outcome = program.Wait();
  CHECK(outcome.exit_code == 3);
  CHECK(outcome.out == "cuInit(0): CUDA_ERROR_SYSTEM_DRIVER_MISMATCH\n");
  CHECK(Lines(outcome.err) == 1);
  CHECK(outcome.err.find("(ABI " + std::to_string(kAbiVersion) + ")") != std::string::npos);
  CHECK(outcome.err.find("99.9 (ABI 999)") != std::string::npos);
  server->Shutdown();
  std::filesystem::remove_all(directory);
}

TEST_CASE("CUDA_VISIBLE_DEVICES and DETSHARE_DEVICES choose among the daemon's devices") {
  Daemon daemon({"--soft-devices", "2"});
  const auto devices = [&](const Strings& more) {
    Strings environment = daemon.Environment();
    environment.insert(environment.end(), more.begin(), more.end());
    return Run({ClientProgram(), "devices"}, environment).out;
  };
  const std::string all = devices({});
  REQUIRE(all.rfind("cudaSuccess 2 ", 0) == 0);
  const std::string first = all.substr(14, 12), second = all.substr(27, 12);
  CHECK(first != second);
  CHECK(devices({"CUDA_VISIBLE_DEVICES=1"}) == "cudaSuccess 1 " + second + "\n");
  CHECK(devices({"CUDA_VISIBLE_DEVICES=1,0"}) == "cudaSuccess 2 " + second + " " + first + "\n");
  CHECK(devices({"CUDA_VISIBLE_DEVICES=0,5,1"}) == "cudaSuccess 1 " + first + "\n");
  CHECK(devices({"CUDA_VISIBLE_DEVICES="}).rfind("cudaErrorNoDevice ", 0) == 0);
  CHECK(devices({"DETSHARE_DEVICES=1", "CUDA_VISIBLE_DEVICES=0"}) ==
        "cudaSuccess 1 " + second + "\n");
}

TEST_CASE("A program that asks for some devices gets them, and so do its processes") {
  Daemon daemon({"--soft-devices", "3"});
  const auto run = [&](const Strings& more) {
    Strings environment = daemon.Environment();
    environment.insert(environment.end(), more.begin(), more.end());
    return Run({ClientProgram(), "devices"}, environment);
  };
  const std::string two = run({"DETSHARE_DEVICE_COUNT=2", "DETSHARE_RUN=r"}).out;
  REQUIRE(two.rfind("cudaSuccess 2 ", 0) == 0);
  CHECK(run({"DETSHARE_DEVICE_COUNT=2", "DETSHARE_RUN=r"}).out == two);
  CHECK(run({"DETSHARE_DEVICE_COUNT=2", "DETSHARE_RUN=r", "CUDA_VISIBLE_DEVICES=1"}).out ==
        "cudaSuccess 1 " + two.substr(27, 12) + "\n");
  CHECK(run({"DETSHARE_DEVICE_COUNT=1", "DETSHARE_DEVICES=2,0"}).out.rfind("cudaSuccess 1 ", 0) ==
        0);
  const Outcome more = run({"DETSHARE_DEVICE_COUNT=4"});
  CHECK(more.out.rfind("cudaErrorNoDevice ", 0) == 0);
  CHECK_THAT(more.err, Catch::Contains("4 devices were asked for; the program may use 3"));
  // The program chose this itself, so nothing is printed.
  const Outcome none = run({"CUDA_VISIBLE_DEVICES=7"});
  CHECK(none.out.rfind("cudaErrorNoDevice ", 0) == 0);
  CHECK(none.err.empty());
}

TEST_CASE("Code is sent once: the user's next process loads it without sending it") {
  Daemon daemon;
  const auto run = [&](uint64_t* sent) {
    Process program({Path("tests/client_shim/e2e/large_image_program"), "hold"},
                    daemon.Environment());
    const std::string line = program.ReadLine();
    *sent = daemon.Status()["sessions"][0]["code_bytes"];
    return line;
  };
  uint64_t first = 0, second = 0;
  CHECK(run(&first) == "ok");
  CHECK(first > 1 << 20);
  // The daemon sends the name as soon as it can.
  CHECK(Eventually([&] { return run(&second) == "ok" && second == 0; }));
}

TEST_CASE("Code that was loaded for one device also runs on another") {
  Daemon daemon({"--soft-devices", "2"});
  const Outcome outcome = Run({ClientProgram(), "every-device"}, daemon.Environment());
  CHECK(outcome.exit_code == 0);
  CHECK(Lines(outcome.out) == 2);
}

}  // namespace
}  // namespace detshare::e2e
