// Keeps the latest events of sessions and settings for operators. The list is bounded and forgets
// its oldest event for each new one. It is no audit log: the log on stderr has everything.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/admin.pb.h"
#include "proto/mutex.h"

namespace detshare {

struct DaemonEvent {
  enum class Kind {
    kStarted,        // the daemon started
    kEngineStarted,  // an isolation group got an engine
    kEngineAdopted,  // an engine goes on under another supervisor
    kEngineEnded,    // an engine ended, and its sessions with it
    kOpened,         // a session was opened
    kRefused,        // a request for a session was refused
    kEnded,          // a session ended by itself
    kKilled,         // an operator, or the session's user, ended it
    kViolation,      // a session broke the protocol
    kLimit,          // a limit of its tenant refused something to a session for the first time
    kFault,          // a session's work had a fault
    kPolicy,         // another policy was set
    kTenant,         // a tenant's settings were changed
    kEndpoint,       // a tenant endpoint was opened or closed, or got another owner
    kConfiguration,  // the configuration was read again
    kTrace,          // a trace was started
    kDeviceLost,
  };

  uint64_t number = 0;  // 1, 2, ...; Add() sets it
  int64_t unix_ns = 0;  // Add() sets it
  Kind kind = Kind::kStarted;
  uint64_t session = 0;  // 0: the event concerns no session
  std::string tenant, program;
  int pid = 0;  // the client's or operator's process; 0: not known
  uint32_t uid = 0;
  std::string text;       // one line; Add() replaces what is not printable ASCII
  uint64_t endpoint = 0;  // the number of the tenant endpoint that it concerns; 0: none
  proto::Owner owner;     // of that endpoint; Add() sets it if the log knows owners
};

// Returns a name such as "opened" or "device-lost".
std::string_view NameOf(DaemonEvent::Kind kind);
// Returns the kind of that name; nothing if there is none.
std::optional<DaemonEvent::Kind> KindNamed(std::string_view name);

// Any thread may call it.
class EventLog {
 public:
  static constexpr size_t kMax = 4096;
  static constexpr size_t kMaxText = 1024;  // bytes of one event's text

  EventLog();

  void Add(DaemonEvent event);
  // Calls `to` with each event that is added from now on. `to` does not wait. Called before other
  // threads add events.
  void Forward(std::function<void(const DaemonEvent&)> to) { forward_ = std::move(to); }

  // Returns the owner of the endpoint with this number. Called before other threads add events.
  void KnowOwners(std::function<proto::Owner(uint64_t endpoint)> of) { owner_of_ = std::move(of); }

  struct Page {
    std::vector<DaemonEvent> events;  // in order of their numbers
    uint64_t next = 1;                // the number of the first event after this page
    uint64_t lost = 0;                // events that were asked for and are forgotten
  };
  // Returns events from number `first` on, at most `max`.
  Page From(uint64_t first, size_t max) const;
  // Returns the latest events, at most `max`.
  Page Latest(size_t max) const;
  // Identifies this list (the time of its creation): the numbers of another daemon begin again.
  uint64_t id() const { return id_; }

 private:
  Page FromLocked(uint64_t first, size_t max) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t id_;
  std::function<void(const DaemonEvent&)> forward_;  // empty: events stay here
  std::function<proto::Owner(uint64_t)> owner_of_;   // empty: no owners are known here
  mutable Mutex mutex_;
  std::deque<DaemonEvent> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace detshare
