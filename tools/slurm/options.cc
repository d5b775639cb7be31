#include "tools/slurm/options.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "policy/config/config.h"

namespace detshare::slurm {
namespace {

// Slurm keeps the text in the environment of the job.
constexpr size_t kMaxText = 1024;
constexpr size_t kMaxDevices = 64;

bool IsClass(absl::string_view text) { return text == "latency" || text == "batch"; }
bool IsSwitch(absl::string_view text) { return text == "on" || text == "off"; }

bool IsWeight(absl::string_view text) {
  double weight = 0;
  return absl::SimpleAtod(text, &weight) && std::isfinite(weight) && weight > 0;
}

bool IsSize(absl::string_view text) {
  int64_t bytes = 0;
  return ParseSize(text, &bytes);
}

bool IsCount(absl::string_view text) {
  uint32_t count = 0;
  return absl::SimpleAtoi(text, &count);
}

bool IsTime(absl::string_view text) {
  absl::Duration duration;
  return absl::ParseDuration(text, &duration) && duration >= absl::ZeroDuration() &&
         duration != absl::InfiniteDuration();
}

bool IsSmBound(absl::string_view text) {
  return text.empty() || (text.size() <= 6 && std::all_of(text.begin(), text.end(), [](char c) {
                            return absl::ascii_isdigit(static_cast<unsigned char>(c));
                          }));
}

bool IsSmRange(absl::string_view text) {
  const size_t dots = text.find("..");
  if (dots == absl::string_view::npos) return !text.empty() && IsSmBound(text);
  return text.size() > 2 && IsSmBound(text.substr(0, dots)) && IsSmBound(text.substr(dots + 2));
}

bool IsDevice(absl::string_view text) {
  return text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-';
         });
}

struct Setting {
  absl::string_view name;
  bool (*valid)(absl::string_view text);  // of texts that are not empty
  absl::string_view allowed;
};

constexpr Setting kSettings[] = {
    {"class", IsClass, "latency or batch"},
    {"memory", IsSize, "a size such as 20G, or 0 for no limit"},
    {"pinned-memory", IsSize, "a size such as 4G, or 0 for no limit"},
    {"sessions", IsCount, "a number of processes, or 0 for no limit"},
    {"devices", IsCount, "a number of GPUs, or 0 for all"},
    {"device", IsDevice, "the number or UUID of a GPU"},
    {"weight", IsWeight, "a number above 0"},
    {"exclusive", IsSwitch, "on or off"},
    {"sms", IsSmRange, "MIN..MAX, MIN.., ..MAX or one number of SMs"},
    {"slo-latency", IsTime, "a duration such as 30ms"},
    {"slo-ttft", IsTime, "a duration such as 200ms"},
    {"slo-tpot", IsTime, "a duration such as 40ms"},
};

std::string Names() {
  return absl::StrJoin(kSettings, ", ", [](std::string* out, const Setting& setting) {
    absl::StrAppend(out, setting.name);
  });
}

// The text comes from a user and goes to a terminal and to logs.
std::string Quoted(absl::string_view text) {
  std::string shown(text.substr(0, 64));
  std::replace_if(
      shown.begin(), shown.end(),
      [](char c) { return !absl::ascii_isprint(static_cast<unsigned char>(c)); }, '?');
  return absl::StrCat("\"", shown, text.size() > 64 ? "..." : "", "\"");
}

}  // namespace

absl::StatusOr<JobOptions> ParseJobOptions(absl::string_view text) {
  if (text.size() > kMaxText) {
    return absl::InvalidArgumentError(
        absl::StrCat("--detshare takes at most ", kMaxText, " characters, not ", text.size()));
  }
  JobOptions options;
  size_t devices = 0;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == absl::string_view::npos || equals == 0 || equals + 1 == part.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--detshare takes NAME=VALUE[,NAME=VALUE...], not ", Quoted(part), "; names: ", Names()));
    }
    const absl::string_view name = part.substr(0, equals), value = part.substr(equals + 1);
    const auto setting = std::find_if(std::begin(kSettings), std::end(kSettings),
                                      [&](const Setting& one) { return one.name == name; });
    if (setting == std::end(kSettings)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--detshare does not know ", Quoted(name), "; names: ", Names()));
    }
    if (!setting->valid(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--detshare: ", name, " is ", setting->allowed, ", not ", Quoted(value)));
    }
    const bool again =
        std::any_of(options.settings.begin(), options.settings.end(),
                    [&](const auto& earlier) { return earlier.first == setting->name; });
    if (name == "device" ? ++devices > kMaxDevices : again)
      return absl::InvalidArgumentError(absl::StrCat("--detshare names ", name, " too often"));
    options.settings.emplace_back(name, value);
  }
  return options;
}

}  // namespace detshare::slurm
