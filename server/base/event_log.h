// What happened to sessions and settings lately, for people: a bounded list, which forgets its
// oldest entry for each new one. It is no audit: the log on stderr has everything.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace detshare {

struct DaemonEvent {
  enum class Kind {
    kStarted,        // the daemon
    kOpened,         // a session
    kRefused,        // a session that was asked for
    kEnded,          // a session, by itself
    kKilled,         // a session, by somebody who may
    kViolation,      // a session, which broke the protocol
    kFault,          // of a session's work
    kPolicy,         // another one decides
    kTenant,         // something was said about one
    kConfiguration,  // it was read again
    kTrace,          // one is taken
    kDeviceLost,
  };

  uint64_t number = 0;   // 1, 2, ...: set by Add()
  int64_t unix_ns = 0;   // set by Add()
  Kind kind = Kind::kStarted;
  uint64_t session = 0;  // 0: of none
  std::string tenant, program;
  int pid = 0;           // of whom it is about, or who did it; 0: not known
  uint32_t uid = 0;
  std::string text;      // one line; Add() replaces what is not printable ASCII
};

// "opened", "device-lost".
std::string_view NameOf(DaemonEvent::Kind kind);

// Any thread.
class EventLog {
 public:
  static constexpr size_t kMax = 4096;
  static constexpr size_t kMaxText = 1024;  // of one event

  EventLog();

  void Add(DaemonEvent event);

  struct Page {
    std::vector<DaemonEvent> events;  // in their order
    uint64_t next = 1;                // what comes after them
    uint64_t lost = 0;                // events that were asked for and are forgotten
  };
  // Events from number `first` on, at most `most`.
  Page From(uint64_t first, size_t max) const;
  // The latest `most`.
  Page Latest(size_t max) const;
  // Names this list: another daemon's numbers begin again.
  uint64_t id() const { return id_; }

 private:
  Page FromLocked(uint64_t first, size_t max) const;

  const uint64_t id_;
  mutable std::mutex mutex_;
  std::deque<DaemonEvent> events_;  // guarded by mutex_
  uint64_t next_ = 1;               // guarded by mutex_
};

}  // namespace detshare
