// A daemon in the test's own process, with software GPUs.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/backends/soft/soft_device.h"
#include "server/backends/soft/soft_managed_memory.h"
#include "tests/server/daemon_fixture.h"

namespace detshare {

struct SoftDaemon {
  // With `managed` bytes, sessions get managed memory whose pages move: that many in all.
  explicit SoftDaemon(const std::function<void(Daemon::Options&)>& change = {},
                      int device_count = 1, uint64_t managed = 0) {
    soft::SoftDeviceOptions soft;
    soft.sm_count = 16;
    soft.sm_group = 2;
    soft.total_memory = 64 << 20;
    soft.worker_threads = 2;
    soft.log = [](std::string_view) {};
    if (managed != 0)
      soft.managed_memory = *soft::SoftManagedMemory::Create(TestManagedWindow(), managed);
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < device_count; ++i) {
      devices.push_back(*soft::CreateSoftDevice(soft));
    }
    Daemon::Options options;
    options.socket = socket();
    options.socket_mode = 0666;
    options.backend = "soft";
    options.server.windows = TestWindows();
    options.server.region.staging_bytes = 1 << 20;
    if (change) change(options);
    auto started = Daemon::Start(std::move(devices), options);
    REQUIRE(started.ok());
    daemon = *std::move(started);
  }
  std::string socket() const { return directory.path + "/d.sock"; }

  TestDirectory directory;
  std::unique_ptr<Daemon> daemon;
};

}  // namespace detshare
