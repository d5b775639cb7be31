#include "tools/sim/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/text/table.h"

namespace detshare::sim {
namespace {

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// Every figure of a summary, with its name in CSV and JSON.
struct Figure {
  const char* name;
  double (*of)(const Summary&);
  const char* format;
};

#define DETSHARE_FIGURE(member, format)                                                         \
  {                                                                                             \
#member, [](const Summary& summary) { return static_cast<double>(summary.member); }, format \
  }
constexpr Figure kFigures[] = {
    DETSHARE_FIGURE(programs, "%.0f"),        DETSHARE_FIGURE(unplaced, "%.0f"),
    DETSHARE_FIGURE(requests, "%.0f"),        DETSHARE_FIGURE(unfinished, "%.0f"),
    DETSHARE_FIGURE(latency_p50, "%.6f"),     DETSHARE_FIGURE(latency_p95, "%.6f"),
    DETSHARE_FIGURE(latency_p99, "%.6f"),     DETSHARE_FIGURE(ttft_p50, "%.6f"),
    DETSHARE_FIGURE(ttft_p95, "%.6f"),        DETSHARE_FIGURE(ttft_p99, "%.6f"),
    DETSHARE_FIGURE(tpot_p50, "%.6f"),        DETSHARE_FIGURE(tpot_p95, "%.6f"),
    DETSHARE_FIGURE(tpot_p99, "%.6f"),        DETSHARE_FIGURE(ttft_violations, "%.6f"),
    DETSHARE_FIGURE(tpot_violations, "%.6f"), DETSHARE_FIGURE(utilisation, "%.6f"),
    DETSHARE_FIGURE(training, "%.6f"),        DETSHARE_FIGURE(fairness, "%.6f"),
    DETSHARE_FIGURE(decisions, "%.0f"),
};
#undef DETSHARE_FIGURE

}  // namespace

std::string Text(const std::vector<Summary>& summaries) {
  text::Table table({"policy", "placement", "requests", "unfinished", "latency p50 s", "p95", "p99",
                     "TTFT p50 s", "p99", "late %", "TPOT p50 ms", "p99", "late %", "used %",
                     "training %", "fairness"});
  uint64_t unplaced = 0;
  for (const Summary& summary : summaries) {
    unplaced = std::max(unplaced, summary.unplaced);
    table.Add({summary.policy, summary.placement, text::Count(summary.requests),
               text::Count(summary.unfinished), Format("%.3f", summary.latency_p50),
               Format("%.3f", summary.latency_p95), Format("%.3f", summary.latency_p99),
               Format("%.3f", summary.ttft_p50), Format("%.3f", summary.ttft_p99),
               Format("%.2f", 100 * summary.ttft_violations),
               Format("%.2f", 1000 * summary.tpot_p50), Format("%.2f", 1000 * summary.tpot_p99),
               Format("%.2f", 100 * summary.tpot_violations),
               Format("%.1f", 100 * summary.utilisation), Format("%.1f", 100 * summary.training),
               Format("%.3f", summary.fairness)});
  }
  std::string text = table.ToString();
  if (unplaced > 0) {
    text += "Up to " + text::Count(unplaced) + " programs fitted on no device and were left out.\n";
  }
  return text;
}

std::string Csv(const std::vector<Summary>& summaries) {
  std::string csv = "policy,placement";
  for (const Figure& figure : kFigures) csv += std::string(",") + figure.name;
  csv += "\n";
  for (const Summary& summary : summaries) {
    csv += summary.policy + "," + summary.placement;
    for (const Figure& figure : kFigures) {
      csv += "," + Format(figure.format, figure.of(summary));
    }
    csv += "\n";
  }
  return csv;
}

std::string Json(const std::vector<Summary>& summaries) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Summary& summary : summaries) {
    nlohmann::ordered_json row{{"policy", summary.policy}, {"placement", summary.placement}};
    for (const Figure& figure : kFigures) row[figure.name] = figure.of(summary);
    rows.push_back(std::move(row));
  }
  return rows.dump(1) + "\n";
}

}  // namespace detshare::sim
