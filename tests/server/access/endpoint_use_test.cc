#include "server/access/endpoint_use.h"

#include <catch2/catch.hpp>
#include <vector>

namespace detshare {
namespace {

TEST_CASE("Uses add up, and the peak is the highest of them") {
  EndpointUse use;
  use.Add({.sessions = 1, .gpu_time = 5, .peak_memory = 100});
  use.Add({.sessions = 2, .gpu_time = 7, .peak_memory = 40});
  CHECK(use.total().sessions == 3);
  CHECK(use.total().gpu_time == 12);
  CHECK(use.total().peak_memory == 100);
}

TEST_CASE("What the other process cannot take now comes again with what is used later") {
  EndpointUse use;
  use.Add({.gpu_time = 1000});  // nobody wants it yet
  bool takes = false;
  std::vector<int64_t> taken;
  use.Forward([&](const EndpointUse::Figures& more) {
    if (takes) taken.push_back(more.gpu_time);
    return takes;
  });
  use.Add({.gpu_time = 1});
  use.Add({.gpu_time = 2});
  takes = true;
  use.Add({.gpu_time = 4});
  use.Add({.gpu_time = 8});
  CHECK(taken == std::vector<int64_t>{7, 8});
  CHECK(use.total().gpu_time == 1015);
}

}  // namespace
}  // namespace detshare
