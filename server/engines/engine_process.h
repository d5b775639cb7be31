// The process of one engine: where its files are, how it gets connections, and when it ends.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/mutex.h"
#include "server/engines/engine_channel.h"
#include "server/sessions/ended_work.h"

namespace detshare {

// The directory of all engines, below the runtime directory.
std::string EnginesDirectory(const std::string& runtime_directory);
// What the engines of a supervisor know together about their devices: a directory in that of all
// engines. It lasts as long as one of them.
inline constexpr char kSharedByEngines[] = "shared~";
std::string SharedDirectory(const std::string& runtime_directory);
// The same number in all processes of a daemon, and another one in other daemons of the host; 0 if the
// directory of all engines is not there.
uint64_t NumberOfDaemon(const std::string& runtime_directory);
// An engine's directory of that name: as a path of the host, and as clients reach it from the main
// socket's directory.
std::string EngineDirectory(const std::string& runtime_directory, const std::string& name);
std::string EngineDirectoryForClients(const std::string& name);
// The engine's own socket, where the supervisor asks it.
std::string EngineSocket(const std::string& engine_directory);
// The engine's socket for a supervisor that adopts it. It keeps message boundaries.
std::string AdoptionSocket(const std::string& engine_directory);

// How an engine ended: it was asked to, it failed, or it lost a device.
enum class EngineEnd { kAsked, kFailed, kDeviceLost };

// The engine's end of its channel. If the supervisor ends, the engine goes on, and the next
// supervisor connects to the adoption socket. One thread uses it, except where noted.
class EngineMember {
 public:
  // Owns the channel. `page` is the engine's page (engine_pages.h), which each supervisor gets; it
  // outlives the object. After `idle` without use, the engine offers to end, or ends if there is no
  // supervisor. Returns the errors of the adoption socket, which only this process's user reaches.
  static absl::StatusOr<std::unique_ptr<EngineMember>> Create(int channel, int page,
                                                              const std::string& directory,
                                                              std::chrono::milliseconds idle);
  ~EngineMember();
  EngineMember(const EngineMember&) = delete;
  EngineMember& operator=(const EngineMember&) = delete;

  // Waits until the supervisor has told of all other engines, for `max` at most. Calls `take` for the
  // messages that do; Proceed() gets the others. Call it before Proceed().
  void AwaitPeers(const std::function<void(const Received&)>& take, std::chrono::milliseconds max);
  // The same for engines that come or go later, until the descriptor `stop` is readable.
  void TakePeers(const std::function<void(const Received&)>& take, int stop);

  // For a spare engine, before Proceed(): waits until the supervisor says whom it serves. Calls `take` as
  // AwaitPeers(). Returns nothing if the process must end: there is no supervisor, it says so, or the
  // descriptor `stop` is readable.
  std::optional<Assignment> AwaitAssignment(const std::function<void(const Received&)>& take,
                                            int stop);

  // Readable when Proceed() has something to do.
  int fd() const { return epoll_; }
  // Calls `take` for each message that has come, and offers to end if that is due. Returns false
  // if the process must end.
  bool Proceed(const std::function<void(const Received&)>& take,
               const std::function<bool()>& in_use);
  // Returns in how many milliseconds Proceed() must be called again at the latest.
  int timeout() const;

  // Tell the supervisor of an event, or that the engine has lost a device. Do not wait. Any thread
  // may call them.
  void Report(const DaemonEvent& event) const;
  // The same for what was used behind an endpoint. Returns false if no supervisor reads it now.
  bool ReportUse(uint64_t endpoint, const EndpointUse::Figures& figures) const;
  void ReportLoss() const;
  void ReportWantsRoom() const;
  // Tells this supervisor, and later ones, whether work of ended sessions runs on. Does not wait. Any
  // thread may call it.
  void Report(EndedWork ended_work);
  // The supervisor's process; -1: there is none. Any thread may call it.
  pid_t supervisor() const { return supervisor_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  EngineMember(int epoll, int listen_fd, int page, std::chrono::milliseconds idle);
  // The process at the channel's other end is the supervisor from now on.
  void Adopt(int channel);
  // Takes connections at the adoption socket. The latest one wins: only a process of this user that
  // holds the lock of the daemon's socket connects there.
  void AcceptSupervisors();
  // Before Proceed(): takes a message, or keeps it for Proceed(). Returns false if there is none. Sets
  // `*told` if the message names all other engines.
  bool TakeEarly(const std::function<void(const Received&)>& take, bool* told);
  // No further message will come before Proceed().
  bool EndsEarly() const { return !early_.empty() && early_.back().end; }
  // Takes the assignment out of the messages that came early, and those that a process without programs
  // need not know.
  std::optional<Assignment> TakeAssignment();
  // The next message, as TakeMessage().
  Received TakeNext();
  // There is no supervisor any more.
  void Leave();
  // Requires a supervisor.
  void ReportEndedWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int epoll_, listen_fd_, page_;
  const std::chrono::milliseconds idle_;
  mutable Mutex mutex_;
  // -1: there is no supervisor. Only the thread of Proceed() changes it, so that this thread reads it
  // without the lock.
  int channel_ = -1;
  EndedWork ended_work_ = EndedWork::kNone;  // guarded by mutex_
  // Relaxed: it publishes nothing else. An observer that reads it late takes a process that has ended
  // for the supervisor.
  std::atomic<pid_t> supervisor_{-1};
  bool released_ = false;  // the supervisor has ended in order
  uint64_t received_ = 0;
  std::deque<Received> early_;  // messages that came before the first Proceed()
  Clock::time_point idle_since_ = Clock::now();
};

}  // namespace detshare
