// libnvidia-ml.so.1 as programs use it: opened by name, with a daemon or without one.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "proto/nvml/nvml_table.h"
#include "proto/nvml/nvml_types.h"
#include "tests/client_shim/e2e/harness.h"

namespace detshare::e2e {
namespace {

std::string Library() { return ShimDirectory() + "/libnvidia-ml.so.1"; }

void* Symbol(const char* name) {
  static void* const library = dlopen(Library().c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  return dlsym(library, name);
}

// Calls a function of the library with these arguments.
template <typename... Arguments>
nvmlReturn_t Call(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<nvmlReturn_t (*)(Arguments...)>(Symbol(name));
  REQUIRE(function != nullptr);
  return function(arguments...);
}

// Selects the daemon whose replies this process gets.
void Use(const std::string& socket) { setenv("DETSHARE_SOCKET", socket.c_str(), 1); }

// Calls nvmlInit, and nvmlShutdown at its end.
struct Initialised {
  explicit Initialised(const Daemon& daemon) {
    Use(daemon.socket());
    REQUIRE(Call("nvmlInit_v2") == NVML_SUCCESS);
  }
  ~Initialised() { Call("nvmlShutdown"); }
};

nvmlDevice_t Device(unsigned index) {
  nvmlDevice_t device = nullptr;
  REQUIRE(Call("nvmlDeviceGetHandleByIndex_v2", index, &device) == NVML_SUCCESS);
  return device;
}

std::vector<nvmlProcessInfo_v2_t> Processes(nvmlDevice_t device) {
  std::vector<nvmlProcessInfo_v2_t> infos(64);
  unsigned count = 64;
  REQUIRE(Call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, infos.data()) ==
          NVML_SUCCESS);
  infos.resize(count);
  return infos;
}

TEST_CASE("The library exports the functions of the table and no other") {
  std::set<std::string> exported, rows;
  FILE* const names = popen(("nm -D --defined-only " + Library()).c_str(), "r");
  char address[64], type[8], name[256];
  while (std::fscanf(names, "%63s %7s %255s", address, type, name) == 3) exported.insert(name);
  pclose(names);
  for (const nvml::Row& row : nvml::kRows) rows.insert(row.name);
  CHECK(rows.size() == 404);
  CHECK(exported.erase("detshare_shim_version") == 1);
  CHECK(exported == rows);
}

TEST_CASE(
    "Before nvmlInit every function returns UNINITIALIZED, except those that work without it") {
  const std::set<std::string> free = {"nvmlInit",
                                      "nvmlInit_v2",
                                      "nvmlInitWithFlags",
                                      "nvmlErrorString",
                                      "nvmlSystemGetCudaDriverVersion",
                                      "nvmlSystemGetCudaDriverVersion_v2"};
  for (const nvml::Row& row : nvml::kRows) {
    if (free.contains(row.name)) continue;
    INFO(row.name);
    CHECK(Call(row.name, nullptr, nullptr, nullptr, nullptr, nullptr) == NVML_ERROR_UNINITIALIZED);
  }
}

TEST_CASE("Every supported function refuses null pointers") {
  Daemon daemon;
  const Initialised initialised(daemon);
  const std::set<std::string> without_pointers = {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags",
                                                  "nvmlShutdown", "nvmlErrorString"};
  for (const nvml::Row& row : nvml::kRows) {
    if (without_pointers.contains(row.name)) continue;
    INFO(row.name);
    CHECK(Call(row.name, nullptr, nullptr, nullptr, nullptr, nullptr) ==
          (row.source == nvml::Source::kNone ? NVML_ERROR_NOT_SUPPORTED
                                             : NVML_ERROR_INVALID_ARGUMENT));
  }
}

TEST_CASE("Without a daemon the driver is not loaded, and nothing is printed") {
  Use("/nonexistent/socket");
  CHECK(Call("nvmlInit_v2") == NVML_ERROR_DRIVER_NOT_LOADED);
  int version = 0;
  CHECK(Call("nvmlSystemGetCudaDriverVersion", &version) == NVML_ERROR_DRIVER_NOT_LOADED);
  CHECK(Call("nvmlShutdown") == NVML_ERROR_UNINITIALIZED);
}

TEST_CASE("nvmlInit is counted") {
  Daemon daemon;
  const Initialised once(daemon);
  REQUIRE(Call("nvmlInit") == NVML_SUCCESS);
  CHECK(Call("nvmlShutdown") == NVML_SUCCESS);
  unsigned count = 0;
  CHECK(Call("nvmlDeviceGetCount_v2", &count) == NVML_SUCCESS);
}

TEST_CASE("Devices are found by index, UUID and bus, and agree with the driver") {
  Daemon daemon({"--soft-devices", "2"});
  const Initialised initialised(daemon);
  unsigned count = 0;
  REQUIRE(Call("nvmlDeviceGetCount_v2", &count) == NVML_SUCCESS);
  REQUIRE(count == 2);
  nvmlDevice_t device = Device(1), found = nullptr;
  CHECK(device != Device(0));
  CHECK(Call("nvmlDeviceGetHandleByIndex_v2", 2u, &found) == NVML_ERROR_INVALID_ARGUMENT);

  char uuid[80];
  REQUIRE(Call("nvmlDeviceGetUUID", device, uuid, 80u) == NVML_SUCCESS);
  CHECK(std::string(uuid) == daemon.Status()["devices"][1]["uuid"]);
  CHECK(Call("nvmlDeviceGetHandleByUUID", static_cast<const char*>(uuid), &found) == NVML_SUCCESS);
  CHECK(found == device);
  CHECK(Call("nvmlDeviceGetHandleByUUID", "GPU-00000000-0000-0000-0000-000000000000", &found) ==
        NVML_ERROR_NOT_FOUND);
  CHECK(Call("nvmlDeviceGetUUID", device, uuid, 40u) == NVML_ERROR_INSUFFICIENT_SIZE);
  CHECK(Call("nvmlDeviceGetUUID", device, uuid, 41u) == NVML_SUCCESS);

  nvmlPciInfo_t pci;
  REQUIRE(Call("nvmlDeviceGetPciInfo_v3", device, &pci) == NVML_SUCCESS);
  CHECK(std::string(pci.busId) == "00000000:D1:00.0");
  CHECK(std::string(pci.busIdLegacy) == "0000:D1:00.0");
  for (const char* id : {"0000:d1:00.0", "00000000:D1:00.0", "d1:00.0"}) {
    found = nullptr;
    CHECK(Call("nvmlDeviceGetHandleByPciBusId_v2", id, &found) == NVML_SUCCESS);
    CHECK(found == device);
  }
  CHECK(Call("nvmlDeviceGetHandleByPciBusId_v2", "0000:99:00.0", &found) == NVML_ERROR_NOT_FOUND);
  for (const char* id : {"", "x", "0000:d1:00.0 and more", "1:2:3:4:5.0"})
    CHECK(Call("nvmlDeviceGetHandleByPciBusId_v2", id, &found) == NVML_ERROR_INVALID_ARGUMENT);

  unsigned index = 9, minor = 9, cores = 0;
  CHECK(Call("nvmlDeviceGetIndex", device, &index) == NVML_SUCCESS);
  CHECK(index == 1);
  CHECK(Call("nvmlDeviceGetMinorNumber", device, &minor) == NVML_SUCCESS);
  CHECK(minor == 1);
  CHECK(Call("nvmlDeviceGetNumGpuCores", device, &cores) == NVML_SUCCESS);
  CHECK(cores == 16 * 128);
  int major = 0, lesser = 9;
  CHECK(Call("nvmlDeviceGetCudaComputeCapability", device, &major, &lesser) == NVML_SUCCESS);
  CHECK((major == 9 && lesser == 0));
}

TEST_CASE("Software GPUs reach each other, over no link") {
  Daemon daemon({"--soft-devices", "2"});
  const Initialised initialised(daemon);
  constexpr unsigned kOk = 0, kNotSupported = 5;
  for (const auto& [index, expected] :
       {std::pair(0u, kOk), std::pair(1u, kOk), std::pair(2u, kNotSupported), std::pair(3u, kOk),
        std::pair(4u, kNotSupported)}) {
    unsigned status = 99;
    CHECK(Call("nvmlDeviceGetP2PStatus", Device(0), Device(1), index, &status) == NVML_SUCCESS);
    CHECK(status == expected);
  }
  unsigned value = 0;
  CHECK(Call("nvmlDeviceGetP2PStatus", Device(0), Device(0), 0u, &value) ==
        NVML_ERROR_INVALID_ARGUMENT);
  CHECK(Call("nvmlDeviceGetP2PStatus", Device(0), Device(1), 5u, &value) ==
        NVML_ERROR_INVALID_ARGUMENT);
  CHECK(Call("nvmlDeviceGetTopologyCommonAncestor", Device(0), Device(1), &value) == NVML_SUCCESS);
  CHECK(value == 40);
  CHECK(Call("nvmlDeviceGetTopologyCommonAncestor", Device(1), Device(1), &value) == NVML_SUCCESS);
  CHECK(value == 0);
}

TEST_CASE("Handles that are no device are refused, wherever they point") {
  Daemon daemon;
  const Initialised initialised(daemon);
  char elsewhere;
  nvmlDevice_t device = Device(0);
  unsigned value;
  for (const nvmlDevice_t wrong :
       {nvmlDevice_t{}, reinterpret_cast<nvmlDevice_t>(&elsewhere),
        reinterpret_cast<nvmlDevice_t>(reinterpret_cast<char*>(device) + 1),
        reinterpret_cast<nvmlDevice_t>(~uintptr_t{0})}) {
    CHECK(Call("nvmlDeviceGetIndex", wrong, &value) == NVML_ERROR_INVALID_ARGUMENT);
    CHECK(Call("nvmlDeviceGetMinorNumber", wrong, &value) == NVML_ERROR_INVALID_ARGUMENT);
  }
  // A handle of a device that this daemon does not have.
  const auto next = reinterpret_cast<nvmlDevice_t>(reinterpret_cast<char*>(device) + 8);
  CHECK(Call("nvmlDeviceGetIndex", next, &value) == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(Call("nvmlDeviceGetMinorNumber", next, &value) == NVML_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("DETSHARE_DEVICES is the machine, and CUDA_VISIBLE_DEVICES is ignored") {
  Daemon daemon({"--soft-devices", "3"});
  setenv("DETSHARE_DEVICES", "2,0", 1);
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  {
    const Initialised initialised(daemon);
    unsigned count = 0, minor = 0;
    CHECK(Call("nvmlDeviceGetCount_v2", &count) == NVML_SUCCESS);
    CHECK(count == 2);
    CHECK(Call("nvmlDeviceGetMinorNumber", Device(0), &minor) == NVML_SUCCESS);
    CHECK(minor == 2);
  }
  unsetenv("DETSHARE_DEVICES");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_CASE("NVML shows the devices that a run has in CUDA") {
  Daemon daemon({"--soft-devices", "3"});
  setenv("DETSHARE_DEVICE_COUNT", "1", 1);
  const auto shown = [&](const char* run) {
    setenv("DETSHARE_RUN", run, 1);
    const Initialised initialised(daemon);
    unsigned count = 0, minor = 0;
    CHECK(Call("nvmlDeviceGetCount_v2", &count) == NVML_SUCCESS);
    CHECK(count == 1);
    CHECK(Call("nvmlDeviceGetMinorNumber", Device(0), &minor) == NVML_SUCCESS);
    return minor;
  };
  const auto placed = [&](const std::string& run) {
    Strings environment = daemon.Environment();
    environment.insert(environment.end(), {"DETSHARE_DEVICE_COUNT=1", "DETSHARE_RUN=" + run});
    Process worker({ClientProgram(), "work-for-ever"}, environment);
    REQUIRE(worker.ReadLine() == "ready");
    return daemon.Status()["sessions"][0]["devices"][0].get<unsigned>();
  };
  const unsigned before = shown("a");
  // Other runs get another device, so the next check is not trivial.
  CHECK(shown("b") != before);
  CHECK(placed("a") == before);
  CHECK(shown("a") == before);
  unsetenv("DETSHARE_DEVICE_COUNT");
  unsetenv("DETSHARE_RUN");
}

TEST_CASE("The processes on a device are this tenant's, with their memory and utilisation") {
  Daemon daemon;
  Process worker({ClientProgram(), "work-for-ever"}, daemon.Environment());
  REQUIRE(worker.ReadLine() == "ready");
  Strings other = daemon.Environment();
  other.push_back("DETSHARE_TENANT=neighbour");
  Process neighbour({ClientProgram(), "work-for-ever"}, other);
  REQUIRE(neighbour.ReadLine() == "ready");

  const Initialised initialised(daemon);
  const std::vector<nvmlProcessInfo_v2_t> processes = Processes(Device(0));
  REQUIRE(processes.size() == 1);
  CHECK(processes[0].pid == static_cast<unsigned>(worker.pid()));
  CHECK(processes[0].usedGpuMemory >= 20000 * 4);
  CHECK(processes[0].gpuInstanceId == 0xFFFFFFFF);

  unsigned count = 0;
  nvmlProcessInfo_v2_t info;
  CHECK(Call("nvmlDeviceGetComputeRunningProcesses_v3", Device(0), &count,
             static_cast<nvmlProcessInfo_v2_t*>(nullptr)) == NVML_ERROR_INSUFFICIENT_SIZE);
  CHECK(count == 1);
  CHECK(Call("nvmlDeviceGetGraphicsRunningProcesses_v3", Device(0), &count, &info) == NVML_SUCCESS);
  CHECK(count == 0);

  nvmlUtilization_t utilization{};
  CHECK(Call("nvmlDeviceGetUtilizationRates", Device(0), &utilization) == NVML_SUCCESS);
  CHECK(utilization.gpu > 0);
  CHECK(utilization.gpu <= 100);

  // The memory is that of cuMemGetInfo: memory that any session has taken is not free.
  nvmlMemory_t memory{};
  CHECK(Call("nvmlDeviceGetMemoryInfo", Device(0), &memory) == NVML_SUCCESS);
  CHECK(memory.total == uint64_t{1} << 30);
  CHECK(memory.free + memory.used == memory.total);
  CHECK(memory.used >= 2 * processes[0].usedGpuMemory);

  neighbour.Signal(SIGKILL);
  worker.Signal(SIGKILL);
  CHECK(Eventually([] { return Processes(Device(0)).empty(); }));
  CHECK(Eventually([] {
    nvmlUtilization_t now{};
    Call("nvmlDeviceGetUtilizationRates", Device(0), &now);
    return now.gpu == 0;
  }));
}

TEST_CASE("Structs of another version are refused and not written to") {
  Daemon daemon;
  const Initialised initialised(daemon);
  nvmlMemory_v2_t memory{};
  memory.version = NvmlStructVersion(sizeof(memory), 3);
  CHECK(Call("nvmlDeviceGetMemoryInfo_v2", Device(0), &memory) ==
        NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  CHECK(memory.total == 0);
  memory.version = NvmlStructVersion(sizeof(memory), 2);
  CHECK(Call("nvmlDeviceGetMemoryInfo_v2", Device(0), &memory) == NVML_SUCCESS);
  CHECK(memory.total == uint64_t{1} << 30);
}

TEST_CASE("A software GPU has no sensors, and says so") {
  Daemon daemon;
  const Initialised initialised(daemon);
  unsigned value = 0;
  for (const char* name :
       {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetEnforcedPowerLimit"})
    CHECK(Call(name, Device(0), &value) == NVML_ERROR_NOT_SUPPORTED);
  CHECK(Call("nvmlDeviceGetTemperature", Device(0), 0u, &value) == NVML_ERROR_NOT_SUPPORTED);
  CHECK(Call("nvmlDeviceGetNvLinkState", Device(0), 0u, &value) == NVML_ERROR_NOT_SUPPORTED);
  CHECK(Call("nvmlDeviceGetClockInfo", Device(0), 1u, &value) == NVML_SUCCESS);
  CHECK(value == 1980);
  nvmlFieldValue_t fields[200] = {};
  for (int i = 0; i < 200; ++i) fields[i].fieldId = i;
  CHECK(Call("nvmlDeviceGetFieldValues", Device(0), 200, &fields[0]) == NVML_SUCCESS);
  for (const nvmlFieldValue_t& field : fields) CHECK(field.nvmlReturn == NVML_ERROR_NOT_SUPPORTED);
}

TEST_CASE("A wait for a set of events ends without an event") {
  Daemon daemon;
  const Initialised initialised(daemon);
  nvmlEventSet_t set = nullptr;
  REQUIRE(Call("nvmlEventSetCreate", &set) == NVML_SUCCESS);
  unsigned long long types = 1;
  CHECK(Call("nvmlDeviceGetSupportedEventTypes", Device(0), &types) == NVML_SUCCESS);
  CHECK(types == 0);
  CHECK(Call("nvmlDeviceRegisterEvents", Device(0), 8ull, set) == NVML_ERROR_NOT_SUPPORTED);
  nvmlEventData_t data;
  CHECK(Call("nvmlEventSetWait_v2", set, &data, 5u) == NVML_ERROR_TIMEOUT);
  CHECK(Call("nvmlEventSetFree", set) == NVML_SUCCESS);
}

// Runs `body` in the child of a fork. Returns 0 if `body` returns true.
template <typename Body>
int InChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("A child of fork can go on using NVML, and can initialise it itself") {
  Daemon daemon({"--soft-devices", "2"});
  const auto counts_two = [] {
    unsigned count = 0;
    return Call("nvmlDeviceGetCount_v2", &count) == NVML_SUCCESS && count == 2;
  };
  {
    const Initialised initialised(daemon);
    CHECK(InChild([&] {
            unsigned minor = 9;
            return counts_two() &&
                   Call("nvmlDeviceGetMinorNumber", Device(1), &minor) == NVML_SUCCESS &&
                   minor == 1;
          }) == 0);
    CHECK(counts_two());
  }
  CHECK(InChild([&] { return Call("nvmlInit_v2") == NVML_SUCCESS && counts_two(); }) == 0);
}

TEST_CASE("A daemon that is gone is noticed, and one that comes back is used") {
  unsigned minor = 0;
  auto daemon = std::make_unique<Daemon>();
  const std::string socket = daemon->socket();
  Use(socket);
  REQUIRE(Call("nvmlInit_v2") == NVML_SUCCESS);
  daemon.reset();
  CHECK(Eventually([] {
    unsigned count = 0;
    return Call("nvmlDeviceGetCount_v2", &count) == NVML_ERROR_DRIVER_NOT_LOADED;
  }));
  daemon = std::make_unique<Daemon>();
  Use(daemon->socket());
  CHECK(Call("nvmlDeviceGetMinorNumber", Device(0), &minor) == NVML_SUCCESS);
  CHECK(Call("nvmlShutdown") == NVML_SUCCESS);
}

TEST_CASE("A Python program that uses ctypes gets the same replies twice") {
  Daemon daemon({"--soft-devices", "2"});
  const Outcome outcome = Run({"/usr/bin/python3", Path("tests/gpu/nvml_check.py"), "--ours",
                               Library(), "--real", Library()},
                              daemon.Environment());
  INFO(outcome.out);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err.empty());
  CHECK(outcome.out.find("device 1: nvmlDeviceGetUUID") != std::string::npos);
}

}  // namespace
}  // namespace detshare::e2e
