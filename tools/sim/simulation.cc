#include "tools/sim/simulation.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/placement.h"
#include "policy/registry.h"
#include "proto/mutex.h"
#include "tools/sim/random.h"

namespace detshare::sim {
namespace {

constexpr uint64_t kCacheBytes = 32'000'000'000, kTrainingBytes = 40'000'000'000,
                   kServiceBytes = 8'000'000'000;

// The policy's options: those of the parameters that the policy has.
absl::StatusOr<policy::Options> OptionsFor(const std::string& name, const Options& options) {
  policy::Options result;
  const auto known = policy::ParametersOf(name);
  if (!known.ok()) {
    if (!policy::IsSharedObject(name)) return known.status();
    result.parameters = options.parameters;
    return result;
  }
  for (const policy::Parameter& parameter : *known) {
    const auto value = options.parameters.find(std::string(parameter.name));
    if (value != options.parameters.end()) result.parameters.insert(*value);
  }
  return result;
}

absl::Status CheckParameters(const Options& options) {
  for (const auto& [parameter, value] : options.parameters) {
    bool used = false;
    for (const std::string& name : options.policies) {
      absl::StatusOr<policy::Options> its = OptionsFor(name, options);
      if (!its.ok()) return its.status();
      used = used || its->parameters.count(parameter) > 0;
    }
    if (!used) {
      return absl::InvalidArgumentError(
          absl::StrCat("none of the policies has a parameter \"", parameter, "\""));
    }
  }
  return absl::OkStatus();
}

std::vector<Program> ProgramsOf(const Options& options, const Trace& trace) {
  std::vector<Program> programs(trace.services + options.trainings);
  for (uint32_t i = 0; i < trace.services; ++i) {
    Program& program = programs[i];
    program.tenant.name = absl::StrCat("service-", i);
    program.tenant.tenant_class = policy::TenantClass::kLatency;
    program.kind = trace.tokens ? Program::Kind::kLanguageModel : Program::Kind::kService;
    program.model = options.model;
    if (trace.tokens) {
      program.tenant.slo_tpot = static_cast<policy::Nanoseconds>(options.slo_tpot * 1e9);
      program.tenant.slo_ttft = static_cast<policy::Nanoseconds>(options.slo_ttft * 1e9);
    }
  }
  for (const Request& request : trace.requests) {
    if (request.at < options.hours * 3600) programs[request.service].requests.push_back(request);
  }
  for (int i = 0; i < options.trainings; ++i) {
    Program& program = programs[trace.services + i];
    program.tenant.name = absl::StrCat("training-", i);
    program.tenant.tenant_class = policy::TenantClass::kBatch;
    program.step = TrainingStep(i % 2 == 1);
  }
  // Programs come in a random order.
  Random random = Random::Of(options.seed, 0x70726F6772616D73ull);
  for (size_t i = programs.size(); i > 1; --i) {
    std::swap(programs[i - 1], programs[random.Next() % i]);
  }
  return programs;
}

policy::PlacementRequest RequestOf(const Program& program) {
  policy::PlacementRequest request;
  request.tenant = program.tenant;
  switch (program.kind) {
    case Program::Kind::kLanguageModel:
      request.memory = program.model.bytes() + kCacheBytes;
      request.memory_bound = 0.8;
      break;
    case Program::Kind::kService:
      request.memory = kServiceBytes;
      request.memory_bound = 0.3;
      break;
    case Program::Kind::kTraining:
      request.memory = kTrainingBytes;
      request.memory_bound = program.step.memory > program.step.arithmetic ? 0.9 : 0.1;
      break;
  }
  return request;
}

// Divides the programs among the devices. Counts in `unplaced` those that fit on no device.
absl::StatusOr<std::vector<std::vector<Program>>> Place(const Options& options,
                                                        const std::string& name,
                                                        const std::vector<Program>& programs,
                                                        uint64_t* unplaced) {
  absl::StatusOr<std::unique_ptr<policy::DevicePlacement>> placement =
      policy::CreatePlacement(name);
  if (!placement.ok()) return placement.status();
  std::vector<policy::DeviceLoad> loads(options.devices);
  for (policy::DeviceLoad& load : loads) load.memory = options.device_memory;
  std::vector<std::vector<Program>> devices(options.devices);
  policy::Nanoseconds placed = 0;  // only the order counts
  for (const Program& program : programs) {
    policy::PlacementRequest request = RequestOf(program);
    const absl::StatusOr<int> index = (*placement)->Place(request, loads);
    if (!index.ok()) {
      ++*unplaced;
      continue;
    }
    devices[*index].push_back(program);
    loads[*index].memory_used += request.memory;
    loads[*index].sessions.push_back(std::move(request));
    loads[*index].placed_at = ++placed;
  }
  return devices;
}

// Quantiles by sorting, so that the order in which values were collected does not matter.
class Quantiles {
 public:
  explicit Quantiles(std::vector<float> values) : values_(std::move(values)) {
    std::sort(values_.begin(), values_.end());
  }
  double At(double fraction) const {
    if (values_.empty()) return 0;
    return values_[std::min(values_.size() - 1,
                            static_cast<size_t>(fraction * static_cast<double>(values_.size())))];
  }
  double ShareAbove(double bound) const {
    if (values_.empty()) return 0;
    const auto above = std::upper_bound(values_.begin(), values_.end(), static_cast<float>(bound));
    return static_cast<double>(values_.end() - above) / static_cast<double>(values_.size());
  }

 private:
  std::vector<float> values_;
};

void Append(const std::vector<float>& from, std::vector<float>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

Summary Summarise(const Options& options, const std::vector<std::vector<Program>>& devices,
                  const std::vector<DeviceResult>& results) {
  Summary summary;
  std::vector<float> latency, ttft, tpot;
  double work = 0, training = 0, sum = 0, squares = 0;
  uint64_t trainings = 0, measured = 0;
  for (size_t d = 0; d < devices.size(); ++d) {
    summary.decisions += results[d].decisions;
    for (size_t i = 0; i < devices[d].size(); ++i) {
      const ProgramResult& result = results[d].programs[i];
      ++summary.programs;
      summary.requests += result.latency.size();
      summary.unfinished += result.unfinished;
      Append(result.latency, &latency);
      Append(result.ttft, &ttft);
      Append(result.tpot, &tpot);
      work += result.device_seconds;
      if (devices[d][i].kind == Program::Kind::kTraining) {
        training += result.device_seconds;
        ++trainings;
      }
      if (result.busy_seconds > 0) {
        const double speed = result.device_seconds / result.busy_seconds;
        sum += speed;
        squares += speed * speed;
        ++measured;
      }
    }
  }
  const Quantiles of_latency(std::move(latency)), of_ttft(std::move(ttft)),
      of_tpot(std::move(tpot));
  summary.latency_p50 = of_latency.At(0.5);
  summary.latency_p95 = of_latency.At(0.95);
  summary.latency_p99 = of_latency.At(0.99);
  summary.ttft_p50 = of_ttft.At(0.5);
  summary.ttft_p95 = of_ttft.At(0.95);
  summary.ttft_p99 = of_ttft.At(0.99);
  summary.tpot_p50 = of_tpot.At(0.5);
  summary.tpot_p95 = of_tpot.At(0.95);
  summary.tpot_p99 = of_tpot.At(0.99);
  summary.ttft_violations = of_ttft.ShareAbove(options.slo_ttft);
  summary.tpot_violations = of_tpot.ShareAbove(options.slo_tpot);
  const double seconds = options.hours * 3600;
  summary.utilisation = work / (seconds * static_cast<double>(devices.size()));
  if (trainings > 0) summary.training = training / (seconds * static_cast<double>(trainings));
  if (squares > 0) summary.fairness = sum * sum / (static_cast<double>(measured) * squares);
  return summary;
}

}  // namespace

absl::StatusOr<std::vector<Summary>> Simulate(const Options& options, const Trace& trace,
                                              const std::function<void(int, int)>& progress) {
  if (absl::Status status = CheckParameters(options); !status.ok()) return status;
  if (options.devices < 1 || options.threads < 1 || options.trainings < 0 || !(options.hours > 0)) {
    return absl::InvalidArgumentError("there is at least one device, one thread and some time");
  }
  const std::vector<Program> programs = ProgramsOf(options, trace);
  std::vector<Summary> summaries;
  const int all =
      static_cast<int>(options.policies.size() * options.placements.size()) * options.devices;
  std::atomic<int> done{0};
  Mutex reporting;
  progress(0, all);
  for (const std::string& placement : options.placements) {
    uint64_t unplaced = 0;
    absl::StatusOr<std::vector<std::vector<Program>>> devices =
        Place(options, placement, programs, &unplaced);
    if (!devices.ok()) return devices.status();
    for (const std::string& name : options.policies) {
      absl::StatusOr<policy::Options> its = OptionsFor(name, options);
      if (!its.ok()) return its.status();
      std::vector<std::unique_ptr<policy::Policy>> policies;
      std::vector<std::string> warnings(options.devices);
      for (int i = 0; i < options.devices; ++i) {
        absl::StatusOr<std::unique_ptr<policy::Policy>> policy = policy::CreatePolicy(
            name, *its, [&warning = warnings[i]](const std::string& text) { warning = text; });
        if (!policy.ok()) return policy.status();
        policies.push_back(*std::move(policy));
      }
      // Devices do not depend on each other. Each thread takes the next device and writes only that
      // device's result.
      std::vector<DeviceResult> results(options.devices);
      std::atomic<int> next{0};
      const auto work = [&] {
        while (true) {
          const int device = next.fetch_add(1, std::memory_order_relaxed);
          if (device >= options.devices) return;
          results[device] =
              SimulateDevice(options.device, *policies[device], (*devices)[device], options.hours);
          MutexLock lock(&reporting);
          progress(++done, all);
        }
      };
      std::vector<std::thread> threads;
      for (int i = 1; i < options.threads; ++i) threads.emplace_back(work);
      work();
      for (std::thread& thread : threads) thread.join();
      Summary summary = Summarise(options, *devices, results);
      summary.policy = name;
      summary.placement = placement;
      summary.unplaced = unplaced;
      for (std::string& warning : warnings) {
        if (summary.warning.empty()) summary.warning = std::move(warning);
      }
      summaries.push_back(std::move(summary));
    }
  }
  return summaries;
}

}  // namespace detshare::sim
