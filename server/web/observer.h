// Observes a daemon in this process: samples it, and replies to HTTP requests (pages.h).
//
// One thread samples, ten times a second while a session may have work, and once a second
// otherwise. The daemon's other threads wait for it at most as long as a requested report takes.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "proto/mutex.h"
#include "server/access/owners.h"
#include "server/services/settings_store.h"
#include "server/sessions/session_manager.h"
#include "server/web/http_server.h"
#include "server/web/observation.h"
#include "server/web/pages.h"
#include "server/web/sampler.h"

namespace detshare {

// Any thread may call it. The constructor's arguments outlive it.
class Observer {
 public:
  struct Options {
    std::string backend;
    uint64_t device_losses = 0;  // of the daemons that this one replaces
    bool dashboard = true;       // the dashboard, and the JSON that it shows
    bool own_thread = true;      // false: the owner calls Look()
  };
  Observer(SessionManager& manager, const SettingsStore& settings, const Owners& owners,
           Options options);
  ~Observer();
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  Observation Observe();
  HttpResponse Respond(const HttpRequest& request) { return pages_.Respond(request); }
  // Samples once; `seconds` is the time since the last sample. `point` also adds a point to the
  // history.
  void Look(double seconds, bool point);

 private:
  void Run();

  SessionManager& manager_;
  const SettingsStore& settings_;
  const Owners& owners_;
  const Options options_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();

  Mutex mutex_;
  Sampler sampler_ ABSL_GUARDED_BY(mutex_);

  Pages pages_;

  Mutex stop_mutex_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(stop_mutex_) = false;
  std::thread thread_;
};

}  // namespace detshare
