#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "tools/sim/random.h"
#include "tools/sim/trace.h"

namespace detshare::sim {
namespace {

using Fields = std::vector<std::string>;

constexpr uint32_t kMaxTokens = 10'000'000;
constexpr double kMaxSeconds = 1e9;
constexpr int kMinutesOfDay = 1440;

Fields Split(const std::string& line) {
  Fields fields = absl::StrSplit(line, ',');
  for (std::string& field : fields) {
    field = std::string(absl::StripAsciiWhitespace(field));
    if (field.size() >= 2 && field.front() == '"' && field.back() == '"') {
      field = field.substr(1, field.size() - 2);
    }
  }
  return fields;
}

absl::Status Bad(const std::string& what, const std::string& value) {
  return absl::InvalidArgumentError(absl::StrCat(what, ", not \"", value, "\""));
}

absl::StatusOr<uint32_t> Tokens(const std::string& field) {
  double tokens = 0;  // some files write whole numbers as 12.0
  if (!absl::SimpleAtod(field, &tokens) || !(tokens >= 0 && tokens <= kMaxTokens) ||
      tokens != static_cast<uint32_t>(tokens)) {
    return Bad("a number of tokens is a whole number of at most ten million", field);
  }
  return static_cast<uint32_t>(tokens);
}

absl::StatusOr<double> Seconds(const std::string& field) {
  double seconds = 0;
  if (!absl::SimpleAtod(field, &seconds) || !(seconds >= 0 && seconds <= kMaxSeconds)) {
    return Bad("a time is a number of seconds, from 0 to 1e9", field);
  }
  return seconds;
}

// Takes "2023-11-16 18:15:46.6805900", with or without a time zone, or a number of seconds.
absl::StatusOr<double> Moment(const std::string& field) {
  absl::Time time;
  std::string error;
  for (const char* format : {"%Y-%m-%d %H:%M:%E*S", "%Y-%m-%d %H:%M:%E*S%Ez", "%Y-%m-%dT%H:%M:%E*S",
                             "%Y-%m-%dT%H:%M:%E*S%Ez"}) {
    if (absl::ParseTime(format, field, &time, &error)) {
      return absl::ToDoubleSeconds(time - absl::UnixEpoch());
    }
  }
  double seconds = 0;
  if (absl::SimpleAtod(field, &seconds) && seconds >= 0 && seconds <= 1e10) return seconds;
  return Bad("a timestamp is a date and a time, or seconds", field);
}

class Reader {
 public:
  explicit Reader(uint64_t seed) : seed_(seed) {}

  absl::Status Header(const Fields& fields) {
    const auto starts = [&](const Fields& names) {
      return fields.size() >= names.size() &&
             std::equal(names.begin(), names.end(), fields.begin(),
                        [](const std::string& a, const std::string& b) {
                          return absl::EqualsIgnoreCase(a, b);
                        });
    };
    columns_ = fields.size();
    if (starts({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})) {
      trace_.format = "azure-llm";
      row_ = &Reader::AzureLlm;
    } else if (starts({"Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens",
                       "Log Type"})) {
      trace_.format = "burstgpt";
      row_ = &Reader::BurstGpt;
    } else if (starts({"HashOwner", "HashApp", "HashFunction", "Trigger", "1"})) {
      if (columns_ != 4 + kMinutesOfDay) {
        return absl::InvalidArgumentError(
            absl::StrCat("the header has ", columns_ - 4, " minutes, not ", kMinutesOfDay));
      }
      trace_.format = "azure-functions-2019";
      row_ = &Reader::Functions2019;
    } else if (starts({"app", "func", "end_timestamp", "duration"})) {
      trace_.format = "azure-functions-2021";
      row_ = &Reader::Functions2021;
    } else {
      return absl::InvalidArgumentError("no known format has this header");
    }
    trace_.tokens = trace_.format == "azure-llm" || trace_.format == "burstgpt";
    return absl::OkStatus();
  }

  absl::Status Row(const Fields& fields) {
    if (fields.size() != columns_) {
      return absl::InvalidArgumentError(
          absl::StrCat(fields.size(), " columns, where the header has ", columns_));
    }
    return (this->*row_)(fields);
  }

  Trace Finish() {
    trace_.services = std::max<uint32_t>(1, static_cast<uint32_t>(services_.size()));
    std::stable_sort(trace_.requests.begin(), trace_.requests.end(),
                     [](const Request& a, const Request& b) { return a.at < b.at; });
    if (!trace_.requests.empty()) {
      const double first = trace_.requests.front().at;
      for (Request& request : trace_.requests) request.at -= first;
    }
    return std::move(trace_);
  }

 private:
  uint32_t Service(const std::string& name) {
    return services_.try_emplace(name, static_cast<uint32_t>(services_.size())).first->second;
  }

  absl::Status AddTokens(absl::StatusOr<double> at, const std::string& service,
                         const std::string& prompt, const std::string& output) {
    absl::StatusOr<uint32_t> in = Tokens(prompt), out = Tokens(output);
    if (!at.ok()) return at.status();
    if (!in.ok()) return in.status();
    if (!out.ok()) return out.status();
    // Requests without output have failed.
    if (*out == 0) return absl::OkStatus();
    trace_.requests.push_back({*at, Service(service), std::max(1u, *in), *out, 0});
    return absl::OkStatus();
  }

  absl::Status AzureLlm(const Fields& fields) {
    return AddTokens(Moment(fields[0]), "", fields[1], fields[2]);
  }
  absl::Status BurstGpt(const Fields& fields) {
    return AddTokens(Moment(fields[0]), fields[1] + "/" + fields[5], fields[2], fields[3]);
  }
  absl::Status Functions2021(const Fields& fields) {
    const absl::StatusOr<double> end = Seconds(fields[2]), seconds = Seconds(fields[3]);
    if (!end.ok()) return end.status();
    if (!seconds.ok()) return seconds.status();
    if (*seconds > *end) return Bad("an invocation begins at 0 or later", fields[3]);
    trace_.requests.push_back(
        {*end - *seconds, Service(fields[0] + "/" + fields[1]), 0, 0, *seconds});
    return absl::OkStatus();
  }
  absl::Status Functions2019(const Fields& fields) {
    const uint32_t service = Service(fields[0] + "/" + fields[1] + "/" + fields[2]);
    Random random = Random::Of(seed_, service);
    // The trace has durations in another file, by function. Here each function gets a duration of
    // some tenths of a second.
    const double median = random.LogNormal(0.2, 1);
    for (int minute = 0; minute < kMinutesOfDay; ++minute) {
      uint32_t count = 0;
      if (!absl::SimpleAtoi(fields[4 + minute], &count) || count > 10'000'000) {
        return Bad("a number of invocations is a whole number of at most ten million",
                   fields[4 + minute]);
      }
      for (uint32_t i = 0; i < count; ++i) {
        trace_.requests.push_back({60 * (minute + random.Uniform()), service, 0, 0,
                                   std::min(60.0, random.LogNormal(median, 0.3))});
      }
    }
    return absl::OkStatus();
  }

  const uint64_t seed_;
  size_t columns_ = 0;
  absl::Status (Reader::*row_)(const Fields&) = nullptr;
  std::map<std::string, uint32_t> services_;
  Trace trace_;
};

}  // namespace

absl::StatusOr<Trace> ReadTrace(std::istream& in, const std::string& name, uint64_t seed) {
  Reader reader(seed);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() && number > 1) continue;
    const Fields fields = Split(line);
    const absl::Status status = number == 1 ? reader.Header(fields) : reader.Row(fields);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":", number, ": ", std::string(status.message())));
    }
  }
  Trace trace = reader.Finish();
  if (trace.requests.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": no requests"));
  }
  return trace;
}

absl::StatusOr<Trace> ReadTraceFile(const std::string& path, uint64_t seed) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return ReadTrace(in, path, seed);
}

}  // namespace detshare::sim
