// What HTTP answers about whatever is observed: metrics, health, the dashboard and its figures.
#pragma once

#include <functional>
#include <mutex>

#include "absl/status/status.h"
#include "server/web/history.h"
#include "server/web/http_server.h"
#include "server/web/observation.h"

namespace detshare {

// Any thread.
class Pages {
 public:
  // `observe`: what there is to see now. `health`: why nothing is served, in one line. Both are
  // called by whoever calls here. `dashboard`: whether there is more than metrics.
  Pages(std::function<Observation()> observe, std::function<absl::Status()> health, bool dashboard);
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  // A point of the history is due.
  void Note();
  HttpResponse Respond(const HttpRequest& request);

 private:
  const std::function<Observation()> observe_;
  const std::function<absl::Status()> health_;
  const bool dashboard_;

  std::mutex mutex_;  // guards what follows; held while it is observed, so that no point is later
  History history_;
};

}  // namespace detshare
