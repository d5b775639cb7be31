#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tools/sim/random.h"
#include "tools/sim/trace.h"

namespace detshare::sim {
namespace {

// The shape of a trace. A spread is the standard deviation of the logarithm.
struct Shape {
  absl::string_view format;
  bool tokens;
  double prompt, prompt_spread;
  double output, output_spread;
  double seconds, seconds_spread;  // device time; its median
  double busy;                     // the rate in busy periods, as a multiple of the mean rate
  double busy_share;               // the share of the time in busy periods
  double period;                   // the mean length of a busy period, seconds
};

constexpr Shape kShapes[] = {
    // Conversations have prompts of about a thousand tokens and answers of a few hundred.
    {"azure-llm", true, 900, 0.9, 160, 0.7, 0, 0, 3, 0.2, 30},
    {"burstgpt", true, 400, 1.0, 200, 0.8, 0, 0, 8, 0.08, 20},
    {"azure-functions-2019", false, 0, 0, 0, 0, 0.2, 1.0, 4, 0.15, 60},
    {"azure-functions-2021", false, 0, 0, 0, 0, 0.15, 1.3, 6, 0.1, 20},
};

constexpr double kZipf = 0.9;
constexpr double kMaxSampledSeconds = 60;
constexpr double kMaxSampledTokens = 16384;

uint32_t TokensOf(double value) {
  return static_cast<uint32_t>(std::clamp(value, 1.0, kMaxSampledTokens));
}

}  // namespace

std::vector<std::string> GeneratedFormats() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.format);
  return names;
}

absl::StatusOr<Trace> GenerateTrace(const GenerateOptions& options) {
  const Shape* shape = nullptr;
  std::string known;
  for (const Shape& candidate : kShapes) {
    if (candidate.format == options.format) shape = &candidate;
    absl::StrAppend(&known, known.empty() ? "" : ", ", candidate.format);
  }
  if (shape == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("nothing generates \"", options.format, "\"; there are ", known));
  }
  if (!(options.hours > 0 && options.hours <= 24 * 366) ||
      !(options.rate > 0 && options.rate * options.hours * 3600 <= 2e8) || options.services == 0) {
    return absl::InvalidArgumentError(
        "a trace has more than 0 hours (a year at most), services and requests (200 million at "
        "most)");
  }
  Trace trace;
  trace.format = options.format;
  trace.services = options.services;
  trace.tokens = shape->tokens;
  double total = 0;
  for (uint32_t i = 0; i < options.services; ++i) total += std::pow(i + 1, -kZipf);

  const double end = options.hours * 3600;
  const double quiet = (1 - shape->busy * shape->busy_share) / (1 - shape->busy_share);
  for (uint32_t service = 0; service < options.services; ++service) {
    Random random = Random::Of(options.seed, service);
    const double mean = options.rate * std::pow(service + 1, -kZipf) / total;
    bool busy = random.Uniform() < shape->busy_share;
    double at = 0, change = 0;
    while (at < end) {
      const double period =
          busy ? shape->period : shape->period * (1 - shape->busy_share) / shape->busy_share;
      change = at + random.Exponential(period);
      const double rate = mean * (busy ? shape->busy : quiet);
      while (true) {
        const double next = at + random.Exponential(1 / rate);
        // Exponential gaps have no memory. So a gap that a change of the period cuts off is drawn
        // again.
        if (next >= std::min(change, end)) break;
        at = next;
        Request request{at, service};
        if (shape->tokens) {
          request.prompt = TokensOf(random.LogNormal(shape->prompt, shape->prompt_spread));
          request.output = TokensOf(random.LogNormal(shape->output, shape->output_spread));
        } else {
          request.seconds =
              std::min(kMaxSampledSeconds, random.LogNormal(shape->seconds, shape->seconds_spread));
        }
        trace.requests.push_back(request);
      }
      at = change;
      busy = !busy;
    }
  }
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const Request& a, const Request& b) { return a.at < b.at; });
  return trace;
}

}  // namespace detshare::sim
