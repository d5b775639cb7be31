#include "server/services/known_devices.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace detshare {
namespace {

using std::chrono::milliseconds;

proto::Status OneDevice(const std::string& name) {
  proto::Status status;
  status.set_backend("soft");
  proto::DeviceStatus* const device = status.add_devices();
  device->set_name(name);
  device->set_state("ok");
  device->set_used_memory(5);
  device->set_beside_native(true);
  device->add_partitions()->set_sm_count(8);
  return status;
}

proto::Status Known(const KnownDevices& devices) {
  proto::Status status;
  devices.AddTo(&status);
  return status;
}

bool Comes(const std::function<bool()>& done) {
  for (int i = 0; i < 20'000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

constexpr KnownDevices::Pauses kShort{milliseconds(1), milliseconds(4)};

TEST_CASE("Devices are known without an engine, and nobody uses them") {
  KnownDevices devices([](const std::atomic<bool>&) { return OneDevice("asked"); }, kShort);
  devices.Refresh();
  REQUIRE(Comes([&] { return Known(devices).devices_size() == 1; }));
  const proto::Status status = Known(devices);
  CHECK(status.backend() == "soft");
  CHECK(status.devices(0).name() == "asked");
  CHECK(status.devices(0).state() == "ok");
  CHECK(status.devices(0).used_memory() == 0);
  CHECK(status.devices(0).partitions_size() == 0);
  CHECK_FALSE(status.devices(0).beside_native());
}

TEST_CASE("What engines say of devices replaces the reply, and is not replaced itself") {
  KnownDevices devices([](const std::atomic<bool>&) { return OneDevice("asked"); }, kShort);
  devices.Refresh();
  REQUIRE(Comes([&] { return Known(devices).devices_size() == 1; }));
  devices.Note(OneDevice("used"));
  devices.Note({});  // no engine replies
  CHECK(Known(devices).devices(0).name() == "used");
  proto::Status engines = OneDevice("now");
  devices.AddTo(&engines);
  REQUIRE(engines.devices_size() == 1);
  CHECK(engines.devices(0).name() == "now");
}

TEST_CASE("Without a reply, devices are asked for again, and known ones are not ok meanwhile") {
  std::atomic<int> asked{0};
  std::atomic<bool> works{false};
  KnownDevices devices(
      [&](const std::atomic<bool>&) -> absl::StatusOr<proto::Status> {
        ++asked;
        if (!works) return absl::UnavailableError("no driver");
        return OneDevice("back");
      },
      kShort);
  devices.Refresh();
  REQUIRE(Comes([&] { return asked > 2; }));
  CHECK(Known(devices).devices_size() == 0);
  works = true;
  REQUIRE(Comes([&] { return Known(devices).devices_size() == 1; }));
  works = false;
  devices.Refresh();
  REQUIRE(Comes([&] { return Known(devices).devices(0).state() == "not known: no driver"; }));
  works = true;
  CHECK(Comes([&] { return Known(devices).devices(0).state() == "ok"; }));
}

TEST_CASE("The end does not wait for a reply") {
  std::atomic<bool> waits{false};
  {
    KnownDevices devices(
        [&](const std::atomic<bool>& stop) -> absl::StatusOr<proto::Status> {
          waits = true;
          while (!stop) std::this_thread::yield();
          return absl::CancelledError("stopped");
        },
        kShort);
    devices.Refresh();
    REQUIRE(Comes([&] { return waits.load(); }));
  }
  SUCCEED();
}

TEST_CASE("A tenant's setting names no more devices or SMs than the host has") {
  KnownDevices devices([](const std::atomic<bool>&) { return OneDevice("asked"); }, kShort);
  proto::TenantSetting setting;
  setting.set_name("t");
  setting.set_devices(99);
  CHECK(devices.Check(setting).ok());  // nobody knows yet
  proto::Status status = OneDevice("used");
  status.mutable_devices(0)->set_sm_count(8);
  *status.add_devices() = status.devices(0);
  status.mutable_devices(1)->set_sm_count(132);
  devices.Note(status);
  CHECK(devices.Check(setting).message() ==
        "tenant t: the number of devices is 0 (all) to 2, which this host has");
  setting.set_devices(2);
  setting.set_max_sms(132);
  CHECK(devices.Check(setting).ok());
  setting.set_max_sms(133);
  CHECK(absl::IsInvalidArgument(devices.Check(setting)));
}

}  // namespace
}  // namespace detshare
