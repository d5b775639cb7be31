#include "server/session/ipc_memory.h"

#include <catch2/catch.hpp>
#include <vector>

#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/queue_pool.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/session/session_device.h"
#include "tests/server/backends/soft/test_addresses.h"
#include "tests/server/instant_device.h"
#include "tests/units.h"

namespace detshare {
namespace {

constexpr ContextId kContext = 1;
constexpr uid_t kUser = 1000;

struct Fixture {
  Fixture() {
    SessionDevice& session = devices.emplace_back();
    session.device = &device;
    session.space = *device.CreateAddressSpace(soft::TestBase(0), soft::kTestSpaceBytes);
    session.coroutine = *GpuCoroutine::Create(device, *session.space, queues, parking);
    session.memory = std::make_unique<DeviceMemory>(*session.coroutine);
    executor.Spawn(Allocate(*session.memory, &address, 4 * kMiB));
    REQUIRE(address != 0);
  }
  static Task<void> Allocate(DeviceMemory& memory, DeviceAddress* address, uint64_t bytes) {
    *address = (co_await memory.Allocate(kContext, bytes)).value();
  }
  SessionDevice& session() { return devices.front(); }

  InstantDevice device;
  QueuePool queues{device};
  std::vector<SessionDevice> devices;
  Executor executor;  // destroyed first
  Parking parking{executor};
  DeviceAddress address = 0;
};

TEST_CASE("Memory that is shown stays on the card, and memory that cannot be shown may move") {
  Fixture f;
  REQUIRE(f.session().memory->movable() == 4 * kMiB);
  SharedMemoryObjects full(/*max_tokens=*/0), objects;
  IpcMemory refused(f.devices, full, kUser);
  CHECK(CudaResultOf(refused.Show(f.session(), f.address).status()) == kCudaErrorOutOfMemory);
  CHECK(f.session().memory->movable() == 4 * kMiB);
  IpcMemory shown(f.devices, objects, kUser);
  CHECK(shown.Show(f.session(), f.address).ok());
  CHECK(f.session().memory->movable() == 0);
}

TEST_CASE("Memory that shares its physical memory with other memory is shown at its own place") {
  Fixture f;
  SharedMemoryObjects objects;
  IpcMemory memory(f.devices, objects, kUser);
  DeviceAddress addresses[2] = {};
  uint64_t offsets[2] = {};
  for (int i = 0; i < 2; ++i) {
    f.executor.Spawn(Fixture::Allocate(*f.session().memory, &addresses[i], kMiB / 2));
    const absl::StatusOr<ShareTokenValue> token = memory.Show(f.session(), addresses[i]);
    REQUIRE(token.ok());
    const absl::StatusOr<SharedMemory> shared = objects.Import(kUser, *token);
    REQUIRE(shared.ok());
    CHECK(shared->bytes == kMiB / 2);
    offsets[i] = shared->offset;
  }
  CHECK(addresses[1] - addresses[0] == offsets[1] - offsets[0]);
}

}  // namespace
}  // namespace detshare
