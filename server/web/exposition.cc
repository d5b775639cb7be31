#include "server/web/exposition.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace detshare {
namespace {

// Indices of a histogram's buckets, four to a doubling. The exposed edges run from 16 us to 67 s,
// one to a doubling.
constexpr int kFirstEdge = 4 * 4, kLastEdge = 26 * 4, kEdgeStep = 4;

void AppendEscaped(std::string_view text, bool quotes, std::string* out) {
  for (const char c : text) {
    if (c == '\\') {
      *out += "\\\\";
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '"' && quotes) {
      *out += "\\\"";
    } else {
      *out += c;
    }
  }
}

// Formats a number as short as possible, but exact enough for counts.
std::string Text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return absl::StrFormat("%.12g", value);
}

}  // namespace

std::string_view NameOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      break;
  }
  return "histogram";
}

void Exposition::Begin(const Metric& metric) {
  name_ = metric.name;
  absl::StrAppend(&text_, "# HELP ", name_, " ");
  AppendEscaped(metric.help, /*quotes=*/false, &text_);
  const std::string_view type = NameOf(metric.type);
  absl::StrAppend(&text_, "\n# TYPE ", name_, " ", absl::string_view(type.data(), type.size()),
                  "\n");
}

void Exposition::Sample(std::string_view suffix, Labels labels, std::string_view le,
                        std::string_view value) {
  text_.append(name_).append(suffix);
  char before = '{';
  const auto label = [&](std::string_view name, std::string_view text) {
    text_ += before;
    text_.append(name).append("=\"");
    AppendEscaped(text, /*quotes=*/true, &text_);
    text_ += '"';
    before = ',';
  };
  for (const auto& [name, text] : labels) label(name, text);
  if (!le.empty()) label("le", le);
  if (before == ',') text_ += '}';
  text_ += ' ';
  text_.append(value);
  text_ += '\n';
}

void Exposition::Add(Labels labels, uint64_t value) { Sample("", labels, "", absl::StrCat(value)); }

void Exposition::Add(Labels labels, double value) { Sample("", labels, "", Text(value)); }

void Exposition::Add(Labels labels, const DurationCounts& counts) {
  uint64_t seen = 0;
  int next = 0;
  for (int edge = kFirstEdge; edge <= kLastEdge; edge += kEdgeStep) {
    for (; next < edge; ++next) seen += counts.counts[next];
    const double seconds = static_cast<double>(LatencyHistogram::BeginOf(edge)) / 1e9;
    Sample("_bucket", labels, Text(seconds), absl::StrCat(seen));
  }
  for (; next < LatencyHistogram::kBuckets; ++next) seen += counts.counts[next];
  Sample("_bucket", labels, "+Inf", absl::StrCat(seen));
  Sample("_sum", labels, "", Text(static_cast<double>(counts.sum) / 1e9));
  Sample("_count", labels, "", absl::StrCat(seen));
}

}  // namespace detshare
