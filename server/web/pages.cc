#include "server/web/pages.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/web/dashboard_files.h"
#include "server/web/metrics.h"
#include "server/web/status_json.h"

namespace detshare {
namespace {

constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr char kTextType[] = "text/plain; charset=utf-8";
constexpr char kJsonType[] = "application/json; charset=utf-8";

}  // namespace

Pages::Pages(std::function<Observation()> observe, std::function<absl::Status()> health,
             bool dashboard)
    : observe_(std::move(observe)), health_(std::move(health)), dashboard_(dashboard) {}

void Pages::Note() {
  const MutexLock lock(&mutex_);
  history_.Add(observe_());
}

HttpResponse Pages::Respond(const HttpRequest& request) {
  if (request.path == "/metrics") return {200, kMetricsType, MetricsText(observe_())};
  if (request.path == "/healthz") {
    const absl::Status health = health_();
    if (health.ok()) return {200, kTextType, "ok\n"};
    return {503, kTextType, absl::StrCat(std::string(health.message()), "\n")};
  }
  const HttpResponse none = {404, kTextType, "there is nothing here\n"};
  if (!dashboard_) return none;
  if (request.path == "/api/v1/status") {
    const MutexLock lock(&mutex_);
    const Observation seen = observe_();
    return {200, kJsonType, StatusJson(seen, history_.Recent(seen))};
  }
  if (request.path == "/api/v1/history") {
    constexpr std::string_view kAfter = "after=";
    uint64_t after = 0;
    if (!request.query.empty()) {
      const std::string_view text =
          request.query.substr(std::min(kAfter.size(), request.query.size()));
      if (!request.query.starts_with(kAfter) ||
          !absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &after))
        return {400, kTextType, "only after=NUMBER is known\n"};
    }
    const MutexLock lock(&mutex_);
    return {200, kJsonType, HistoryJson(history_, after)};
  }
  for (const DashboardFile& file : DashboardFiles()) {
    if (request.path == file.path) {
      return {200, std::string(file.type), std::string(file.content), /*cacheable=*/true};
    }
  }
  return none;
}

}  // namespace detshare
