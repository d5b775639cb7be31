// Starts and ends engines, and gives them connections.
//
//     socket --> the supervisor: accepts, decides tenant and isolation group, opens no device
//                   |  connections, as descriptors (engine_channel.h)
//                   +--> engine of group A: devices, scheduler, sessions
//                   +--> engine of group B: ...
//
// An engine is a process of the same program. It starts at the first connection of its isolation
// group. It ends some time after the last one, or when it fails; the next connection starts it
// again. So a fault in one group's engine ends no session of another group.
//
// Spare engines have opened the devices and wait for a group, so that its first program need not wait. A
// spare engine ends when an engine wants device memory, and with its supervisor.
//
// Engines outlive the supervisor. The next supervisor adopts them (Adopt()). An engine of another
// version serves its sessions to the end, and the group's next connection starts an engine of this
// version beside it.
//
// Threading: one thread calls this object; the process may have others.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/engine.pb.h"
#include "server/access/descriptor_share.h"
#include "server/base/event_log.h"
#include "server/base/retry_timer.h"
#include "server/engines/client_ticket.h"
#include "server/engines/engine_channel.h"
#include "server/engines/engine_launch.h"
#include "server/engines/engine_process.h"
#include "server/engines/engine_users.h"
#include "server/engines/file_channel.h"
#include "server/engines/left_directories.h"
#include "server/engines/peer_news.h"
#include "server/engines/running_engines.h"
#include "server/engines/session_book.h"
#include "server/engines/spare_schedule.h"

namespace detshare {

// The end of an engine.
struct EndedEngine {
  EngineEnd how = EngineEnd::kAsked;
  std::string text;                // says how, in words that follow "the engine"
  std::vector<uint64_t> sessions;  // that it had, and whose files it has left
};

class Engines {
 public:
  // Each has a context on every device, and memory there.
  static constexpr size_t kMax = 256;

  struct Options {
    // The command line of an engine. `--engine GROUP --engine-directory NAME --engine-fd N
    // --admission-fd N --files-fd N` are appended; for a spare engine without `--engine GROUP`.
    std::vector<std::string> command;
    std::string program;            // the executable; "": this process's own
    std::string runtime_directory;  // has the engines' directories; an ended engine's is removed
    SessionBook::Limits limits;     // over all engines
    // Connections that wait for engines, of all groups together. They take descriptors. Those of one
    // engine may be half of them.
    size_t max_waiting = ShareOfDescriptors(4, 4096);
    // The users as which engines run; nothing: as this process's user. EngineUsers::Check() was ok.
    std::optional<UserRange> users;
    RunningEngines* running = nullptr;  // is told which engines run; outlives this object
    // Owns the descriptor of the connection, which no engine will serve. `why` is for the client.
    std::function<void(const ClientConnection& connection, absl::Status why)> refuse;
    // Called when an engine has begun or was adopted, and when it has ended; may be empty.
    std::function<void(const EngineInfo& engine, bool adopted)> begun;
    std::function<void(const EngineInfo& engine, const EndedEngine& ended)> ended;
    // Called with each event that an engine reports; may be empty.
    std::function<void(DaemonEvent event)> noted;
    // Called with what an engine's sessions behind an endpoint have used; may be empty.
    std::function<void(const EngineInfo& engine, const Reported::Use& use)> used;
    // Returns the directories of sessions outside the engines' directories, with the sessions' numbers.
    // Called once Adopt() and the engines have told which sessions go on. Those of others, whose engine
    // ended while there was no supervisor, are removed then. May be empty.
    std::function<std::map<std::string, uint64_t>()> session_directories;
  };

  explicit Engines(Options options);
  ~Engines();  // kills the engines that End() and Release() have left
  Engines(const Engines&) = delete;
  Engines& operator=(const Engines&) = delete;

  // Takes over the engines of an earlier supervisor, and removes the directories of engines that
  // have ended. Called once, before all other calls.
  void Adopt();

  // Readable when Proceed() has something to do.
  int fd() const { return epoll_; }
  // Does what is due. Does not block.
  void Proceed();
  // Gives the connection, which it owns, to the group's engine, and starts one if there is none.
  void Pass(const std::string& group, const ClientConnection& connection);
  // Tells the engines that the endpoint was closed. They end its sessions.
  void CloseEndpoint(uint64_t endpoint);
  void SetLimits(SessionBook::Limits limits) { book_.SetLimits(std::move(limits)); }
  // Ends the engine of this process, if there is one, because it hangs. Its sessions end.
  void EndHung(pid_t pid);
  // Tells the engines that the configuration or the settings have changed.
  void Reload();
  // Keeps so many spare engines from now on; at first 0.
  void KeepSpares(size_t count);
  // Tells the engines to end. Returns false if some are still there after `timeout`.
  bool End(std::chrono::milliseconds timeout);
  // Leaves the engines alone: those that a program uses go on without a supervisor, and the others
  // end. Waits for these, up to `timeout`. Returns the number of engines that go on.
  size_t Release(std::chrono::milliseconds timeout);

  // The number of engines of groups.
  size_t size() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Engine {
    uint32_t number = 0;  // no other engine of this supervisor ever has it
    EngineInfo info;
    proto::ListedEngine listed;
    bool adopted = false;     // another supervisor started it
    bool retired = false;     // it serves its sessions to the end, and gets no more connections
    bool may_retire = false;  // further connections wait
    bool asked = false;       // it was told to end
    bool spare() const { return info.group.empty(); }
    bool device_lost = false;
    bool hung = false;      // EndHung() has ended it
    bool told_all = false;  // the book has all sessions that it has from an earlier supervisor
    int process = -1;       // a pidfd of the process
    int channel = -1;       // -1: it was told to end, or it is not adopted
    int admission = -1;     // where it asks about sessions (admission_channel.h); -1: as `channel`
    std::unique_ptr<FileServer> files;  // null: as `channel`
    Clock::time_point wanted_room;      // when the others last heard that it wants device memory
    uint64_t sent = 0;
    bool full = false;                     // the channel takes no more at the moment
    std::deque<EngineOrder> orders;        // that it does not know yet
    std::deque<uint64_t> closed;           // endpoints of which it does not know yet
    std::deque<ClientConnection> waiting;  // that it, or its successor, takes later
    Clock::time_point begun;
  };
  using Running = std::map<uint32_t, Engine>;  // by their numbers

  // Begins an engine that has not been introduced, and returns it. `group` "": a spare one.
  absl::StatusOr<Running::iterator> Begin(const std::string& group);
  // Gives a spare engine to the group. Returns the end if there is none for it.
  Running::iterator AssignSpare(const std::string& group);
  // Ends spare engines that are not wanted, and lets missing ones begin in a moment.
  void AdjustSpares();
  // Begins the missing ones, as far as they are due.
  void BeginSpares();
  // The spare engines that were not told to end.
  size_t CountSpares() const;
  // Tells who wants to know which spare engines can get a group.
  void ShowSpares() const;
  // A spare engine could not begin, or has ended by itself after it ran for `ran`.
  void NoteSpareFailure(Clock::duration ran, const std::string& why);
  // Ends the spare engines, since an engine wants device memory. None begins for a while.
  void LeaveRoom();
  // Removes what is left of a process that has ended.
  void Forget(Engine& engine);
  // Returns the user of the group's engines; 0: it has none, or they run as this process's user. Engines of one
  // group belong to the same programs, which may use both for a while, so they have one user.
  uid_t UserOf(const std::string& group) const;
  // Returns the user as which the group's next engine runs; uid 0: as this process's user. Returns
  // ResourceExhausted if all users are taken.
  absl::StatusOr<EngineUser> UserFor(const std::string& group);
  // Takes over a listed engine whose process runs.
  void Adopt(const proto::ListedEngine& listed, int process);
  // Gives the engine its channels.
  void Take(const SupervisorEnds& channels, Engine& engine);
  // Returns the engine that gets the group's connections, or the end.
  Running::iterator CurrentOf(const std::string& group);
  // Whether an engine has the directory of that name.
  bool Knows(const std::string& directory) const;
  // Returns a name for a directory that no engine has: this one, or one with a number behind it.
  std::string FreeDirectory(const std::string& name) const;
  // Gives the engine its number, and watches its process and channels.
  Running::iterator Add(Engine engine);
  // Tells who wants to know of a group's engine.
  void Introduce(const Engine& engine);
  // Keeps the list of engines for the next supervisor. If that fails, save_timer_ tries again.
  void SaveList();
  void SaveAgain();
  // Passes the connection or returns why not; the caller owns it then.
  absl::Status TryToPass(const std::string& group, const ClientConnection& connection);
  // Returns whether as many connections may wait as do, for this engine and for all.
  absl::Status WaitingAllowed(const Engine& engine) const;
  // Closes the waiting connections whose programs have closed their ends.
  void DropHungUp();
  // Sends what the engine does not know, and then the waiting connections, as far as it reads.
  void Flush(Engine& engine);
  void FlushAll();
  void HandleMessage(Engine& engine);
  // The engine takes turns with the others from now on. Owns the page, which may be nonsense.
  void TakePage(Engine& engine, int page);
  // The engine wants device memory, so the others shall look. One that does not read hears of it
  // later: an engine repeats what it wants.
  void WakeForRoom(Engine& engine);
  // Decides the engine's requests about sessions. Returns whether it has decided all that have come.
  bool Decide(Engine& engine);
  // Removes the directories of sessions that no engine has, once it is known which ones these are and
  // no unknown engine runs.
  void RemoveLeftSessions();
  // The engine's process has ended.
  void Reap(Running::iterator engine);
  // Tells the engine to end.
  void Notify(Engine& engine);
  // Closes the channel.
  static void Part(Engine& engine);
  // Closes everything that this process has of the engine, but not the waiting connections.
  static void Drop(Engine& engine);
  // Waits until no engine is there for which `counts` returns true. Returns false after `timeout`.
  bool AwaitEnd(std::chrono::milliseconds timeout,
                const std::function<bool(const Engine&)>& counts);

  const Options options_;
  int epoll_ = -1;
  RetryTimer save_timer_;  // in the epoll
  bool unsaved_ = false;   // the list could not be written
  SpareSchedule spares_;   // its descriptor is in the epoll
  bool ending_ = false;
  uint32_t next_ = 1;
  Running engines_;
  PeerNews news_;
  SessionBook book_;
  TicketKey key_ = TicketKey::Random();
  std::optional<EngineUsers> users_;
  uint64_t first_session_ = 0;        // sessions of earlier supervisors have lower numbers
  bool left_sessions_ = true;         // RemoveLeftSessions() has something to do
  LeftDirectories left_directories_;  // its descriptor is in the epoll
  uint64_t reserved_ = 0;             // next_session of the list that was written last
  std::map<std::string, Clock::time_point>
      failed_;  // groups whose engine ended soon after it began
};

}  // namespace detshare
