#include "server/sessions/device_names.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace detshare {
namespace {

using Ids = std::vector<std::string>;
using Chosen = std::vector<int>;

const DeviceNames kNames({"GPU-00aa0000-0000-0000-0000-000000000000",
                          "GPU-00bb0000-0000-0000-0000-000000000000",
                          "GPU-11cc0000-0000-0000-0000-000000000000"});

TEST_CASE("Devices are named by positions and by the beginnings of their UUIDs") {
  CHECK(*kNames.Choose({}) == Chosen{0, 1, 2});
  CHECK(*kNames.Choose({"2", "0"}) == Chosen{2, 0});
  CHECK(*kNames.Choose({"GPU-11", "GPU-00BB0000"}) == Chosen{2, 1});
  CHECK(*kNames.Choose({"00aa"}) == Chosen{0});
}

TEST_CASE("An id that names no device, several, or one again is refused") {
  for (const Ids& ids : {Ids{"3"}, Ids{"-1"}, Ids{""}, Ids{"GPU-"}, Ids{"GPU-00"}, Ids{"GPU-ff"},
                         Ids{"0", "0"}, Ids{"0", "00aa"}})
    CHECK(kNames.Choose(ids).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Behind an endpoint, positions count among the devices that it shows") {
  TenantEndpoint endpoint;
  endpoint.device_ids = {"GPU-11cc0000-0000-0000-0000-000000000000",
                         "GPU-00aa0000-0000-0000-0000-000000000000"};
  CHECK(*kNames.Choose({}, &endpoint) == Chosen{2, 0});
  CHECK(*kNames.Choose({"1"}, &endpoint) == Chosen{0});
  CHECK_FALSE(kNames.Choose({"GPU-00bb"}, &endpoint).ok());
  CHECK_FALSE(kNames.Choose({"2"}, &endpoint).ok());
}

TEST_CASE("An endpoint that shows a device which is not there gives none") {
  TenantEndpoint endpoint;
  endpoint.device_ids = {"GPU-00aa0000-0000-0000-0000-000000000000",
                         "GPU-ff000000-0000-0000-0000-000000000000"};
  for (const Ids& ids : {Ids{}, Ids{"0"}, Ids{"1"}, Ids{"GPU-ff"}})
    CHECK(kNames.Choose(ids, &endpoint).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("The first unknown id ends the list of visible devices") {
  const Chosen granted = {2, 0};
  CHECK(*kNames.ChooseVisible({}, granted) == granted);
  CHECK(*kNames.ChooseVisible({"1", "0"}, granted) == Chosen{0, 2});
  CHECK(*kNames.ChooseVisible({"GPU-00", "7", "0"}, granted) == Chosen{0});
  CHECK(*kNames.ChooseVisible({"0", "GPU-00bb"}, granted) == Chosen{2});
  CHECK(*kNames.ChooseVisible({"0", "0"}, granted) == Chosen{2});
  CHECK(kNames.ChooseVisible({"2", "0"}, granted).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace detshare
