#include "server/base/event_log.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "server/base/printable.h"

namespace detshare {
namespace {

int64_t UnixNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// In the order of DaemonEvent::Kind.
constexpr std::string_view kNames[] = {
    "started", "engine-started", "engine-adopted", "engine-ended", "opened",     "refused",
    "ended",   "killed",         "violation",      "limit",        "fault",      "policy",
    "tenant",  "endpoint",       "config",         "trace",        "device-lost"};
static_assert(std::size(kNames) == static_cast<size_t>(DaemonEvent::Kind::kDeviceLost) + 1);

}  // namespace

std::string_view NameOf(DaemonEvent::Kind kind) { return kNames[static_cast<size_t>(kind)]; }

std::optional<DaemonEvent::Kind> KindNamed(std::string_view name) {
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<DaemonEvent::Kind>(found - std::begin(kNames));
}

EventLog::EventLog() : id_(static_cast<uint64_t>(UnixNanoseconds())) {}

void EventLog::Add(DaemonEvent event) {
  event.text = Printable(event.text, kMaxText);
  event.unix_ns = UnixNanoseconds();
  if (owner_of_ && event.endpoint != 0) event.owner = owner_of_(event.endpoint);
  if (forward_) forward_(event);
  const MutexLock lock(&mutex_);
  event.number = next_++;
  if (events_.size() == kMax) events_.pop_front();
  events_.push_back(std::move(event));
}

EventLog::Page EventLog::From(uint64_t first, size_t max) const {
  const MutexLock lock(&mutex_);
  return FromLocked(first, max);
}

EventLog::Page EventLog::Latest(size_t max) const {
  const MutexLock lock(&mutex_);
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
