// The text of --detshare from bytes (options.h).
#include <cstddef>
#include <cstdint>
#include <string>

#include "policy/config/config.h"
#include "tests/fuzzing/check.h"
#include "tools/detsharectl/settings.h"
#include "tools/slurm/options.h"

namespace detshare::slurm {
namespace {

// The settings as detsharectl gets them.
ctl::TenantFlags FlagsOf(const JobOptions& options) {
  ctl::TenantFlags flags;
  for (const auto& [name, value] : options.settings) {
    std::string* const flag = name == "class"           ? &flags.tenant_class
                              : name == "weight"        ? &flags.weight
                              : name == "exclusive"     ? &flags.exclusive
                              : name == "sms"           ? &flags.sms
                              : name == "memory"        ? &flags.memory
                              : name == "pinned-memory" ? &flags.pinned_memory
                              : name == "sessions"      ? &flags.sessions
                              : name == "devices"       ? &flags.devices
                              : name == "slo-latency"   ? &flags.slo_latency
                              : name == "slo-ttft"      ? &flags.slo_ttft
                              : name == "slo-tpot"      ? &flags.slo_tpot
                                                        : nullptr;
    FUZZ_CHECK(flag != nullptr || name == "device");
    if (flag == nullptr) continue;
    FUZZ_CHECK(flag->empty());
    *flag = value;
  }
  return flags;
}

}  // namespace
}  // namespace detshare::slurm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace detshare;  // NOLINT
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto options = slurm::ParseJobOptions(text);
  if (!options.ok()) {
    // It is one line, and goes to a terminal.
    FUZZ_CHECK(!options.status().message().empty());
    FUZZ_CHECK(IsPlain(options.status().message()));
    return 0;
  }
  // What is accepted is the text again, and detsharectl takes it.
  std::string again;
  for (const auto& [name, value] : options->settings)
    again += (again.empty() ? "" : ",") + name + "=" + value;
  FUZZ_CHECK(again == text);
  FUZZ_CHECK(ctl::ToSetting(slurm::FlagsOf(*options)).ok());
  return 0;
}
