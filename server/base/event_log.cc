#include "server/base/event_log.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/base/printable.h"

namespace detshare {
namespace {

int64_t UnixNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string_view NameOf(DaemonEvent::Kind kind) {
  switch (kind) {
    case DaemonEvent::Kind::kStarted:
      return "started";
    case DaemonEvent::Kind::kOpened:
      return "opened";
    case DaemonEvent::Kind::kRefused:
      return "refused";
    case DaemonEvent::Kind::kEnded:
      return "ended";
    case DaemonEvent::Kind::kKilled:
      return "killed";
    case DaemonEvent::Kind::kViolation:
      return "violation";
    case DaemonEvent::Kind::kFault:
      return "fault";
    case DaemonEvent::Kind::kPolicy:
      return "policy";
    case DaemonEvent::Kind::kTenant:
      return "tenant";
    case DaemonEvent::Kind::kConfiguration:
      return "config";
    case DaemonEvent::Kind::kTrace:
      return "trace";
    case DaemonEvent::Kind::kDeviceLost:
      return "device-lost";
  }
  return "";
}

EventLog::EventLog() : id_(static_cast<uint64_t>(UnixNanoseconds())) {}

void EventLog::Add(DaemonEvent event) {
  event.text = Printable(event.text, kMaxText);
  event.unix_ns = UnixNanoseconds();
  const std::lock_guard<std::mutex> lock(mutex_);
  event.number = next_++;
  if (events_.size() == kMax) events_.pop_front();
  events_.push_back(std::move(event));
}

EventLog::Page EventLog::From(uint64_t first, size_t max) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return FromLocked(first, max);
}

EventLog::Page EventLog::Latest(size_t max) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t held = std::min<uint64_t>(max, events_.size());
  return FromLocked(next_ - held, max);
}

EventLog::Page EventLog::FromLocked(uint64_t first, size_t max) const {
  Page page;
  const uint64_t oldest = next_ - events_.size();
  const uint64_t from = std::clamp(std::max<uint64_t>(first, 1), oldest, next_);
  page.lost = first >= 1 && first < oldest ? oldest - first : 0;
  const uint64_t count = std::min<uint64_t>(max, next_ - from);
  const auto begin = events_.begin() + static_cast<ptrdiff_t>(from - oldest);
  page.events.assign(begin, begin + static_cast<ptrdiff_t>(count));
  page.next = from + count;
  return page;
}

}  // namespace detshare
