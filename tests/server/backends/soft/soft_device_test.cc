#include "server/backends/soft/soft_device.h"

#include <cuda.h>
#include <sys/mman.h>

#include <bit>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <random>

#include "tests/server/backends/soft/soft_device_harness.h"

namespace detshare::soft {
namespace {

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

LaunchShape Cooperative() {
  LaunchShape shape;
  shape.cooperative = true;
  return shape;
}

LaunchShape Clusters(uint32_t blocks) {
  LaunchShape shape;
  shape.cluster = {blocks, 1, 1};
  return shape;
}

// The files of software GPUs that this process has open.
int OpenMemoryFiles() {
  int files = 0;
  for (const auto& descriptor : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(descriptor.path(), error).string();
    files += target.starts_with("/memfd:detshare-soft-gpu") ? 1 : 0;
  }
  return files;
}

int Attribute(Device& device, int attribute) {
  return device.properties().attributes.at(attribute);
}

}  // namespace

TEST_CASE("the default device looks like an H200") {
  const auto device = Require(CreateSoftDevice({}));
  CHECK(device->properties().name == "DetShare Software GPU");
  CHECK(device->properties().sm_count == 132);
  CHECK(device->properties().total_memory == 8ull << 30);
  CHECK(device->properties().driver_version == 13000);
  CHECK(Attribute(*device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 9);
  CHECK(Attribute(*device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == 132);
  CHECK(Attribute(*device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) == 227 * 1024);
  CHECK(Attribute(*device, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) == 1);
  CHECK(Attribute(*device, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) == 0);
  CHECK(Attribute(*device, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) == 0);
  CHECK(Attribute(*device, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) == 1);
  CHECK(device->properties().attributes.size() == CU_DEVICE_ATTRIBUTE_MAX - 1);
  REQUIRE(device->properties().tpc_gpc.size() == 66);
  CHECK(device->properties().tpc_gpc[35] == 4);
  CHECK(device->properties().tpc_index[35] == 4);
  CHECK(device->properties().tpc_gpc[65] == 0x13);
  CHECK(device->properties().limits[CU_LIMIT_STACK_SIZE] == 1024);
  CHECK(device->whole().sm_count() == 132);
}

TEST_CASE("options that do not describe a device are refused") {
  CHECK_FALSE(CreateSoftDevice({.sm_count = 0}).ok());
  CHECK_FALSE(CreateSoftDevice({.compute_major = 3}).ok());
  CHECK_FALSE(CreateSoftDevice({.ordinal = -1}).ok());
}

TEST_CASE("a partition consists of whole groups of SMs") {
  TestDevice device;
  CHECK(Require(device->CreatePartition(8, 16))->sm_count() == 16);
  CHECK(Require(device->CreatePartition(120, 12))->first_sm() == 120);
  CHECK_FALSE(device->CreatePartition(4, 8).ok());
  CHECK_FALSE(device->CreatePartition(0, 12).ok());
  CHECK_FALSE(device->CreatePartition(128, 8).ok());
  CHECK_FALSE(device->CreatePartition(-8, 8).ok());
  CHECK_FALSE(device->CreatePartition(0, 0).ok());
}

TEST_CASE("a queue that waits for its next session keeps no memory of the last one") {
  TestDevice device;
  const int before = OpenMemoryFiles();
  const std::unique_ptr<Queue> queue = Require(device->whole().CreateQueue(0));
  {
    const auto space = Require(device->CreateAddressSpace(TestBase(0), kTestSpaceBytes));
    CHECK(OpenMemoryFiles() == before + 1);
    queue->Serve(*space);
    const std::unique_ptr<Marker> marker = Require(device->CreateMarker(/*timed=*/false));
    Require(queue->Record(*marker));
    while (!Require(device->Reached(*marker))) std::this_thread::yield();
    space->Abandon();
  }
  CHECK(OpenMemoryFiles() == before);
}

TEST_CASE("a kernel of an unmodified fatbin adds vectors") {
  TestDevice device;
  TestSession session(device, 0);
  constexpr int kCount = 10'000;
  float* a = session.Allocate<float>(kCount);
  float* b = session.Allocate<float>(kCount);
  float* c = session.Allocate<float>(kCount);
  for (int i = 0; i < kCount; ++i) a[i] = i * 0.25f, b[i] = 1.0f / (i + 1);
  Require(session.Launch("Add", {(kCount + 255) / 256}, {256}, Parameters(a, b, c, kCount)));
  Require(session.Finish());
  for (int i = 0; i < kCount; ++i) REQUIRE(c[i] == a[i] + b[i]);
}

TEST_CASE("kernels have names, parameters and attributes") {
  TestDevice device;
  TestSession session(device, 0);
  const std::vector<std::string> names = session.library().KernelNames();
  CHECK(std::find(names.begin(), names.end(), "Add") != names.end());
  const KernelInfo& add = session.kernel("Add").info();
  REQUIRE(add.parameters.size() == 4);
  CHECK(add.parameters[1].offset == 8);
  CHECK(add.parameters[3].offset == 24);
  CHECK(add.parameters[3].bytes == 4);
  CHECK(add.parameter_bytes == 28);
  CHECK(add.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] == 1024);
  CHECK(add.attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] == 90);
  CHECK(add.attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] == 90);
  CHECK(add.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] == 49152);
  CHECK(session.kernel("Bounded").info().attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] ==
        128);
  CHECK(session.kernel("MatMul").info().attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] == 2048);
  CHECK(&session.kernel("Add") == &session.kernel("Add"));
  CHECK(CudaResultOf(session.library().GetKernel("NoSuchKernel").status()) == kCudaErrorNotFound);
}

TEST_CASE("attributes are set within their limits") {
  TestDevice device;
  TestSession session(device, 0);
  Kernel& kernel = session.kernel("Dynamic");
  CHECK(kernel.SetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 * 1024).ok());
  CHECK_FALSE(
      kernel.SetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 * 1024 + 1).ok());
  CHECK_FALSE(kernel.SetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1).ok());
  CHECK(kernel.SetAttribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50).ok());
  CHECK_FALSE(kernel.SetAttribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101).ok());
  CHECK_FALSE(kernel.SetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 8).ok());
  CHECK_FALSE(kernel.SetAttribute(99, 8).ok());
  CHECK(kernel.info().attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] == 227 * 1024);
}

TEST_CASE("variables of a module are initialised, and each session has its own") {
  TestDevice device;
  TestSession first(device, 0), second(device, 1);
  const Library::Global global = Require(first.library().GetGlobal("initialised"));
  REQUIRE(global.bytes == 16);
  CHECK(std::memcmp(reinterpret_cast<void*>(global.address), "\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0",
                    16) == 0);
  CHECK(first.space().Contains(global.address, 16));
  CHECK_FALSE(second.space().Contains(global.address, 16));
  CHECK(CudaResultOf(first.library().GetGlobal("none").status()) == kCudaErrorNotFound);

  Require(first.Launch("CountUp", {100}, {32}));
  Require(first.Launch("CountUp", {100}, {32}));
  Require(second.Launch("CountUp", {1}, {1}));
  Require(first.Finish());
  Require(second.Finish());
  const auto count = [](TestSession& session) {
    return *reinterpret_cast<long long*>(Require(session.library().GetGlobal("counter")).address);
  };
  CHECK(count(first) == 6400);
  CHECK(count(second) == 1);
}

TEST_CASE("constants can be set by copies and through their addresses, and are read by kernels") {
  TestDevice device;
  TestSession session(device, 0);
  float* values = session.Allocate<float>(4);
  values[0] = 3;
  const float new_factor = 10;
  Require(session.Launch("Scale", {1}, {32}, Parameters(values, 4)));
  CopyRequest copy;
  const uint64_t factor = Require(session.library().GetGlobal("factor")).address;
  copy.destination = factor;
  copy.source = Address(&new_factor);
  copy.inline_source = true;
  copy.width = sizeof(float);
  Require(session.queue().Copy(session.space(), copy));
  Require(session.Launch("Scale", {1}, {32}, Parameters(values, 4)));
  Require(session.Finish());
  CHECK(values[0] == 60);

  Require(session.Launch("Store", {1}, {1}, Parameters(factor, std::bit_cast<int>(0.5f))));
  Require(session.Launch("Scale", {1}, {32}, Parameters(values, 4)));
  Require(session.Finish());
  CHECK(values[0] == 30);
}

TEST_CASE("an access outside the session's memory is a fault of this session alone") {
  TestDevice device;
  auto guilty = std::make_unique<TestSession>(device, 0);
  TestSession innocent(device, 1);
  int* mine = guilty->Allocate<int>(128);
  int* theirs = innocent.Allocate<int>(128);
  theirs[0] = 7;

  SECTION("another session's memory") {
    Require(guilty->Launch("Store", {1}, {1}, Parameters(theirs, 99)));
    CHECK(CudaResultOf(guilty->Finish()) == kCudaErrorIllegalAddress);
    CHECK(device.log().find("Store") != std::string::npos);
  }
  SECTION("one byte after its own") {
    Require(guilty->Launch("Store", {1}, {1}, Parameters(mine + 128, 99)));
    CHECK(CudaResultOf(guilty->Finish()) == kCudaErrorIllegalAddress);
  }
  SECTION("the daemon's memory") {
    static int daemon = 5;
    Require(guilty->Launch("Store", {1}, {1}, Parameters(&daemon, 99)));
    CHECK(CudaResultOf(guilty->Finish()) == kCudaErrorIllegalAddress);
    CHECK(daemon == 5);
  }
  SECTION("a null pointer") {
    Require(guilty->Launch("Store", {1}, {1}, Parameters(nullptr, 99)));
    CHECK(CudaResultOf(guilty->Finish()) == kCudaErrorIllegalAddress);
  }
  SECTION("an address that is not aligned") {
    Require(guilty->Launch("Store", {1}, {1}, Parameters(reinterpret_cast<char*>(mine) + 2, 99)));
    CHECK(CudaResultOf(guilty->Finish()) == kCudaErrorMisalignedAddress);
  }
  SECTION("a trap") {
    Require(guilty->Launch("Trap", {4}, {64}));
    CHECK(CudaResultOf(guilty->Finish()) == kCudaErrorLaunchFailed);
  }

  // The fault stays, and later work is skipped.
  CHECK_FALSE(guilty->space().fault().ok());
  Require(guilty->Launch("Store", {1}, {1}, Parameters(mine, 1)));
  guilty.reset();
  CHECK(theirs[0] == 7);
  Require(innocent.Launch("Store", {1}, {1}, Parameters(theirs, 8)));
  Require(innocent.Finish());
  CHECK(theirs[0] == 8);
  CHECK(device->health().ok());
}

// A thread that sleeps until it is woken.
class Sleeper {
 public:
  void Wake() {
    wakes_.fetch_add(1);
    wakes_.notify_all();
  }
  // Returns once `done()` is true. Looks only after a wake.
  template <typename Done>
  void SleepUntil(Done done) {
    for (;;) {
      const uint32_t seen = wakes_.load();
      if (done()) return;
      wakes_.wait(seen);
    }
  }

 private:
  std::atomic<uint32_t> wakes_{0};
};

TEST_CASE("a session learns of its fences and its fault without looking for them") {
  TestDevice device;
  Sleeper sleeper;
  TestSession session(device, 0);
  REQUIRE(session.space().Announce([&] { sleeper.Wake(); }));
  int* const flag = session.Allocate<int>(1);
  std::atomic<uint64_t> fence{0};
  for (uint64_t round = 1; round <= 100; ++round) {
    Require(session.Launch("Store", {1}, {1}, Parameters(flag, 1)));
    Require(session.queue().WriteFence(session.space(), &fence, round));
    sleeper.SleepUntil([&] { return fence.load() == round; });
  }
  Require(session.Launch("Trap", {1}, {1}));
  sleeper.SleepUntil([&] { return !session.space().fault().ok(); });
}

TEST_CASE("launches of impossible shapes return CUDA's errors") {
  TestDevice device;
  TestSession session(device, 0);
  int* out = session.Allocate<int>(1024);
  const auto parameters = Parameters(out, 1);
  const auto result = [&](Dim3 grid, Dim3 block, uint32_t shared = 0) {
    LaunchShape shape;
    shape.dynamic_shared_bytes = shared;
    return CudaResultOf(session.Launch("Store", grid, block, parameters, shape));
  };
  CHECK(result({1, 1, 1}, {1, 1, 1}) == kCudaSuccess);
  CHECK(result({0, 1, 1}, {1, 1, 1}) == kCudaErrorInvalidValue);
  CHECK(result({1, 1, 1}, {1, 0, 1}) == kCudaErrorInvalidValue);
  CHECK(result({1, 65536, 1}, {1, 1, 1}) == kCudaErrorInvalidValue);
  CHECK(result({0x80000000, 1, 1}, {1, 1, 1}) == kCudaErrorInvalidValue);
  CHECK(result({1, 1, 1}, {1025, 1, 1}) == kCudaErrorInvalidValue);
  CHECK(result({1, 1, 1}, {32, 33, 1}) == kCudaErrorInvalidValue);
  CHECK(result({1, 1, 1}, {1, 1, 65}) == kCudaErrorInvalidValue);
  CHECK(result({1, 1, 1}, {0x80000000, 2, 1}) == kCudaErrorInvalidValue);
  CHECK(result({1, 1, 1}, {1, 1, 1}, 49153) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(session.Launch("Bounded", {1}, {129}, Parameters(out))) ==
        kCudaErrorLaunchOutOfResources);
  CHECK(CudaResultOf(session.Launch("Store", {1}, {1}, Parameters(out))) == kCudaErrorInvalidValue);
  Require(session.Finish());

  TestSession other(device, 1);
  LaunchShape shape;
  CHECK(CudaResultOf(other.queue().Launch(other.space(), session.kernel("Nothing"), shape, {})) ==
        kCudaErrorInvalidHandle);
}

TEST_CASE("dynamic shared memory beyond 48 KiB needs the attribute") {
  TestDevice device;
  TestSession session(device, 0);
  int* out = session.Allocate<int>(256);
  LaunchShape shape;
  shape.dynamic_shared_bytes = 200 * 1024;
  CHECK(CudaResultOf(session.Launch("Dynamic", {1}, {256}, Parameters(out), shape)) ==
        kCudaErrorInvalidValue);
  Require(session.kernel("Dynamic").SetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                 200 * 1024));
  Require(session.Launch("Dynamic", {1}, {256}, Parameters(out), shape));
  Require(session.Finish());
  for (int i = 0; i < 256; ++i) REQUIRE(out[i] == 255 - i);
}

TEST_CASE("a cooperative launch has all its blocks in flight or is refused") {
  TestDevice device({.sm_count = 16});
  const auto partition = Require(device->CreatePartition(0, 8));
  TestSession session(device, 0, partition.get());
  int* partial = session.Allocate<int>(1024);
  int* total = session.Allocate<int>(3);
  // 8 SMs hold 16 blocks of 1,024 threads.
  Require(session.Launch("GridSum", {16}, {1024}, Parameters(partial, total), Cooperative()));
  Require(session.Finish());
  CHECK(total[0] == 120);
  CHECK(total[1] == 136);
  CHECK(total[2] == 152);
  CHECK(CudaResultOf(session.Launch("GridSum", {17}, {1024}, Parameters(partial, total),
                                    Cooperative())) == kCudaErrorCooperativeLaunchTooLarge);
}

TEST_CASE("blocks can wait for later blocks if all of them fit") {
  TestDevice device({.sm_count = 2, .worker_threads = 1, .quantum = 1000});
  TestSession session(device, 0);
  int* flag = session.Allocate<int>(1);
  Require(session.Launch("WaitForLast", {64}, {32}, Parameters(flag)));
  Require(session.Finish());
  CHECK(*flag == 1);
}

TEST_CASE("blocks of a cluster see each other's shared memory, and clusters have CUDA's sizes") {
  TestDevice device;
  TestSession session(device, 0);
  int* out = session.Allocate<int>(64);
  Require(session.Launch("ClusterRank", {16}, {64}, Parameters(out), Clusters(4)));
  Require(session.Finish());
  for (int block = 0; block < 16; ++block) CHECK(out[block] == block / 4 * 4 + (block + 1) % 4);

  const auto result = [&](uint32_t grid, uint32_t cluster) {
    return CudaResultOf(
        session.Launch("ClusterRank", {grid}, {64}, Parameters(out), Clusters(cluster)));
  };
  CHECK(result(16, 3) == kCudaErrorInvalidClusterSize);
  CHECK(result(16, 16) == kCudaErrorInvalidClusterSize);
  Require(session.kernel("ClusterRank")
              .SetAttribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  CHECK(result(16, 16) == kCudaSuccess);
  CHECK(result(32, 32) == kCudaErrorInvalidClusterSize);
  Require(session.Finish());

  LaunchShape shape = Clusters(4);
  shape.block = {64};
  CHECK(Require(session.kernel("ClusterRank").MaxActiveClusters(shape)) > 132);
  CHECK(Require(session.kernel("SmIds").MaxPotentialClusterSize(shape)) == 8);
}

TEST_CASE("a cluster that no device has is refused, also where the product of its sides is 0") {
  TestDevice device;
  TestSession session(device, 0);
  LaunchShape shape;
  shape.grid = shape.block = {1};
  for (const char* sides : {"1073741824, 1073741824, 16", "4294967295, 1, 1", "4, 4, 1"}) {
    const std::unique_ptr<Library> library =
        session.Load(std::string(".version 8.0\n.target sm_90\n.address_size 64\n"
                                 ".visible .entry Wide() .reqnctapercluster ") +
                     sides + " { ret; }\n");
    Kernel& kernel = *Require(library->GetKernel("Wide"));
    INFO(sides);
    // A side of 2^32 - 1 blocks is -1 as an attribute, and so none.
    const bool refused = std::string_view(sides).substr(0, 4) != "4294";
    CHECK((CudaResultOf(kernel.MaxActiveClusters(shape).status()) ==
           kCudaErrorInvalidClusterSize) == refused);
  }
  shape.cluster = {1u << 22, 1u << 21, 1u << 21};
  CHECK(CudaResultOf(session.kernel("ClusterRank").MaxActiveClusters(shape).status()) ==
        kCudaErrorInvalidClusterSize);
}

TEST_CASE("the occupancy equals that of the toolkit") {
  TestDevice device;
  TestSession session(device, 0);
  Kernel& kernel = session.kernel("Nothing");
  CHECK(Require(kernel.MaxActiveBlocks({1024, 0, 0})) == 2);
  CHECK(Require(kernel.MaxActiveBlocks({32, 0, 0})) == 32);
  CHECK(Require(kernel.MaxActiveBlocks({256, 48 * 1024, 0})) == 4);
  CHECK(Require(kernel.MaxActiveBlocks({256, 49 * 1024, 0})) == 0);
  CHECK_FALSE(kernel.MaxActiveBlocks({0, 0, 0}).ok());
  CHECK(Require(kernel.AvailableDynamicShared(2, 256)) == 48 * 1024);
}

TEST_CASE("blocks run on the SMs of their partition") {
  TestDevice device;
  const auto partition = Require(device->CreatePartition(16, 8));
  TestSession session(device, 0, partition.get());
  unsigned* sms = session.Allocate<unsigned>(20);
  Require(session.Launch("SmIds", {20}, {32}, Parameters(sms)));
  Require(session.Finish());
  for (unsigned block = 0; block < 20; ++block) CHECK(sms[block] == 16 + block % 8);
}

TEST_CASE("printed text arrives in the order of blocks and kernels, before the fence") {
  TestDevice device;
  TestSession session(device, 0);
  std::string expected;
  for (int round = 0; round < 3; ++round) {
    Require(session.Launch("Print", {20}, {2}));
    for (int block = 0; block < 20; ++block) {
      for (int thread = 0; thread < 2; ++thread) {
        expected += "block " + std::to_string(block) + " thread " + std::to_string(thread) + "\n";
      }
    }
    Require(session.Finish());
    REQUIRE(session.output().printed() == expected);
  }
}

TEST_CASE("text that a kernel printed before its fault arrives before the fault is known") {
  TestDevice device;
  TestSession session(device, 0);
  Require(session.Launch("PrintAndTrap", {1}, {1}));
  CHECK(CudaResultOf(session.Finish()) == kCudaErrorLaunchFailed);
  CHECK(session.output().printed() == "before\n");
}

TEST_CASE("the text of an assertion is for standard error") {
  TestDevice device;
  TestSession session(device, 0);
  Require(session.Launch("Print", {1}, {1}));
  Require(session.Launch("FailAssertion", {1}, {1}));
  CHECK(CudaResultOf(session.Finish()) == kCudaErrorAssert);
  CHECK(session.output().printed() == "block 0 thread 0\n");
  CHECK(session.output().errors().find("Assertion `blockDim.x == 2` failed.\n") !=
        std::string::npos);
}

TEST_CASE("a launch whose stacks do not fit into memory is refused") {
  TestDevice device;
  TestSession session(device, 0);
  int* out = session.Allocate<int>(1024);
  Require(device->SetLimit(session.space(), CU_LIMIT_STACK_SIZE, 512 << 10));
  Require(
      session.Launch("Dynamic", {100}, {1024}, Parameters(out), {.dynamic_shared_bytes = 4096}));
  Require(session.Finish());
  CHECK(CudaResultOf(session.Launch("GridSum", {100}, {1024}, Parameters(out, out),
                                    Cooperative())) == kCudaErrorLaunchOutOfResources);
  CHECK(CudaResultOf(session.Launch("ClusterRank", {8}, {1024}, Parameters(out), Clusters(8))) ==
        kCudaErrorLaunchOutOfResources);
}

TEST_CASE("kernels allocate from the session's heap") {
  TestDevice device;
  TestSession session(device, 0);
  int** out = session.Allocate<int*>(64);
  Require(session.Launch("Allocate", {1}, {64}, Parameters(out)));
  Require(session.Finish());
  for (int i = 0; i < 64; ++i) {
    REQUIRE(session.space().Contains(Address(out[i]), 64));
    REQUIRE(out[i][15] == i);
  }
  CHECK_FALSE(device->SetLimit(session.space(), CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20).ok());
  // A heap in use says nothing about the heaps of other sessions.
  TestSession neighbour(device, 1);
  CHECK(device->SetLimit(neighbour.space(), CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20).ok());
}

TEST_CASE("limits are set within their bounds") {
  TestDevice device;
  TestSession session(device, 0);
  CHECK(Require(device->SetLimit(session.space(), CU_LIMIT_STACK_SIZE, 4000)).value == 4000);
  CHECK(Require(device->SetLimit(session.space(), CU_LIMIT_STACK_SIZE, 4001)).value == 4016);
  CHECK_FALSE(device->SetLimit(session.space(), CU_LIMIT_STACK_SIZE, 1ull << 40).ok());
  const Device::Limit heap =
      Require(device->SetLimit(session.space(), CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20));
  CHECK(heap.value == 1 << 20);
  CHECK(heap.in_force == 1 << 20);
  CHECK_FALSE(device->SetLimit(session.space(), CU_LIMIT_CIG_ENABLED, 1).ok());
  CHECK_FALSE(device->SetLimit(session.space(), -1, 1).ok());
}

TEST_CASE("a kernel that never ends delays no other work, and ends when its session is abandoned") {
  TestDevice device({.worker_threads = 1});
  auto endless = std::make_unique<TestSession>(device, 0);
  TestSession session(device, 1);
  int* flag = endless->Allocate<int>(1);
  Require(endless->Launch("WaitForFlag", {300}, {64}, Parameters(flag)));
  int* out = session.Allocate<int>(1);
  for (int i = 1; i <= 5; ++i) {
    Require(session.Launch("Store", {1}, {1}, Parameters(out, i)));
    Require(session.Finish());
    CHECK(*out == i);
  }
  endless.reset();  // abandons the session and waits for its work
  TestSession next(device, 0);
  Require(next.Launch("Nothing", {1}, {1}));
  Require(next.Finish());
}

TEST_CASE("the largest grid that CUDA allows ends when its session is abandoned") {
  TestDevice device;
  TestSession session(device, 0);
  Require(session.Launch("Nothing", {2147483647, 65535, 65535}, {1}));
  Require(
      session.Launch("SmIds", {2147483647, 65535, 65535}, {1}, Parameters(nullptr), Clusters(1)));
}

TEST_CASE("launches of random shapes are run or refused") {
  TestDevice device;
  TestSession session(device, 0);
  std::mt19937 generator(5);
  const auto random = [&] { return static_cast<uint32_t>(generator()); };
  const auto number = [&]() -> uint32_t {
    switch (random() % 6) {
      case 0:
        return 0;
      case 1:
        return random();
      case 2:
        return UINT32_MAX;
      default:
        return 1 + random() % 4;
    }
  };
  for (int round = 0; round < 2000; ++round) {
    LaunchShape shape;
    shape.grid = {1 + random() % 64, 1 + random() % 4, 1};
    shape.block = {1 + random() % 32, 1 + random() % 4, 1};
    uint32_t* const fields[] = {&shape.grid.x,    &shape.grid.y,
                                &shape.grid.z,    &shape.block.x,
                                &shape.block.y,   &shape.block.z,
                                &shape.cluster.x, &shape.cluster.y,
                                &shape.cluster.z, &shape.dynamic_shared_bytes};
    for (int change = random() % 4; change > 0; --change) *fields[random() % 10] = number();
    // Valid, but too long for a test.
    if (uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z > 100'000) shape.grid.y = 0;
    shape.cooperative = random() % 4 == 0;
    const absl::Status status =
        session.queue().Launch(session.space(), session.kernel("Nothing"), shape, {});
    if (!status.ok()) REQUIRE(CudaResultOf(status) != kCudaErrorUnknown);
  }
  Require(session.Finish());
}

TEST_CASE("a running kernel sees the host's writes") {
  TestDevice device;
  TestSession session(device, 0);
  int* flag = session.Allocate<int>(1);
  Require(session.Launch("WaitForFlag", {4}, {64}, Parameters(flag)));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::atomic_ref<int>(*flag).store(1);
  Require(session.Finish());
}

TEST_CASE("copies and fills of every shape reach the session's memory and no other") {
  TestDevice device;
  TestSession session(device, 0), other(device, 1);
  uint8_t* memory = session.Allocate<uint8_t>(4096);
  uint8_t* target = session.Allocate<uint8_t>(4096);
  uint8_t* theirs = other.Allocate<uint8_t>(4096);
  for (int i = 0; i < 4096; ++i) memory[i] = static_cast<uint8_t>(i * 7);

  CopyRequest copy;
  copy.source = Address(memory) + 5;
  copy.destination = Address(target) + 3;
  copy.width = 10;
  copy.height = 4;
  copy.depth = 3;
  copy.source_pitch = 100;
  copy.source_slice = 1000;
  copy.destination_pitch = 16;
  copy.destination_slice = 64;
  Require(session.queue().Copy(session.space(), copy));
  Require(session.Finish());
  for (int z = 0; z < 3; ++z) {
    for (int y = 0; y < 4; ++y) {
      for (int x = 0; x < 10; ++x)
        REQUIRE(target[3 + z * 64 + y * 16 + x] == memory[5 + z * 1000 + y * 100 + x]);
    }
  }
  CHECK(target[13] == 0);

  copy.destination = Address(theirs);
  CHECK(CudaResultOf(session.queue().Copy(session.space(), copy)) == kCudaErrorInvalidValue);
  copy.destination = Address(target);
  copy.source_slice = UINT64_MAX / 2;
  CHECK(CudaResultOf(session.queue().Copy(session.space(), copy)) == kCudaErrorInvalidValue);
  copy.source_slice = 1000;
  copy.height = UINT64_MAX;
  CHECK(CudaResultOf(session.queue().Copy(session.space(), copy)) == kCudaErrorInvalidValue);
  copy.height = 0;
  CHECK(session.queue().Copy(session.space(), copy).ok());

  FillRequest fill;
  fill.address = Address(target) + 8;
  fill.element_bytes = 4;
  fill.value = 0x01020304;
  fill.width = 3;
  fill.height = 2;
  fill.pitch = 32;
  Require(session.queue().Fill(session.space(), fill));
  Require(session.Finish());
  CHECK(std::memcmp(target + 8, "\4\3\2\1\4\3\2\1\4\3\2\1", 12) == 0);
  CHECK(std::memcmp(target + 40, "\4\3\2\1\4\3\2\1\4\3\2\1", 12) == 0);
  fill.address += 1;
  CHECK(CudaResultOf(session.queue().Fill(session.space(), fill)) == kCudaErrorInvalidValue);
  fill.address = Address(theirs);
  CHECK(CudaResultOf(session.queue().Fill(session.space(), fill)) == kCudaErrorInvalidValue);
  fill.address = Address(target);
  fill.element_bytes = 3;
  CHECK(CudaResultOf(session.queue().Fill(session.space(), fill)) == kCudaErrorInvalidValue);
}

TEST_CASE("a queued copy does not access host memory that was unregistered before its turn") {
  TestDevice device;
  TestSession session(device, 0);
  uint8_t* memory = session.Allocate<uint8_t>(4096);
  void* host = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(host != MAP_FAILED);
  Require(session.space().RegisterHost(host, 4096));
  std::atomic<uint64_t> gate{0};
  Require(session.queue().WaitFence(session.space(), &gate, 1));
  CopyRequest copy;
  copy.source = Address(host);
  copy.destination = Address(memory);
  copy.width = 4096;
  Require(session.queue().Copy(session.space(), copy));
  Require(session.space().UnregisterHost(host));
  munmap(host, 4096);
  gate = 1;
  CHECK(CudaResultOf(session.Finish()) == kCudaErrorIllegalAddress);
}

TEST_CASE("host memory can be unregistered while a kernel that never ends uses it") {
  TestDevice device;
  TestSession session(device, 0);
  void* host = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(host != MAP_FAILED);
  Require(session.space().RegisterHost(host, 4096));
  Require(session.Launch("WaitForFlag", {20}, {64}, Parameters(host)));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  Require(session.space().UnregisterHost(host));
  munmap(host, 4096);
  CHECK(CudaResultOf(session.Finish()) == kCudaErrorIllegalAddress);
}

bool AllZero(const uint8_t* memory, uint64_t bytes) {
  return memory[0] == 0 && std::memcmp(memory, memory + 1, bytes - 1) == 0;
}

TEST_CASE("memory that is unmapped while a fill or copy writes to it is zero afterwards") {
  TestDevice device;
  constexpr uint64_t kBytes = 32 << 20;
  for (int round = 0; round < 20; ++round) {
    TestSession here(device, 0), there(device, 1);
    const bool fills = round % 2 == 0;
    TestSession& target = fills ? here : there;
    uint8_t* const memory = target.Allocate<uint8_t>(kBytes);
    if (fills) {
      FillRequest fill;
      fill.address = Address(memory);
      fill.width = kBytes;
      fill.value = 1;
      Require(here.queue().Fill(here.space(), fill));
    } else {
      uint8_t* const ones = here.Allocate<uint8_t>(kBytes);
      std::memset(ones, 1, kBytes);
      CopyRequest copy;
      copy.source = Address(ones);
      copy.destination = Address(memory);
      copy.destination_space = &there.space();
      copy.width = kBytes;
      Require(here.queue().Copy(here.space(), copy));
    }
    while (Look(memory) == 0) std::this_thread::yield();
    Require(target.space().Unmap(Address(memory), kBytes));
    REQUIRE(AllZero(memory, kBytes));
  }
}

TEST_CASE("large copies are complete, and their virtual time grows with their bytes") {
  TestDevice device;
  TestSession session(device, 0);
  constexpr uint64_t kBytes = 20 << 20;
  uint8_t* from = session.Allocate<uint8_t>(kBytes);
  uint8_t* to = session.Allocate<uint8_t>(kBytes);
  for (uint64_t i = 0; i < kBytes; i += 1000) from[i] = static_cast<uint8_t>(i >> 8) | 1;
  const auto start = Require(device->CreateMarker(true)), end = Require(device->CreateMarker(true));
  Require(session.queue().Record(*start));
  CopyRequest copy;
  copy.source = Address(from);
  copy.destination = Address(to);
  copy.width = kBytes;
  Require(session.queue().Copy(session.space(), copy));
  Require(session.queue().Record(*end));
  Require(session.Finish());
  CHECK(std::memcmp(from, to, kBytes) == 0);
  CHECK(Require(device->ElapsedMilliseconds(*start, *end)) ==
        Approx(0.0012 + kBytes / 2e9).epsilon(1e-6));
}

TEST_CASE("markers measure virtual time, which is the same every time") {
  std::vector<float> measured;
  for (const int workers : {1, 3}) {
    TestDevice device({.worker_threads = workers});
    TestSession first(device, 0), second(device, 1);
    float* out = first.Allocate<float>(1 << 20);
    float* theirs = second.Allocate<float>(1 << 20);
    std::vector<std::unique_ptr<Marker>> markers;
    for (int i = 0; i < 4; ++i) markers.push_back(Require(device->CreateMarker(true)));
    Require(first.queue().Record(*markers[0]));
    Require(first.Launch("Work", {500}, {256}, Parameters(out, 50)));
    Require(second.Launch("Work", {1000}, {128}, Parameters(theirs, 30)));
    Require(first.queue().Record(*markers[1]));
    Require(first.Launch("Work", {7}, {1024}, Parameters(out, 20)));
    Require(first.queue().Record(*markers[2]));
    Require(second.queue().Wait(*markers[2]));
    Require(second.queue().Record(*markers[3]));
    Require(first.Finish());
    Require(second.Finish());
    for (int i = 1; i < 4; ++i) {
      const float elapsed = Require(device->ElapsedMilliseconds(*markers[i - 1], *markers[i]));
      if (i < 3) CHECK(elapsed > 0);
      measured.push_back(elapsed);
    }
  }
  CHECK(measured[0] == measured[3]);
  CHECK(measured[1] == measured[4]);
  CHECK(measured[2] == measured[5]);
}

TEST_CASE("urgent work stops ordinary work in virtual time, and both make progress") {
  TestDevice device;
  REQUIRE(device->urgent() != nullptr);
  CHECK(device->urgent()->sm_count() == 132);
  CHECK(device->properties().preemption.available);
  CHECK(device->properties().preemption.latency_ns == 190'000);
  TestSession ordinary(device, 0), urgent(device, 1, device->urgent()), endless(device, 2);
  float* out = ordinary.Allocate<float>(1 << 20);
  float* theirs = urgent.Allocate<float>(1 << 20);
  const auto time = [&](const std::function<void()>& between) {
    const auto begin = Require(device->CreateMarker(true)),
               end = Require(device->CreateMarker(true));
    Require(ordinary.queue().Record(*begin));
    Require(ordinary.Launch("Work", {1000}, {256}, Parameters(out, 50)));
    between();
    Require(ordinary.queue().Record(*end));
    Require(ordinary.Finish());
    Require(urgent.Finish());
    return Require(device->ElapsedMilliseconds(*begin, *end));
  };
  const float alone = time([] {});
  const auto begin = Require(device->CreateMarker(true)), end = Require(device->CreateMarker(true));
  const float stopped = time([&] {
    Require(urgent.queue().Record(*begin));
    Require(urgent.Launch("Work", {8}, {256}, Parameters(theirs, 50)));
    Require(urgent.queue().Record(*end));
  });
  const float turn = Require(device->ElapsedMilliseconds(*begin, *end));
  CHECK(turn > 0.190f);
  CHECK(stopped == Approx(alone + turn - 0.0015 + 0.050).epsilon(1e-5));
  CHECK(std::memcmp(out, theirs, 8 * 256 * sizeof(float)) == 0);

  int* flag = endless.Allocate<int>(1);
  Require(endless.Launch("WaitForFlag", {2000}, {64}, Parameters(flag)));
  Require(urgent.Launch("Work", {8}, {256}, Parameters(theirs, 50)));
  Require(urgent.Finish());
  Set(flag, 1);
  Require(endless.Finish());
}

TEST_CASE("a software GPU can be without preemption, and says so") {
  TestDevice device({.preemption = false});
  CHECK(device->urgent() == nullptr);
  CHECK_FALSE(device->properties().preemption.available);
  CHECK_FALSE(device->properties().preemption.reason.empty());
}

TEST_CASE("the same kernel takes longer on fewer SMs") {
  TestDevice device;
  const auto half = Require(device->CreatePartition(0, 64)),
             small = Require(device->CreatePartition(0, 8));
  const auto time_on = [&](Partition& partition) {
    TestSession session(device, 0, &partition);
    float* out = session.Allocate<float>(1 << 20);
    const auto start = Require(device->CreateMarker(true)),
               end = Require(device->CreateMarker(true));
    Require(session.queue().Record(*start));
    Require(session.Launch("Work", {1024}, {256}, Parameters(out, 100)));
    Require(session.queue().Record(*end));
    Require(session.Finish());
    return Require(device->ElapsedMilliseconds(*start, *end));
  };
  const float on_all = time_on(device->whole()), on_half = time_on(*half), on_few = time_on(*small);
  CHECK(on_all < on_half);
  CHECK(on_half < on_few);
  CHECK(on_few > 4 * on_half);
}

TEST_CASE("the error of markers that cannot be measured gives the reason") {
  TestDevice device;
  TestSession session(device, 0);
  const auto timed = Require(device->CreateMarker(true)),
             untimed = Require(device->CreateMarker(false));
  CHECK(absl::IsFailedPrecondition(device->ElapsedMilliseconds(*timed, *timed).status()));
  std::atomic<uint64_t> gate{0};
  Require(session.queue().WaitFence(session.space(), &gate, 1));
  Require(session.queue().Record(*timed));
  Require(session.queue().Record(*untimed));
  CHECK(absl::IsUnavailable(device->ElapsedMilliseconds(*timed, *timed).status()));
  gate = 1;
  Require(session.Finish());
  CHECK(Require(device->ElapsedMilliseconds(*timed, *timed)) == 0);
  CHECK(absl::IsFailedPrecondition(device->ElapsedMilliseconds(*untimed, *timed).status()));
}

TEST_CASE("a tiled matrix product is right") {
  TestDevice device;
  TestSession session(device, 0);
  constexpr int kSize = 128;
  float* a = session.Allocate<float>(kSize * kSize);
  float* b = session.Allocate<float>(kSize * kSize);
  float* c = session.Allocate<float>(kSize * kSize);
  for (int i = 0; i < kSize * kSize; ++i) a[i] = i % 13 - 6, b[i] = i % 7 - 3;
  Require(session.Launch("MatMul", {kSize / 16, kSize / 16}, {16, 16}, Parameters(a, b, c, kSize)));
  Require(session.Finish());
  for (int row = 0; row < kSize; row += 5) {
    for (int column = 0; column < kSize; column += 3) {
      float sum = 0;
      for (int k = 0; k < kSize; ++k) sum += a[row * kSize + k] * b[k * kSize + column];
      REQUIRE(c[row * kSize + column] == sum);
    }
  }
}

}  // namespace detshare::soft
