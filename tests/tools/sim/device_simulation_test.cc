#include "tools/sim/device_simulation.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "policy/registry.h"
#include "tests/policy/device_shapes.h"
#include "tools/sim/random.h"

namespace detshare::sim {
namespace {

Program Model(std::vector<Request> requests) {
  Program program;
  program.kind = Program::Kind::kLanguageModel;
  program.tenant.name = "model";
  program.tenant.tenant_class = policy::TenantClass::kLatency;
  program.requests = std::move(requests);
  return program;
}

Program Training() {
  Program program;
  program.tenant.name = "training";
  program.tenant.tenant_class = policy::TenantClass::kBatch;
  program.step = TrainingStep(false);
  return program;
}

DeviceResult Run(const char* policy, const std::vector<Program>& programs, double hours) {
  return SimulateDevice(policy::kH200, **policy::CreatePolicy(policy, {}), programs, hours);
}

TEST_CASE("A request alone takes as long as the model of its work says") {
  const DeviceResult result = Run("whole", {Model({{1, 0, 1000, 101}})}, 0.01);
  const LanguageModel model;
  REQUIRE(result.programs[0].ttft.size() == 1);
  CHECK(result.programs[0].ttft[0] == Approx(model.Prefill(1000).alone() / 1e9).epsilon(0.001));
  // 100 steps, each after 300 us of the program's own time. Contexts grow from 1001 to 1100.
  const double step = model.Decode(1, 1050).alone() / 1e9 + 0.0003;
  CHECK(result.programs[0].tpot[0] == Approx(step).epsilon(0.02));
  CHECK(result.programs[0].latency[0] ==
        Approx(result.programs[0].ttft[0] + 100 * step).epsilon(0.02));
  CHECK(result.programs[0].unfinished == 0);
}

TEST_CASE("Requests at the same time are decoded together") {
  std::vector<Request> requests(8, Request{0, 0, 100, 500});
  const double one = Run("whole", {Model({requests[0]})}, 0.01).programs[0].latency[0];
  const DeviceResult result = Run("whole", {Model(requests)}, 0.01);
  REQUIRE(result.programs[0].latency.size() == 8);
  CHECK(result.programs[0].latency[7] < 1.5 * one);
}

TEST_CASE("Skipping over stretches changes little") {
  // The same work as one request of many tokens, with a second program. Its requests are too short
  // to matter but interrupt the stretches.
  const DeviceResult smooth = Run("priority", {Model({{0, 0, 100, 2000}}), Training()}, 0.02);
  std::vector<Request> ticks;
  for (int i = 0; i < 4000; ++i) ticks.push_back({0.015 * i, 0, 0, 0, 1e-7});
  Program ticking = Model(ticks);
  ticking.kind = Program::Kind::kService;
  ticking.tenant.name = "ticks";
  const DeviceResult rough =
      Run("priority", {Model({{0, 0, 100, 2000}}), Training(), ticking}, 0.02);
  CHECK(smooth.decisions * 5 < rough.decisions);
  CHECK(smooth.programs[0].latency[0] == Approx(rough.programs[0].latency[0]).epsilon(0.03));
  CHECK(smooth.programs[1].device_seconds ==
        Approx(rough.programs[1].device_seconds).epsilon(0.03));
}

TEST_CASE("Trainings that take turns share the time by weight") {
  for (const char* policy : {"temporal", "fair"}) {
    INFO(policy);
    Program one = Training(), three = Training();
    one.tenant.exclusive = true;
    three.tenant.name = "three";
    three.tenant.weight = 3;
    const DeviceResult result = Run(policy, {one, three}, 0.1);
    CHECK(result.programs[0].device_seconds == Approx(90).epsilon(0.03));
    CHECK(result.programs[1].device_seconds == Approx(270).epsilon(0.03));
  }
}

TEST_CASE(
    "A training job alone works all the time, and beside others in the time that they leave") {
  CHECK(Run("priority", {Training()}, 1).programs[0].device_seconds == Approx(3600).epsilon(0.001));
  std::vector<Request> requests;
  for (int i = 0; i < 300; ++i) requests.push_back({1.0 * i, 0, 500, 100});
  const DeviceResult result = Run("priority", {Model(requests), Training()}, 0.1);
  CHECK(result.programs[0].latency.size() == 300);
  CHECK(result.programs[1].device_seconds > 100);
  CHECK(result.programs[1].device_seconds < 340);
}

TEST_CASE("Priority keeps a model's tokens as fast as alone, whole does not") {
  std::vector<Request> requests;
  for (int i = 0; i < 100; ++i) requests.push_back({2.0 * i, 0, 500, 200});
  const float alone = Run("whole", {Model(requests)}, 0.1).programs[0].tpot[50];
  CHECK(Run("priority", {Model(requests), Training()}, 0.1).programs[0].tpot[50] < 1.1 * alone);
  CHECK(Run("whole", {Model(requests), Training()}, 0.1).programs[0].tpot[50] > 1.2 * alone);
}

// Inference of 1.31 ms beside a training, with exponential gaps of 5 ms between the end of a
// request and the next. The next request comes when the one before it should have ended.
DeviceResult InferenceBesideTraining(const policy::DeviceShape& device, bool training) {
  constexpr double kWork = 1.310e-3, kLatency = kWork + 0.190e-3, kGap = 5e-3;
  Program inference = Model({});
  inference.kind = Program::Kind::kService;
  Random random = Random::Of(1, 2);
  for (double at = 0.01; at < 36; at += kLatency + random.Exponential(kGap)) {
    inference.requests.push_back({at, 0, 0, 0, kWork});
  }
  std::vector<Program> programs = {inference};
  if (training) programs.push_back(Training());
  return SimulateDevice(device, **policy::CreatePolicy("priority", {}), programs, 0.01);
}

double Quantile(std::vector<float> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1))];
}

TEST_CASE("Preemption costs both programs what was measured on an H200") {
  const DeviceResult alone = InferenceBesideTraining(policy::kPreemptingH200, false);
  CHECK(Quantile(alone.programs[0].latency, 0.99) == Approx(1.310e-3).epsilon(0.001));
  const DeviceResult beside = InferenceBesideTraining(policy::kPreemptingH200, true);
  // Measured: 1.479 and 1.521 ms. The training kept 0.766 of its steps.
  CHECK(Quantile(beside.programs[0].latency, 0.5) == Approx(1.479e-3).epsilon(0.03));
  CHECK(Quantile(beside.programs[0].latency, 0.99) == Approx(1.521e-3).epsilon(0.03));
  CHECK(beside.programs[1].device_seconds / 36 == Approx(0.766).epsilon(0.02));
}

TEST_CASE("Preemption makes requests shorter, and costs the training some of its time") {
  const DeviceResult on = InferenceBesideTraining(policy::kPreemptingH200, true);
  const DeviceResult off = InferenceBesideTraining(policy::kH200, true);
  for (const double fraction : {0.5, 0.99}) {
    CHECK(Quantile(on.programs[0].latency, fraction) <
          0.97 * Quantile(off.programs[0].latency, fraction));
  }
  CHECK(on.programs[1].device_seconds < 0.97 * off.programs[1].device_seconds);
}

TEST_CASE("Unfinished requests are counted") {
  const DeviceResult result =
      Run("whole", {Model({{0, 0, 100, 1000000}, {0, 0, 100, 1000000}, {1, 0, 100, 2}})}, 0.01);
  CHECK(result.programs[0].latency.size() == 1);
  CHECK(result.programs[0].unfinished == 2);
}

}  // namespace
}  // namespace detshare::sim
