#include "server/telemetry/host_query_cache.h"

#include <catch2/catch.hpp>

#include "proto/nvml/host_functions.h"
#include "proto/nvml/nvml_types.h"

namespace detshare {
namespace {

using std::chrono::milliseconds;

// Counts how often it is asked.
class CountingHost final : public HostTelemetry {
 public:
  HostResult Ask(const HostQuestion&) override {
    ++asked;
    return Packed(result, asked);
  }
  int result = NVML_SUCCESS;
  unsigned asked = 0;
};

struct Fixture {
  std::shared_ptr<CountingHost> host = std::make_shared<CountingHost>();
  HostQueryCache cache{host, 2};
  HostQueryCache::Time now = HostQueryCache::Time() + std::chrono::hours(1);
};

constexpr char kLive[] = "nvmlDeviceGetPowerUsage", kFixed[] = "nvmlDeviceGetNumGpuCores";

TEST_CASE("A value that changes is asked for again when it is old") {
  Fixture f;
  const HostResult first = f.cache.Ask(kLive, 0, -1, {}, f.now);
  CHECK(f.cache.Ask(kLive, 0, -1, {}, f.now + milliseconds(49)).data == first.data);
  CHECK(f.host->asked == 1);
  CHECK(f.cache.Ask(kLive, 0, -1, {}, f.now + milliseconds(50)).data != first.data);
  CHECK(f.host->asked == 2);
}

TEST_CASE("A value that never changes is asked for once, unless that failed") {
  Fixture f;
  f.host->result = NVML_ERROR_UNKNOWN;
  CHECK(f.cache.Ask(kFixed, 0, -1, {}, f.now).result == NVML_ERROR_UNKNOWN);
  f.host->result = NVML_SUCCESS;
  f.now += milliseconds(60);
  CHECK(f.cache.Ask(kFixed, 0, -1, {}, f.now).result == NVML_SUCCESS);
  f.cache.Ask(kFixed, 0, -1, {}, f.now + std::chrono::hours(24));
  CHECK(f.host->asked == 2);
}

TEST_CASE("Replies for other devices and arguments are different") {
  Fixture f;
  f.cache.Ask("nvmlDeviceGetClockInfo", 0, -1, {0}, f.now);
  f.cache.Ask("nvmlDeviceGetClockInfo", 0, -1, {1}, f.now);
  f.cache.Ask("nvmlDeviceGetClockInfo", 1, -1, {1}, f.now);
  CHECK(f.host->asked == 3);
}

TEST_CASE("The host is not asked for functions that do not exist") {
  Fixture f;
  CHECK(f.cache.Ask("nvmlDeviceSetPowerManagementLimit", 0, -1, {1}, f.now).result ==
        NVML_ERROR_FUNCTION_NOT_FOUND);
  CHECK(f.cache.Ask("", 0, -1, {}, f.now).result == NVML_ERROR_FUNCTION_NOT_FOUND);
  for (const int device : {-2, -1, 2, 1 << 30})
    CHECK(f.cache.Ask(kLive, device, -1, {}, f.now).result == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(f.cache.Ask(kLive, 0, 1, {}, f.now).result == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(f.cache.Ask(kLive, 0, -1, {7}, f.now).result == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(f.cache.Ask("nvmlDeviceGetClockInfo", 0, -1, {}, f.now).result ==
        NVML_ERROR_INVALID_ARGUMENT);
  CHECK(f.cache.Ask("nvmlDeviceGetP2PStatus", 0, -1, {0}, f.now).result ==
        NVML_ERROR_INVALID_ARGUMENT);
  CHECK(f.cache.Ask("nvmlSystemGetDriverVersion", 0, -1, {}, f.now).result ==
        NVML_ERROR_INVALID_ARGUMENT);
  CHECK(f.host->asked == 0);
}

TEST_CASE("Without a host nothing is supported") {
  HostQueryCache cache(nullptr, 1);
  CHECK(cache.Ask(kLive, 0, -1, {}, {}).result == NVML_ERROR_NOT_SUPPORTED);
}

TEST_CASE("The list of host functions is in the order in which it is searched") {
  const auto begin = std::begin(nvml::kHostFunctions), end = std::end(nvml::kHostFunctions);
  CHECK(std::is_sorted(begin, end, [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (auto function = begin; function != end; ++function)
    CHECK(nvml::FindHostFunction(function->name) == function);
  CHECK(nvml::FindHostFunction("nvmlZ") == nullptr);
}

}  // namespace
}  // namespace detshare
