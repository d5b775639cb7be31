// The clock of two time-slice groups, on a stand-in for the driver whose events have known times.
#include "server/backends/cuda/group_clock.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <optional>

#include "coroutine_runtime/status_cuda.h"

namespace detshare::cuda {
namespace {

constexpr int64_t kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;

struct StandInEvent {
  bool urgent = false;
  int64_t time = -1;  // of the device; -1: not recorded
};

// The driver's functions take no object, so its state is global.
struct StandIn final : Clock {
  // Each look at the clock takes some time.
  int64_t NowNanoseconds() const override { return now += look; }

  mutable int64_t now = 0;
  int64_t look = kMicrosecond;
  bool urgent_is_current = false;
  int64_t delay[2] = {20 * kMicrosecond, 150 * kMicrosecond};  // of a recording, by group
  bool clamps = false;  // times between events are never negative
  int records = 0;
  std::deque<StandInEvent> events;
};
StandIn* g_driver = nullptr;

StandInEvent* From(CUevent event) { return reinterpret_cast<StandInEvent*>(event); }

CUresult Record(CUevent event, CUstream) {
  ++g_driver->records;
  if (From(event)->urgent != g_driver->urgent_is_current) return CUDA_ERROR_INVALID_HANDLE;
  From(event)->time = g_driver->now + g_driver->delay[g_driver->urgent_is_current];
  return CUDA_SUCCESS;
}

CUresult Query(CUevent event) {
  return From(event)->time <= g_driver->now ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult ElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  const StandInEvent &from = *From(start), &to = *From(end);
  if (from.urgent != to.urgent || from.time < 0 || to.time < 0) return CUDA_ERROR_INVALID_HANDLE;
  if (from.time > g_driver->now || to.time > g_driver->now) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(static_cast<double>(to.time - from.time) / 1e6);
  if (g_driver->clamps && *milliseconds < 0) *milliseconds = 0;
  return CUDA_SUCCESS;
}

struct Fixture {
  Fixture() {
    g_driver = &driver;
    api.cuCtxGetStreamPriorityRange = [](int* least, int* greatest) {
      *least = *greatest = 0;
      return CUDA_SUCCESS;
    };
    api.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
      *stream = reinterpret_cast<CUstream>(1);
      return CUDA_SUCCESS;
    };
    api.cuStreamDestroy = [](CUstream) { return CUDA_SUCCESS; };
    api.cuEventCreate = [](CUevent* event, unsigned) {
      g_driver->events.push_back({g_driver->urgent_is_current, -1});
      *event = reinterpret_cast<CUevent>(&g_driver->events.back());
      return CUDA_SUCCESS;
    };
    api.cuEventDestroy = [](CUevent) { return CUDA_SUCCESS; };
    api.cuEventRecord = Record;
    api.cuEventQuery = Query;
    api.cuEventElapsedTime = ElapsedTime;
    clock.emplace(GroupClock::Parts{
        api, driver, [this](bool urgent) { driver.urgent_is_current = urgent; },
        [](CUresult result, const char* call) {
          return result == CUDA_SUCCESS ? absl::OkStatus() : CudaError(result, call);
        }});
  }

  // An event that the device reaches at this time.
  GroupClock::Recorded At(bool urgent, int64_t time) {
    driver.events.push_back({urgent, time});
    return {reinterpret_cast<CUevent>(&driver.events.back()), urgent};
  }
  void CheckTime(GroupClock::Recorded start, GroupClock::Recorded end) {
    const double wanted =
        static_cast<double>(From(end.event)->time - From(start.event)->time) / 1e6;
    const absl::StatusOr<float> got = clock->Milliseconds(start, end);
    REQUIRE(got.ok());
    CHECK(std::abs(*got - wanted) < 0.005);
  }

  StandIn driver;
  DriverApi api;
  std::optional<GroupClock> clock;
};

TEST_CASE_METHOD(Fixture, "The time between events of two groups is that of the device's clock") {
  driver.clamps = GENERATE(false, true);
  driver.now = 10 * kMillisecond;
  const GroupClock::Recorded ordinary = At(false, 2 * kMillisecond);
  const GroupClock::Recorded urgent = At(true, 5 * kMillisecond);
  CheckTime(ordinary, urgent);
  CheckTime(urgent, ordinary);  // negative, as between events of one group
  // The references are older than these events.
  driver.now = 100 * kMillisecond;
  const int records = driver.records;
  CheckTime(At(true, 50 * kMillisecond), At(false, 51 * kMillisecond));
  CheckTime(ordinary, At(true, 60 * kMillisecond));
  CHECK(driver.records == records);
}

TEST_CASE_METHOD(Fixture, "After an hour the time is as precise as at the beginning") {
  driver.now = 10 * kMillisecond;
  CheckTime(At(false, 1 * kMillisecond), At(true, 2 * kMillisecond));
  driver.now = 3600 * kSecond;
  CheckTime(At(false, driver.now - 3 * kMillisecond), At(true, driver.now - kMillisecond));
}

TEST_CASE_METHOD(Fixture, "An event that is not reached is an error and records no reference") {
  const GroupClock::Recorded reached = At(false, 0), later = At(true, kSecond);
  CHECK(CudaResultOf(clock->Milliseconds(reached, later).status()) == kCudaErrorNotReady);
  CHECK(CudaResultOf(clock->Milliseconds(later, reached).status()) == kCudaErrorNotReady);
  CHECK(CudaResultOf(clock->Milliseconds(reached, At(true, -1)).status()) ==
        kCudaErrorInvalidHandle);
  CHECK(driver.records == 0);
}

TEST_CASE_METHOD(Fixture, "A round whose polls are far apart is repeated") {
  driver.now = 10 * kMillisecond;
  const GroupClock::Recorded ordinary = At(false, 1 * kMillisecond);
  const GroupClock::Recorded urgent = At(true, 2 * kMillisecond);
  driver.look = 40 * kMicrosecond;
  const absl::StatusOr<float> got = clock->Milliseconds(ordinary, urgent);
  REQUIRE(got.ok());
  CHECK(std::abs(*got - 1) < 0.1);
  CHECK(driver.records > 2);
  // A host that never polls often enough gets no references.
  driver.look = kMillisecond;
  driver.now += 2 * GroupClock::kMaxAge;
  clock.emplace(GroupClock::Parts{api, driver,
                                  [this](bool urgent) { driver.urgent_is_current = urgent; },
                                  [](CUresult, const char*) { return absl::OkStatus(); }});
  CHECK(absl::IsUnavailable(clock->Milliseconds(ordinary, urgent).status()));
}

TEST_CASE_METHOD(Fixture, "Older references serve while the device does not reach new ones") {
  driver.now = 10 * kMillisecond;
  const GroupClock::Recorded ordinary = At(false, 1 * kMillisecond);
  const GroupClock::Recorded urgent = At(true, 2 * kMillisecond);
  driver.delay[0] = kSecond;  // the urgent group has work for that long
  const int64_t began = driver.now;
  CHECK(absl::IsUnavailable(clock->Milliseconds(ordinary, urgent).status()));
  CHECK(driver.now - began < 10 * kMillisecond);
  driver.delay[0] = 20 * kMicrosecond;
  CheckTime(ordinary, urgent);
  driver.delay[0] = kSecond;
  driver.now += 2 * GroupClock::kMaxAge;
  CheckTime(ordinary, urgent);
}

}  // namespace
}  // namespace detshare::cuda
