#include "server/services/duration_profiles.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {
namespace {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/detshare-profiles-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

const OperationKey kKey{1, 2};

TEST_CASE("The next daemon knows what one learned about its devices") {
  const Folder folder;
  const std::string directory = folder.path + "/profiles";
  FakeDevice one, two;
  {
    DurationTable first(16), second(16);
    DurationProfiles profiles(directory, {{&one, &first}, {&two, &second}});
    first.FindOrAdd(kKey, {16, 0})->Add(0, 1000, false);
    second.FindOrAdd(kKey, {16, 0})->Add(0, 9000, false);
  }
  DurationTable first(16), second(16);
  const DurationProfiles profiles(directory, {{&one, &first}, {&two, &second}});
  CHECK(first.FindOrAdd(kKey, {16, 0})->Estimate(0) == 1000);
  CHECK(second.FindOrAdd(kKey, {16, 0})->Estimate(0) == 9000);
}

TEST_CASE("Profiles are written while the daemon runs") {
  const Folder folder;
  FakeDevice device;
  DurationTable table(16);
  const DurationProfiles profiles(folder.path, {{&device, &table}}, std::chrono::milliseconds(1));
  table.FindOrAdd(kKey, {16, 0})->Add(0, 1000, false);
  while (!std::filesystem::exists(folder.path + "/device0.durations")) std::this_thread::yield();
}

TEST_CASE("A profile has what was learned later about operations that were known before") {
  const Folder folder;
  FakeDevice device;
  {
    DurationTable table(16);
    const DurationProfiles profiles(folder.path, {{&device, &table}});
    table.FindOrAdd(kKey, {16, 0})->Add(0, 9000, /*contended=*/true);
  }
  {
    DurationTable table(16);
    const DurationProfiles profiles(folder.path, {{&device, &table}});
    table.FindOrAdd(kKey, {16, 0})->Add(0, 1000, /*contended=*/false);
  }
  DurationTable table(16);
  const DurationProfiles profiles(folder.path, {{&device, &table}});
  CHECK(table.FindOrAdd(kKey, {16, 0})->Estimate(0) == 1000);
}

TEST_CASE("A profile of which nothing changed is not written again") {
  const Folder folder;
  FakeDevice device;
  {
    DurationTable table(16);
    const DurationProfiles profiles(folder.path, {{&device, &table}});
    table.FindOrAdd(kKey, {16, 0})->Add(0, 1000, false);
  }
  DurationTable table(16);
  { const DurationProfiles profiles(folder.path, {{&device, &table}}); }
  const std::string path = folder.path + "/device0.durations";
  DurationTable unused(16);
  {
    const DurationProfiles profiles(folder.path, {{&device, &unused}});
    std::filesystem::remove(path);
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("A damaged profile is replaced, and an unwritable folder stops no session") {
  const Folder folder;
  FakeDevice device;
  const std::string path = folder.path + "/device0.durations";
  std::ofstream(path) << "nonsense";
  {
    DurationTable table(16);
    const DurationProfiles profiles(folder.path, {{&device, &table}});
    CHECK(table.size() == 0);
    table.FindOrAdd(kKey, {16, 0})->Add(0, 1000, false);
  }
  DurationTable table(16);
  { const DurationProfiles profiles(folder.path, {{&device, &table}}); }
  CHECK(table.size() == 1);
  const DurationProfiles nowhere("/proc/no-such-folder", {{&device, &table}});
}

TEST_CASE(
    "Processes at the same time keep what each of them learns, and learn it from each other") {
  const Folder folder;
  FakeDevice device;
  const OperationKey of_first{1, 1}, of_second{2, 2}, of_both{3, 3};
  {
    DurationTable before(16);
    const DurationProfiles profiles(folder.path, {{&device, &before}});
    before.FindOrAdd(of_both, {16, 0})->Add(0, 9000, /*contended=*/true);
  }
  DurationTable first(16), second(16);
  auto second_profiles = std::make_unique<DurationProfiles>(
      folder.path, std::vector<DurationProfiles::Entry>{{&device, &second}},
      std::chrono::milliseconds(1));
  second.FindOrAdd(of_second, {16, 0})->Add(0, 2000, false);
  {
    // It has begun before the other one wrote, and ends after that.
    const DurationProfiles first_profiles(folder.path, {{&device, &first}});
    first.FindOrAdd(of_first, {16, 0})->Add(0, 1000, false);
    first.FindOrAdd(of_both, {16, 0})->Add(0, 3000, false);
  }
  // It learns of the other one's operation without having used it.
  while (second.size() < 3) std::this_thread::yield();
  CHECK(second.FindOrAdd(of_first, {16, 0})->Estimate(0) == 1000);
  second_profiles.reset();

  DurationTable later(16);
  const DurationProfiles profiles(folder.path, {{&device, &later}});
  CHECK(later.FindOrAdd(of_first, {16, 0})->Estimate(0) == 1000);
  CHECK(later.FindOrAdd(of_second, {16, 0})->Estimate(0) == 2000);
  CHECK(later.FindOrAdd(of_both, {16, 0})->Estimate(0) == 3000);
}

}  // namespace
}  // namespace detshare
