// Writes Prometheus' text format, version 0.0.4.
//
// One thread uses it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "coroutine_runtime/work_totals.h"

namespace detshare {

enum class MetricType { kCounter, kGauge, kHistogram };

struct Metric {
  std::string_view name;
  MetricType type = MetricType::kGauge;
  std::string_view labels;  // names of the labels, separated by commas
  std::string_view help;
};

std::string_view NameOf(MetricType type);

class Exposition {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // Begins a metric; the samples that follow belong to it. Each metric comes once.
  void Begin(const Metric& metric);
  void Add(Labels labels, uint64_t value);
  void Add(Labels labels, double value);
  // Adds a histogram of nanoseconds, shown in seconds.
  void Add(Labels labels, const DurationCounts& counts);

  const std::string& text() const { return text_; }

 private:
  void Sample(std::string_view suffix, Labels labels, std::string_view le, std::string_view value);

  std::string text_;
  std::string name_;
};

}  // namespace detshare
