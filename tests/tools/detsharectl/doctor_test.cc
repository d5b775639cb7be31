// The doctor on hosts that the test makes: it must find each problem, and no problem on a healthy
// host.
#include "tools/detsharectl/doctor.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/ring_abi.h"
#include "proto/version.h"

namespace detshare::ctl {
namespace {

namespace fs = std::filesystem;
using Level = Finding::Level;

// A healthy host with a real GPU, on a tmpfs.
class FakeHost {
 public:
  FakeHost() {
    char pattern[] = "/dev/shm/detshare-doctor-XXXXXX";
    path = mkdtemp(pattern);
    host.root = path;
    host.socket = path + "/d.sock";
    host.config_file = path + "/detshare.toml";
    host.shim_directories = {path + "/none", path + "/lib"};
    Write("/lib/libcuda.so.1",
          "\x7f"
          "ELF DETSHARE_SOCKET");
    Write("/proc/driver/nvidia/version", "NVRM version: 580.82\n");
    Write("/dev/nvidia0", "");
    Write("/dev/nvidia-uvm", "");
    Write("/proc/42/comm", "detshared\n");
    Write("/proc/42/limits",
          "Limit  Soft Limit  Hard Limit  Units\n"
          "Max open files            1048576    1048576    files\n");
    Write("/proc/42/cgroup", "0::/system.slice/detshared.service\n");
    Write("/sys/fs/cgroup/system.slice/detshared.service/memory.max", "max\n");
    Write("/sys/fs/cgroup/system.slice/detshared.service/cpu.max", "max 100000\n");
    fs::create_directories(path + "/proc/42/fd");
    fs::create_symlink(path + "/dev/nvidia0", path + "/proc/42/fd/9");
    Listen();
    proto::Status status;
    status.set_version(kVersion);
    status.set_abi_version(kAbiVersion);
    status.set_pid(42);
    status.set_backend("cuda");
    status.set_policy("whole");
    proto::DeviceStatus* const device = status.add_devices();
    device->set_state("ok");
    device->mutable_preemption()->set_mode("time-slice groups");
    device->mutable_preemption()->set_latency_us(190);
    host.status = status;
  }
  ~FakeHost() {
    if (fd_ >= 0) close(fd_);
    fs::remove_all(path);
  }
  void Write(const std::string& file, const std::string& text) {
    fs::create_directories(fs::path(path + file).parent_path());
    std::ofstream(path + file) << text;
  }
  void Listen() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, host.socket.c_str(), sizeof(address.sun_path) - 1);
    fd_ = socket(AF_UNIX, SOCK_STREAM, 0);
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(fd_, 8) == 0);
  }
  void Deafen() {
    close(fd_);
    fd_ = -1;
  }
  // The worst finding of a check.
  Finding Of(const std::string& check) const {
    Finding worst;
    bool found = false;
    for (const Finding& one : Examine(host)) {
      if (one.check != check || (found && one.level <= worst.level)) continue;
      worst = one;
      found = true;
    }
    REQUIRE(found);
    return worst;
  }

  std::string path;
  Host host;

 private:
  int fd_ = -1;
};

TEST_CASE("A healthy host has no findings") {
  const FakeHost fake;
  for (const Finding& one : Examine(fake.host)) {
    INFO(one.check << ": " << one.text);
    CHECK(one.level == Level::kOk);
    CHECK(one.advice.empty());
  }
}

TEST_CASE("A missing socket, a dead one, and a file that is no socket are errors with advice") {
  FakeHost fake;
  SECTION("missing") { fs::remove(fake.host.socket); }
  SECTION("deaf") { fake.Deafen(); }
  SECTION("a file") {
    fs::remove(fake.host.socket);
    std::ofstream(fake.host.socket) << "";
  }
  const Finding finding = fake.Of("socket");
  CHECK(finding.level == Level::kError);
  CHECK_FALSE(finding.advice.empty());
  CHECK(Broken(Examine(fake.host)));
  // One mistake is one error: what follows from it is not known.
  fake.host.status.reset();
  fake.host.no_status = "no detshared replies";
  for (const char* check : {"daemon", "devices", "engines", "preemption", "cgroup"})
    CHECK(fake.Of(check).level == Level::kUnknown);
}

TEST_CASE("Without the socket's directory there is one error, that of the socket") {
  FakeHost fake;
  fake.host.socket = fake.path + "/none/d.sock";
  fake.host.status.reset();
  int errors = 0;
  for (const Finding& one : Examine(fake.host)) errors += one.level == Level::kError ? 1 : 0;
  CHECK(errors == 1);
  CHECK(fake.Of("socket").level == Level::kError);
  CHECK(fake.Of("runtime-dir").level == Level::kUnknown);
}

TEST_CASE("A daemon that does not reply, or has another version, is found") {
  FakeHost fake;
  SECTION("another ABI") {
    fake.host.status->set_abi_version(kAbiVersion + 1);
    CHECK(fake.Of("daemon").level == Level::kError);
  }
  SECTION("another version") {
    fake.host.status->set_version("0.0.1");
    CHECK(fake.Of("daemon").level == Level::kWarning);
  }
  SECTION("none") {
    fake.host.status.reset();
    fake.host.no_status = "Deadline Exceeded";
    CHECK(fake.Of("daemon").level == Level::kError);
    CHECK_THAT(fake.Of("daemon").text, Catch::Contains("Deadline Exceeded"));
    CHECK(fake.Of("devices").level == Level::kUnknown);
    CHECK(fake.Of("cgroup").level == Level::kUnknown);
  }
}

TEST_CASE("An engine that does not reply is a warning that names it") {
  FakeHost fake;
  for (const char* group : {"alice", "bob"}) {
    proto::EngineStatus* const engine = fake.host.status->add_engines();
    engine->set_group(group);
    engine->set_pid(77);
  }
  CHECK(fake.Of("engines").level == Level::kOk);
  fake.host.status->mutable_engines(1)->set_problem("it does not reply");
  const Finding finding = fake.Of("engines");
  CHECK(finding.level == Level::kWarning);
  CHECK_THAT(finding.text, Catch::Contains("isolation group bob (pid 77)") &&
                               Catch::Contains("it does not reply"));
  CHECK_THAT(finding.advice, Catch::Contains("kill -KILL 77"));
}

TEST_CASE("A tenant endpoint is no error: it serves programs, and no operators") {
  FakeHost fake;
  fs::remove_all(fake.path + "/proc/driver");
  fake.host.status.reset();
  fake.host.no_status = "/run/detshare/detshared.sock serves no operators";
  fake.host.no_status_advice = "Run detsharectl on the host.";
  fake.host.refuses = true;
  CHECK_FALSE(Broken(Examine(fake.host)));
  CHECK(fake.Of("daemon").level == Level::kUnknown);
  CHECK(fake.Of("daemon").advice == "Run detsharectl on the host.");
}

TEST_CASE("A missing driver and missing device nodes are found") {
  FakeHost fake;
  SECTION("no node") {
    fs::remove(fake.path + "/dev/nvidia0");
    CHECK_THAT(fake.Of("driver").advice, Catch::Contains("nvidia-modprobe"));
  }
  SECTION("no unified memory") {
    fs::remove(fake.path + "/dev/nvidia-uvm");
    CHECK(fake.Of("driver").level == Level::kError);
  }
  SECTION("a driver that is not used") {
    fake.host.status->set_backend("soft");
    CHECK(fake.Of("driver").level == Level::kWarning);
  }
  SECTION("none, with software GPUs") {
    fs::remove_all(fake.path + "/proc/driver");
    fake.host.status->set_backend("soft");
    CHECK(fake.Of("driver").level == Level::kWarning);
  }
  SECTION("none, and no daemon") {
    fs::remove_all(fake.path + "/proc/driver");
    fake.host.status.reset();
    CHECK(fake.Of("driver").level == Level::kWarning);
  }
  SECTION("none here, but in the daemon's view") {
    fs::remove_all(fake.path + "/proc/driver");
    CHECK(fake.Of("driver").level == Level::kOk);
  }
}

TEST_CASE("A lost device is an error") {
  FakeHost fake;
  fake.host.status->add_devices()->set_state("CUDA_ERROR_ILLEGAL_ADDRESS");
  CHECK_THAT(fake.Of("devices").text, Catch::Contains("device 1: "));
  CHECK_THAT(fake.Of("devices").text, Catch::Contains("ILLEGAL_ADDRESS"));
  CHECK(fake.Of("devices").level == Level::kError);
}

TEST_CASE("The doctor says whether urgent work preempts, and if not what to do") {
  FakeHost fake;
  CHECK(fake.Of("preemption").level == Level::kOk);
  CHECK_THAT(fake.Of("preemption").text, Catch::Contains("time-slice groups"));
  CHECK_THAT(fake.Of("preemption").text, Catch::Contains("190 us"));
  proto::PreemptionStatus& preemption = *fake.host.status->mutable_devices(0)->mutable_preemption();
  preemption.Clear();
  preemption.set_mode("none");
  preemption.set_reason("the driver does not honour time slices");
  CHECK(fake.Of("preemption").level == Level::kWarning);
  CHECK_THAT(fake.Of("preemption").text, Catch::Contains("does not honour"));
  CHECK_THAT(fake.Of("preemption").advice, Catch::Contains("driver 580"));
  preemption.set_switched_off(true);
  CHECK(fake.Of("preemption").level == Level::kOk);
  CHECK_THAT(fake.Of("preemption").advice,
             Catch::Contains("preemption = \"auto\"") && !Catch::Contains("isolation"));
  fake.host.status.reset();
  CHECK(fake.Of("preemption").level == Level::kUnknown);
}

TEST_CASE("A runtime directory that is on no tmpfs is an error with real GPUs, with a mount line") {
  FakeHost fake;
  fake.host.socket = "/proc/d.sock";
  CHECK(fake.Of("runtime-dir").level == Level::kError);
  CHECK_THAT(fake.Of("runtime-dir").advice,
             Catch::Contains("mount -t tmpfs") && Catch::Contains(" tmpfs /proc"));
  fake.host.status->set_backend("soft");
  CHECK(fake.Of("runtime-dir").level == Level::kWarning);
  CHECK_THAT(fake.Of("runtime-dir").advice, Catch::Contains("mount -t tmpfs"));
}

TEST_CASE("A missing shim, and a driver that hides it, are found") {
  FakeHost fake;
  fake.Write("/real/libcuda.so.1",
             "\x7f"
             "ELF of somebody else");
  SECTION("on the path") {
    fake.host.environment["LD_LIBRARY_PATH"] = "/nowhere:" + fake.path + "/lib";
    CHECK(fake.Of("library-path").level == Level::kOk);
  }
  SECTION("hidden") {
    fake.host.environment["LD_LIBRARY_PATH"] = fake.path + "/real:" + fake.path + "/lib";
    CHECK(fake.Of("library-path").level == Level::kWarning);
  }
  SECTION("missing") {
    fs::remove_all(fake.path + "/lib");
    CHECK(fake.Of("shim").level == Level::kError);
  }
}

TEST_CASE("A configuration with mistakes is an error, and a missing one is not") {
  FakeHost fake;
  CHECK(fake.Of("config").level == Level::kOk);
  fake.Write("/detshare.toml", "[daemon]\nlog_level = \"info\"\n");
  CHECK(fake.Of("config").level == Level::kOk);
  fake.Write("/detshare.toml", "[daemon]\nlog_levle = \"info\"\n");
  CHECK(fake.Of("config").level == Level::kError);
  CHECK_THAT(fake.Of("config").text, Catch::Contains(":2:1: "));
  fake.Write("/detshare.toml", "[metrics]\nlisten = \"0.0.0.0:9464\"\n");
  CHECK(fake.Of("config").level == Level::kError);
  CHECK_THAT(fake.Of("config").text, Catch::Contains("--metrics-token-file"));
  fake.Write("/detshare.toml", "");
  chmod((fake.path + "/detshare.toml").c_str(), 0646);
  CHECK(fake.Of("config").level == Level::kError);
}

TEST_CASE("Narrow limits of the daemon are found") {
  FakeHost fake;
  const std::string group = "/sys/fs/cgroup/system.slice/detshared.service/";
  SECTION("files") {
    fake.Write("/proc/42/limits", "Max open files            1024    1048576    files\n");
    CHECK(fake.Of("daemon-limits").level == Level::kWarning);
  }
  SECTION("not readable") {
    fs::remove(fake.path + "/proc/42/limits");
    CHECK(fake.Of("daemon-limits").level == Level::kUnknown);
  }
  SECTION("memory") {
    fake.Write(group + "memory.max", "1073741824\n");
    CHECK_THAT(fake.Of("cgroup").text, Catch::Contains("1.0 GiB") || Catch::Contains("1 GiB"));
    CHECK(fake.Of("cgroup").level == Level::kWarning);
  }
  SECTION("time") {
    fake.Write(group + "cpu.max", "50000 100000\n");
    CHECK(fake.Of("cgroup").level == Level::kWarning);
  }
  SECTION("threads") {
    fake.Write(group + "pids.max", "100\n");
    CHECK(fake.Of("cgroup").level == Level::kWarning);
  }
  SECTION("another hierarchy") {
    fake.Write("/proc/42/cgroup", "3:memory:/x\n");
    CHECK(fake.Of("cgroup").level == Level::kUnknown);
  }
}

TEST_CASE("MPS and other processes on the GPU are found, but not the daemon and monitors") {
  FakeHost fake;
  fake.Write("/proc/50/comm", "nvidia-smi\n");
  fs::create_directories(fake.path + "/proc/50/fd");
  fs::create_symlink(fake.path + "/dev/nvidiactl", fake.path + "/proc/50/fd/3");
  CHECK(fake.Of("gpu-processes").level == Level::kOk);
  fake.Write("/proc/51/comm", "nvidia-cuda-mps\n");
  CHECK(fake.Of("mps").level == Level::kWarning);
  fake.Write("/proc/52/comm", "py\x1b[2Jthon\n");
  fs::create_directories(fake.path + "/proc/52/fd");
  fs::create_symlink(fake.path + "/dev/nvidia0", fake.path + "/proc/52/fd/7");
  const Finding finding = fake.Of("gpu-processes");
  CHECK(finding.level == Level::kWarning);
  CHECK_THAT(finding.text, Catch::Contains("(pid 52)") && !Catch::Contains("(pid 42)"));
  CHECK_THAT(FindingsText({finding}), !Catch::Contains("\x1b"));
}

TEST_CASE("GPUs that MIG divides are found") {
  FakeHost fake;
  fake.Write("/proc/driver/nvidia/capabilities/mig/config", "DeviceFileMinor: 1\n");
  fs::create_directories(fake.path + "/proc/driver/nvidia/capabilities/gpu0/mig");
  CHECK(fake.Of("mig").level == Level::kOk);
  fake.Write("/proc/driver/nvidia/capabilities/gpu1/mig/gi1/ci0/access", "DeviceFileMinor: 12\n");
  fake.Write("/proc/driver/nvidia/capabilities/gpu1/mig/gi2/access", "DeviceFileMinor: 13\n");
  const Finding finding = fake.Of("mig");
  CHECK(finding.level == Level::kWarning);
  CHECK(finding.text == "MIG divides gpu1");
  CHECK_THAT(finding.advice, Catch::Contains("-mig 0"));
}

TEST_CASE("Findings are printed as text and as JSON") {
  const std::vector<Finding> findings = {{"a", Level::kOk, "fine", ""},
                                         {"b", Level::kError, "bro\xffken", "mend it"},
                                         {"c", Level::kWarning, "odd", "look"}};
  CHECK_THAT(FindingsText(findings),
             Catch::Contains("-> mend it") && Catch::EndsWith("1 error, 1 warning\n"));
  const nlohmann::json json = nlohmann::json::parse(FindingsJson(findings));
  CHECK(json["errors"] == 1);
  CHECK(json["findings"].size() == 3);
  CHECK(json["findings"][1]["check"] == "b");
  CHECK(json["findings"][1]["level"] == "error");
  CHECK(Broken(findings));
  CHECK_FALSE(Broken({findings[0], findings[2]}));
}

}  // namespace
}  // namespace detshare::ctl
