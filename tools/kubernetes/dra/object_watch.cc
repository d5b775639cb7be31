#include "tools/kubernetes/dra/object_watch.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/kubernetes/dra/json_path.h"

namespace detshare::kubernetes {
namespace {

// The server is asked to end the watch after this time, and a connection that is silent for longer
// is lost.
constexpr int kWatchSeconds = 300;
constexpr std::chrono::seconds kSilence(kWatchSeconds + 30);
constexpr std::chrono::milliseconds kFirstPause(250), kLongestPause(30'000);
// A watch that lasted as long worked.
constexpr std::chrono::seconds kLastingWatch(5);
constexpr int kPage = 500;

}  // namespace

std::chrono::milliseconds Backoff(int failures, std::chrono::milliseconds first,
                                  std::chrono::milliseconds longest) {
  std::chrono::milliseconds pause = first;
  for (int i = 1; i < failures && pause < longest; ++i) pause *= 2;
  pause = std::min(pause, longest);
  thread_local std::minstd_rand random{std::random_device{}()};
  const auto half = pause.count() / 2;
  return std::chrono::milliseconds(
      half + std::uniform_int_distribution<decltype(pause)::rep>(0, pause.count() - half)(random));
}

ObjectWatch::ObjectWatch(const ApiServer& api, std::string path, const std::string& selector,
                         Callbacks callbacks)
    : api_(api),
      list_path_(absl::StrCat(path, "?fieldSelector=", Encode(selector))),
      callbacks_(std::move(callbacks)) {
  thread_ = std::thread([this] { Run(); });
}

ObjectWatch::~ObjectWatch() {
  {
    const MutexLock lock(&mutex_);
    stopped_ = true;
    if (stream_ != nullptr) stream_->Stop();
    wake_.SignalAll();
  }
  thread_.join();
}

bool ObjectWatch::stopped() const {
  const MutexLock lock(&mutex_);
  return stopped_;
}

void ObjectWatch::Run() {
  int failures = 0;
  while (!stopped()) {
    const auto begun = std::chrono::steady_clock::now();
    const absl::Status ended = Follow();
    if (stopped()) return;
    if (std::chrono::steady_clock::now() - begun > kLastingWatch) failures = 0;
    // What came before the end does not count again, but a server that always ends is not called all
    // the time.
    if (std::exchange(progressed_, false)) failures = std::min(failures, 1);
    if (!absl::IsOutOfRange(ended)) {
      version_.clear();
      callbacks_.problem(std::string(ended.message()));
    } else if (failures == 0) {
      ++failures;  // a server that ends each watch at once is not called all the time
      continue;
    }
    const MutexLock lock(&mutex_);
    wake_.WaitFor(&mutex_, Backoff(++failures, kFirstPause, kLongestPause),
                  [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_; });
  }
}

absl::Status ObjectWatch::Follow() {
  if (version_.empty()) {
    std::vector<Json> objects;
    std::string rest;
    do {
      const std::string page = rest.empty() ? "" : absl::StrCat("&continue=", Encode(rest));
      const absl::StatusOr<Json> list = api_.Get(absl::StrCat(list_path_, "&limit=", kPage, page));
      if (!list.ok()) {
        // 410 here is about the pages and not the end of a watch.
        return absl::UnavailableError(std::string(list.status().message()));
      }
      for (const Json& object : List(At(*list, "items"))) objects.push_back(object);
      version_ = Text(At(*list, "metadata", "resourceVersion"));
      rest = Text(At(*list, "metadata", "continue"));
    } while (!rest.empty() && !stopped());
    if (version_.empty()) return absl::UnavailableError("the list has no resourceVersion");
    if (stopped()) return absl::CancelledError("stopped");
    callbacks_.listed(objects);
    progressed_ = true;
  }
  return Stream();
}

absl::Status ObjectWatch::Stream() {
  WatchStream stream;
  {
    const MutexLock lock(&mutex_);
    if (stopped_) return absl::CancelledError("stopped");
    stream_ = &stream;
  }
  absl::Status ended =
      stream.Open(api_.access(), absl::StrCat(list_path_, "&watch=true&allowWatchBookmarks=true",
                                              "&timeoutSeconds=", kWatchSeconds,
                                              "&resourceVersion=", Encode(version_)));
  // The history of the server does not reach back so far, which is no failure: lists again.
  const bool too_old = absl::IsOutOfRange(ended);
  if (ended.ok()) callbacks_.problem("");
  while (ended.ok()) {
    const absl::StatusOr<Json> event = stream.Next(kSilence);
    if (!event.ok()) {
      ended = event.status();
      break;
    }
    const std::string type = Text(At(*event, "type"));
    const Json& object = At(*event, "object");
    if (type == "ERROR") {
      version_.clear();
      ended = At(object, "code") == 410 ? absl::OutOfRangeError("the history is gone")
                                        : absl::UnavailableError(Text(At(object, "message")));
      break;
    }
    const std::string version = Text(At(object, "metadata", "resourceVersion"));
    if (!version.empty()) version_ = version;
    progressed_ = true;
    if (type == "ADDED" || type == "MODIFIED" || type == "DELETED")
      callbacks_.changed(object, type == "DELETED");
  }
  if (too_old) version_.clear();
  const MutexLock lock(&mutex_);
  stream_ = nullptr;
  return ended;
}

}  // namespace detshare::kubernetes
