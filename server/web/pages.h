// Replies to HTTP requests about an observation: metrics, health, the dashboard and its data.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "proto/mutex.h"
#include "server/web/history.h"
#include "server/web/http_server.h"
#include "server/web/observation.h"

namespace detshare {

// Any thread may call it.
class Pages {
 public:
  // `observe` returns the present observation. `health` returns why nothing is served, in one line,
  // or OkStatus. Both run on the caller's thread. `dashboard` tells whether to serve more than
  // metrics and health.
  Pages(std::function<Observation()> observe, std::function<absl::Status()> health, bool dashboard);
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  // Adds a point to the history.
  void Note();
  HttpResponse Respond(const HttpRequest& request);

 private:
  const std::function<Observation()> observe_;
  const std::function<absl::Status()> health_;
  const bool dashboard_;

  // Held during observe_(), so that points come in the order of their times.
  Mutex mutex_;
  History history_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare
