// Follows the objects of a collection of the API server: lists them, and then watches for changes,
// for as long as it lives. It begins again when the server ends the watch, loses its history (410) or
// is away, and waits longer after each failure, up to half a minute.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/mutex.h"
#include "tools/kubernetes/dra/api_server.h"

namespace detshare::kubernetes {

// The time before the next attempt after `failures` failures in a row: doubles from `first` to
// `longest`, of which a random part is taken, so that the drivers of many nodes do not call at once.
std::chrono::milliseconds Backoff(int failures, std::chrono::milliseconds first,
                                  std::chrono::milliseconds longest);

class ObjectWatch {
 public:
  struct Callbacks {
    // All objects that there are; after every (re)start of the watch.
    std::function<void(const std::vector<Json>& objects)> listed;
    // An object was added or changed, or `deleted`.
    std::function<void(const Json& object, bool deleted)> changed;
    // What goes wrong; "" when the watch works again.
    std::function<void(const std::string& problem)> problem;
  };

  // `path` is that of the collection, and `selector` a field selector. The callbacks come on a thread
  // of the watch. `api` outlives it.
  ObjectWatch(const ApiServer& api, std::string path, const std::string& selector,
              Callbacks callbacks);
  ~ObjectWatch();  // no callback runs afterwards; not called by a callback
  ObjectWatch(const ObjectWatch&) = delete;
  ObjectWatch& operator=(const ObjectWatch&) = delete;

 private:
  void Run();
  // Returns why it ended; OutOfRange in order.
  absl::Status Follow();
  absl::Status Stream();
  bool stopped() const;

  const ApiServer& api_;
  const std::string list_path_;
  const Callbacks callbacks_;
  std::string version_;      // of the last object; "": the objects must be listed
  bool progressed_ = false;  // Follow() has learned something since Run() looked

  mutable Mutex mutex_;
  CondVar wake_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  WatchStream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;
};

}  // namespace detshare::kubernetes
