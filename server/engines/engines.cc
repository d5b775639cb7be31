#include "server/engines/engines.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "proto/version.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"
#include "server/base/remove_tree.h"
#include "server/engines/admission_channel.h"
#include "server/engines/code_cache.h"
#include "server/engines/engine_launch.h"
#include "server/engines/engine_list.h"
#include "server/engines/engine_process.h"
#include "server/engines/isolation_group.h"

namespace detshare {
namespace {

// The source of an event of the epoll, in the upper half of its data. The lower half is the engine's
// number.
enum class Source : uint64_t {
  kChannel = 1,
  kProcess = 2,
  kAdmission = 3,
  kTimer = 4,
  kSpareTimer = 5,
  kLeftDirectories = 6
};

// A process that ends sooner than this after its beginning has failed. It is not started again for
// as long.
constexpr std::chrono::seconds kSoon(2);
constexpr size_t kMaxWaiting = 512;
constexpr size_t kMaxFailed = 1024;
// The list of engines is written once for so many sessions.
constexpr uint64_t kReserved = 1000;
// An engine that wants device memory wakes the others at most so often.
constexpr std::chrono::milliseconds kWakePeriod(5);
// A process that the driver or the kernel holds does not end.
constexpr std::chrono::seconds kKillTimeout(5);

void Watch(int epoll, int fd, Source source, uint32_t engine, uint32_t events = EPOLLIN,
           int operation = EPOLL_CTL_ADD) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(source) << 32 | engine;
  epoll_ctl(epoll, operation, fd, &event);
}

void CloseIfOpen(int fd) {
  if (fd >= 0) close(fd);
}

// The number of admission requests that are decided in one round, so that one engine cannot keep
// the others waiting.
constexpr int kMaxAtOnce = 64;
// Rounds in which an engine's requests are decided that have come before something else.
constexpr int kMaxRounds = 256;

// The name of a spare engine's directory. No group's name has this sign.
constexpr char kSpareDirectory[] = "spare~";

std::string Ending(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("was ended by signal ", WTERMSIG(status));
  return absl::StrCat("ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

Engines::Engines(Options options)
    : options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      left_directories_(options_.runtime_directory, [this](const std::string& name) {
        return Knows(name) || (name == kSharedByEngines && !engines_.empty());
      }) {
  Watch(epoll_, save_timer_.fd(), Source::kTimer, 0);
  Watch(epoll_, spares_.fd(), Source::kSpareTimer, 0);
  Watch(epoll_, left_directories_.fd(), Source::kLeftDirectories, 0);
  if (options_.users.has_value()) users_.emplace(*options_.users);
  book_.SetLimits(options_.limits);
}

Engines::~Engines() {
  // The driver takes its time for each process that ends, and for several at once.
  for (const auto& [number, engine] : engines_) SendSignal(engine.process, SIGKILL);
  const Clock::time_point until = Clock::now() + kKillTimeout;
  for (auto& [number, engine] : engines_) {
    if (!engine.adopted) {
      if (AwaitProcessEnd(engine.process, until)) {
        waitpid(engine.info.pid, nullptr, 0);
      } else {
        LogWarning("engine ", engine.info.pid,
                   " got SIGKILL and does not end: the driver or the kernel holds it");
      }
    }
    Drop(engine);
    for (const ClientConnection& connection : engine.waiting) close(connection.fd);
  }
  close(epoll_);
}

void Engines::Adopt() {
  const std::string directory = EnginesDirectory(options_.runtime_directory);
  const std::string list_file = EngineListFile(directory);
  const proto::EngineList list = ReadEngineList(list_file);
  book_.BeginAt(list.next_session());
  first_session_ = book_.next();
  key_ = TicketKey::FromBytes(list.ticket_key()).value_or(key_);
  for (const proto::ListedEngine& listed : list.engines()) {
    const int process = OpenListed(listed);
    if (process < 0) continue;
    // A spare engine serves nobody, and began with the settings of its supervisor.
    if (listed.group().empty()) {
      SendSignal(process, SIGKILL);
      AwaitProcessEnd(process, Clock::now() + kKillTimeout);
      close(process);
      continue;
    }
    Adopt(listed, process);
  }
  left_directories_.Remove();
  // Engines with users of their own read there.
  const std::string shared = SharedDirectory(options_.runtime_directory);
  mkdir(shared.c_str(), 0700);  // may be there
  if (users_.has_value()) chmod(shared.c_str(), 0711);
  SaveList();
}

void Engines::Adopt(const proto::ListedEngine& listed, int process) {
  Engine engine;
  engine.listed = listed;
  engine.info = {listed.group(), listed.pid(),
                 EngineDirectory(options_.runtime_directory, listed.directory())};
  engine.adopted = true;
  engine.process = process;
  // Another version serves its sessions only. One with other messages does so on its own.
  engine.retired = listed.version() != kVersion || CurrentOf(listed.group()) != engines_.end();
  absl::StatusOr<SupervisorEnds> channels =
      absl::UnavailableError("it belongs to an incompatible version");
  if (listed.protocol() == kEngineProtocol)
    channels = AdoptEngine(engine.info.directory, listed.pid(), process);
  if (channels.ok()) {
    Take(*channels, engine);
    // It says next whether work of ended sessions runs (EngineMember::Adopt()).
    engine.may_retire = true;
  } else {
    engine.retired = true;
    LogWarning(
        "the engine of isolation group ", listed.group(), " (pid ", listed.pid(),
        ") serves its sessions without a supervisor: ", std::string(channels.status().message()));
  }
  Introduce(Add(std::move(engine))->second);
}

void Engines::Take(const SupervisorEnds& channels, Engine& engine) {
  engine.channel = channels.messages;
  engine.admission = channels.admission;
  engine.files = std::make_unique<FileServer>(channels.files, key_);
}

size_t Engines::size() const {
  return std::count_if(engines_.begin(), engines_.end(),
                       [](const Running::value_type& one) { return !one.second.spare(); });
}

Engines::Running::iterator Engines::Add(Engine engine) {
  engine.number = next_++;
  news_.Add(engine.number, engine.info.pid, engine.spare());
  Watch(epoll_, engine.process, Source::kProcess, engine.number);
  if (engine.channel >= 0) Watch(epoll_, engine.channel, Source::kChannel, engine.number);
  if (engine.admission >= 0) Watch(epoll_, engine.admission, Source::kAdmission, engine.number);
  return engines_.emplace(engine.number, std::move(engine)).first;
}

void Engines::Introduce(const Engine& engine) {
  LogInfo("isolation group ", engine.info.group,
          engine.adopted ? " keeps its engine: pid " : " has an engine: pid ", engine.info.pid,
          engine.adopted ? absl::StrCat(", version ", engine.listed.version()) : "");
  if (options_.running != nullptr) options_.running->Add(engine.info);
  if (options_.begun) options_.begun(engine.info, engine.adopted);
}

void Engines::SaveList() {
  proto::EngineList list;
  for (const auto& [number, engine] : engines_) {
    if (!engine.asked) *list.add_engines() = engine.listed;
  }
  const uint64_t reserved = book_.next() + kReserved;
  list.set_next_session(reserved);
  list.set_ticket_key(key_.bytes());
  const std::string file = EngineListFile(EnginesDirectory(options_.runtime_directory));
  const absl::Status written = WriteEngineList(file, list);
  if (written.ok()) {
    reserved_ = reserved;
    if (std::exchange(unsaved_, false)) LogInfo(file, " is written again");
    return;
  }
  if (!std::exchange(unsaved_, true)) {
    LogWarning(
        std::string(written.message()),
        "; a supervisor that replaces this one will not know its engines until that succeeds: "
        "free space there");
  }
  save_timer_.Start();
}

void Engines::SaveAgain() {
  save_timer_.Clear();
  if (unsaved_) SaveList();
}

Engines::Running::iterator Engines::CurrentOf(const std::string& group) {
  return std::find_if(engines_.begin(), engines_.end(), [&](const Running::value_type& one) {
    return !one.second.retired && one.second.info.group == group;
  });
}

bool Engines::Knows(const std::string& directory) const {
  return std::any_of(engines_.begin(), engines_.end(), [&](const Running::value_type& one) {
    return one.second.listed.directory() == directory;
  });
}

std::string Engines::FreeDirectory(const std::string& name) const {
  std::string free = name;
  const auto taken = [&] {
    return Knows(free) || EngineUses(EngineDirectory(options_.runtime_directory, free));
  };
  // No group's directory has this sign.
  for (int i = 2; taken(); ++i) free = absl::StrCat(name, "~", i);
  return free;
}

void Engines::Proceed() {
  epoll_event events[16];
  const int count = epoll_wait(epoll_, events, 16, 0);
  for (int i = 0; i < count; ++i) {
    const auto source = static_cast<Source>(events[i].data.u64 >> 32);
    if (source == Source::kTimer) SaveAgain();
    if (source == Source::kSpareTimer) BeginSpares();
    if (source == Source::kLeftDirectories) left_directories_.RemoveMore();
    const auto engine = engines_.find(static_cast<uint32_t>(events[i].data.u64 & UINT32_MAX));
    if (engine == engines_.end()) continue;
    if (source == Source::kProcess) Reap(engine);
    if (source == Source::kChannel) HandleMessage(engine->second);
    if (source == Source::kAdmission) Decide(engine->second);
  }
  if (left_sessions_) RemoveLeftSessions();
}

void Engines::RemoveLeftSessions() {
  const auto silent = [](const Running::value_type& one) {
    return one.second.adopted && !one.second.told_all;
  };
  if (left_directories_.unknown_engines() || ending_ ||
      std::any_of(engines_.begin(), engines_.end(), silent))
    return;
  std::map<std::string, uint64_t> found;
  if (options_.session_directories) found = options_.session_directories();
  // An engine may just have opened a session whose number is of an earlier supervisor. It has told
  // that before it has made the directory.
  for (auto& [number, engine] : engines_) {
    bool decided = engine.admission < 0;
    for (int i = 0; !decided && i < kMaxRounds; ++i) decided = Decide(engine);
    if (!decided) return;
  }
  left_sessions_ = false;
  size_t removed = 0;
  for (const auto& [path, session] : found) {
    if (session >= first_session_ || book_.Has(session)) continue;
    RemoveTree(path);
    ++removed;
  }
  if (removed != 0)
    LogInfo(
        "sessions whose engine ended while there was no supervisor, and whose files are removed: ",
        removed);
}

void Engines::Pass(const std::string& group, const ClientConnection& connection) {
  absl::Status passed = TryToPass(group, connection);
  if (!passed.ok()) options_.refuse(connection, std::move(passed));
}

absl::Status Engines::TryToPass(const std::string& group, const ClientConnection& connection) {
  if (ending_) return absl::UnavailableError("the daemon ends");
  auto engine = CurrentOf(group);
  if (engine == engines_.end()) {
    const auto failed = failed_.find(group);
    if (failed != failed_.end() && Clock::now() - failed->second < kSoon) {
      return absl::UnavailableError(
          absl::StrCat("the engine of isolation group ", group,
                       " ended soon after its start, as the daemon's log says"));
    }
    failed_.erase(group);
    if (size() >= kMax)
      return absl::ResourceExhaustedError(
          absl::StrCat("the daemon has ", kMax, " engines: let programs of other groups end"));
    engine = AssignSpare(group);
    if (engine == engines_.end()) {
      const absl::StatusOr<Running::iterator> begun = Begin(group);
      if (!begun.ok()) {
        LogError("no engine for isolation group ", group, ": ",
                 std::string(begun.status().message()));
        return begun.status();
      }
      engine = *begun;
    }
    Introduce(engine->second);
    SaveList();
    AdjustSpares();
  }
  const uid_t user = engine->second.listed.user();
  // Only the engine makes files there.
  if (user != 0 && connection.endpoint != nullptr &&
      fchown(connection.endpoint->sessions_fd, user, users_->group()) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot give the endpoint's directory to the engine: ", ErrnoText(errno)));
  }
  news_.NoteTenant(engine->first, connection.tenant);
  FlushAll();
  std::deque<ClientConnection>& waiting = engine->second.waiting;
  waiting.push_back(connection);
  waiting.back().ticket = key_.TicketFor(connection.pid, connection.uid);
  Flush(engine->second);
  // The limits are for connections that an engine cannot take at once.
  if (waiting.empty() || WaitingAllowed(engine->second).ok()) return absl::OkStatus();
  DropHungUp();
  if (waiting.empty() || waiting.back().fd != connection.fd) return absl::OkStatus();
  absl::Status allowed = WaitingAllowed(engine->second);
  if (!allowed.ok()) waiting.pop_back();
  return allowed;
}

absl::Status Engines::WaitingAllowed(const Engine& engine) const {
  // One engine that takes none leaves room for those of other groups, which may just begin.
  if (engine.waiting.size() > std::clamp<size_t>(options_.max_waiting / 2, 1, kMaxWaiting)) {
    return absl::UnavailableError(absl::StrCat(
        "too many programs wait for the engine of isolation group ", engine.info.group));
  }
  size_t waiting = 0;
  for (const auto& [number, one] : engines_) waiting += one.waiting.size();
  if (waiting <= options_.max_waiting) return absl::OkStatus();
  return absl::UnavailableError("too many programs wait for engines: try again in a moment");
}

void Engines::DropHungUp() {
  for (auto& [number, engine] : engines_) {
    std::vector<pollfd> fds;
    for (const ClientConnection& connection : engine.waiting)
      fds.push_back({connection.fd, POLLRDHUP, 0});
    if (fds.empty() || poll(fds.data(), fds.size(), 0) <= 0) continue;
    size_t at = 0;
    std::erase_if(engine.waiting, [&](const ClientConnection& connection) {
      const bool gone = (fds[at++].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
      if (gone) close(connection.fd);
      return gone;
    });
  }
}

void Engines::Flush(Engine& engine) {
  if (engine.channel < 0) return;
  while (!engine.orders.empty() && PassOrder(engine.channel, engine.orders.front()).ok())
    engine.orders.pop_front();
  while (!engine.closed.empty() && PassClosedEndpoint(engine.channel, engine.closed.front()).ok())
    engine.closed.pop_front();
  // What it learns of the others comes before its first program.
  news_.Send(engine.number, engine.channel);
  const bool open = news_.Introduced(engine.number) && !engine.may_retire;
  while (open && !engine.waiting.empty() &&
         PassConnection(engine.channel, engine.waiting.front()).ok()) {
    close(engine.waiting.front().fd);
    engine.waiting.pop_front();
    ++engine.sent;
  }
  // A process that has just begun reads later: what it gets stays here.
  const bool left = news_.has_news(engine.number) || (open && !engine.waiting.empty()) ||
                    !engine.closed.empty() || !engine.orders.empty();
  if (engine.full == left) return;
  engine.full = !engine.full;
  const uint32_t events = engine.full ? EPOLLIN | EPOLLOUT : EPOLLIN;
  Watch(epoll_, engine.channel, Source::kChannel, engine.number, events, EPOLL_CTL_MOD);
}

void Engines::FlushAll() {
  for (auto& [number, engine] : engines_) Flush(engine);
}

void Engines::TakePage(Engine& engine, int page) {
  if (!news_.TakePage(engine.number, page)) {
    LogWarning("the engine of isolation group ", engine.info.group, " (pid ", engine.info.pid,
               ") sends a page that others could change, or a second one");
  }
  FlushAll();
  if (engine.spare()) ShowSpares();
}

void Engines::WakeForRoom(Engine& engine) {
  if (Clock::now() - engine.wanted_room < kWakePeriod) return;
  engine.wanted_room = Clock::now();
  LeaveRoom();
  for (auto& [number, other] : engines_) {
    if (other.channel >= 0 && number != engine.number) PassLookForRoom(other.channel).IgnoreError();
  }
}

void Engines::EndHung(pid_t pid) {
  for (auto& [number, engine] : engines_) {
    if (engine.info.pid != pid) continue;
    engine.hung = true;
    SendSignal(engine.process, SIGKILL);
  }
}

void Engines::CloseEndpoint(uint64_t endpoint) {
  for (auto& [number, engine] : engines_) {
    std::erase_if(engine.waiting, [&](const ClientConnection& one) {
      const bool through = one.endpoint != nullptr && one.endpoint->number == endpoint;
      if (through) close(one.fd);
      return through;
    });
    engine.closed.push_back(endpoint);
    Flush(engine);
  }
}

uid_t Engines::UserOf(const std::string& group) const {
  const auto found =
      std::find_if(engines_.begin(), engines_.end(), [&](const Running::value_type& one) {
        return !one.second.spare() && one.second.info.group == group &&
               one.second.listed.user() != 0;
      });
  return found == engines_.end() ? 0 : found->second.listed.user();
}

absl::StatusOr<EngineUser> Engines::UserFor(const std::string& group) {
  if (!users_.has_value()) return EngineUser();
  if (const uid_t user = UserOf(group); user != 0) return EngineUser{user, users_->group()};
  std::set<uid_t> taken;
  for (const auto& [number, engine] : engines_) {
    taken.insert(engine.listed.user());
  }
  const std::optional<uid_t> user = users_->Choose(taken);
  if (!user.has_value())
    return absl::ResourceExhaustedError(
        "all users of engine_users have engines: let programs of other groups end, or let an "
        "operator give the daemon more users");
  return EngineUser{*user, users_->group()};
}

Engines::Running::iterator Engines::AssignSpare(const std::string& group) {
  // The next engine must have the user of the one that it follows.
  if (UserOf(group) != 0) return engines_.end();
  const auto found =
      std::find_if(engines_.begin(), engines_.end(), [this](const Running::value_type& one) {
        // Without a page, its directory may not be there yet.
        return one.second.spare() && !one.second.asked && news_.has_sent_page(one.first);
      });
  if (found == engines_.end()) return found;
  Engine& engine = found->second;
  const std::string directory = FreeDirectory(DirectoryName(group));
  const std::string path = EngineDirectory(options_.runtime_directory, directory);
  absl::Status assigned = TryRemoveTree(path);
  if (assigned.ok() && rename(engine.info.directory.c_str(), path.c_str()) != 0)
    assigned = absl::InternalError(absl::StrCat("rename: ", ErrnoText(errno)));
  if (assigned.ok()) {
    engine.info.directory = path;
    const EngineUser user{engine.listed.user(), users_.has_value() ? users_->group() : 0};
    assigned = PassAssignment(engine.channel, {group, directory, CodeCacheFor(user, group)});
  }
  if (!assigned.ok()) {
    LogWarning("isolation group ", group, " cannot have the spare engine (pid ", engine.info.pid,
               "): ", std::string(assigned.message()));
    Notify(engine);
    return engines_.end();
  }
  engine.info.group = group;
  engine.listed.set_group(group);
  engine.listed.set_directory(directory);
  engine.begun = Clock::now();
  spares_.Succeeded();
  // The others take turns with it from now on.
  news_.Assign(engine.number);
  FlushAll();
  ShowSpares();
  return found;
}

void Engines::KeepSpares(size_t count) {
  if (ending_) return;
  spares_.Keep(count);
  engines_.empty() ? BeginSpares() : AdjustSpares();
}

size_t Engines::CountSpares() const {
  return std::count_if(engines_.begin(), engines_.end(), [](const Running::value_type& one) {
    return one.second.spare() && !one.second.asked;
  });
}

void Engines::AdjustSpares() {
  if (ending_) return;
  size_t there = CountSpares();
  for (auto& [number, engine] : engines_) {
    if (there <= spares_.wanted() || !engine.spare() || engine.asked) continue;
    Notify(engine);
    --there;
  }
  if (there < spares_.wanted()) spares_.Start(Clock::now());
}

void Engines::BeginSpares() {
  const size_t due = spares_.TakeDue(CountSpares(), Clock::now());
  size_t begun = 0;
  while (begun < due && !ending_ && engines_.size() < kMax) {
    const absl::StatusOr<Running::iterator> engine = Begin(/*group=*/"");
    if (!engine.ok()) {
      NoteSpareFailure(Clock::duration(0), std::string(engine.status().message()));
      break;
    }
    LogInfo("a spare engine begins: pid ", (*engine)->second.info.pid);
    ++begun;
  }
  // The list of a supervisor that ends is for the next one.
  if (begun > 0) SaveList();
  AdjustSpares();
}

void Engines::ShowSpares() const {
  if (options_.running != nullptr) options_.running->SetSpares(news_.ReadySpares());
}

void Engines::NoteSpareFailure(Clock::duration ran, const std::string& why) {
  const std::chrono::seconds pause = spares_.Failed(Clock::now(), ran);
  LogWarning("no spare engine for ", pause.count(),
             " s, so programs wait for their engines: ", why);
}

void Engines::LeaveRoom() {
  if (spares_.wanted() == 0) return;
  spares_.LeaveRoom(Clock::now());
  for (auto& [number, engine] : engines_) {
    if (engine.spare() && !engine.asked) Notify(engine);
  }
  AdjustSpares();
}

absl::StatusOr<Engines::Running::iterator> Engines::Begin(const std::string& group) {
  EngineLaunch launch;
  launch.program = options_.program;
  launch.command = options_.command;
  launch.group = group;
  launch.directory = FreeDirectory(group.empty() ? kSpareDirectory : DirectoryName(group));
  DETSHARE_ASSIGN_OR_RETURN(launch.user, UserFor(group));
  const std::string path = EngineDirectory(options_.runtime_directory, launch.directory);
  // A supervisor that was killed may have left it.
  DETSHARE_RETURN_IF_ERROR(TryRemoveTree(path));
  if (launch.user.uid != 0) DETSHARE_RETURN_IF_ERROR(MakeDirectoryFor(launch.user, path));
  DETSHARE_ASSIGN_OR_RETURN(const LaunchedEngine launched, LaunchEngine(launch));
  Engine engine;
  engine.info = {group, launched.pid, path};
  engine.listed.set_group(group);
  engine.listed.set_directory(launch.directory);
  engine.listed.set_pid(launched.pid);
  engine.listed.set_start_time(StartTimeOf(launched.pid).value_or(0));
  engine.listed.set_version(kVersion);
  engine.listed.set_protocol(kEngineProtocol);
  engine.listed.set_user(launch.user.uid);
  engine.process = launched.process;
  Take(launched.channels, engine);
  engine.begun = Clock::now();
  return Add(std::move(engine));
}

void Engines::Notify(Engine& engine) {
  engine.asked = true;
  if (engine.channel < 0) return;
  // A process that does not read has not begun to serve, and learns it from the end of the channel.
  PassOrder(engine.channel, EngineOrder::kEnd).IgnoreError();
  Part(engine);
  SaveList();
}

void Engines::Part(Engine& engine) {
  CloseIfOpen(engine.channel);  // closing removes it from the epoll
  engine.channel = -1;
}

void Engines::Drop(Engine& engine) {
  Part(engine);
  close(engine.process);
  CloseIfOpen(engine.admission);
  engine.files.reset();
}

void Engines::HandleMessage(Engine& engine) {
  if (engine.channel < 0) return;
  Flush(engine);
  for (int i = 0; i < kMaxAtOnce; ++i) {
    const std::optional<Reported> reported = TakeReport(engine.channel);
    if (!reported.has_value()) return;
    if (reported->event.has_value() && options_.noted) options_.noted(*reported->event);
    if (reported->use.has_value() && options_.used) options_.used(engine.info, *reported->use);
    if (reported->device_lost) engine.device_lost = true;
    if (reported->retires && !std::exchange(engine.retired, true)) {
      LogWarning("kernels of an ended session run on in the engine of isolation group ",
                 engine.info.group, " (pid ", engine.info.pid,
                 "); the group's next program gets another engine");
      for (const ClientConnection& connection : std::exchange(engine.waiting, {}))
        Pass(engine.info.group, connection);
    }
    if (reported->may_retire.has_value()) {
      engine.may_retire = *reported->may_retire;
      Flush(engine);
    }
    if (reported->page >= 0) TakePage(engine, reported->page);
    if (reported->wants_room) WakeForRoom(engine);
    const bool idle = reported->offer == engine.sent && engine.waiting.empty();
    if (reported->end) return Part(engine);
    if (idle) return Notify(engine);
  }
}

bool Engines::Decide(Engine& engine) {
  bool all = false;
  for (int i = 0; i < kMaxAtOnce; ++i) {
    const std::optional<AdmissionRequest> request = TakeAdmissionRequest(engine.admission);
    all = !request.has_value();
    if (all) break;
    switch (request->kind) {
      case AdmissionRequest::Kind::kEnter:
        SendAdmissionReply(engine.admission, request->question,
                           book_.Enter(engine.info.pid, request->tenant));
        break;
      case AdmissionRequest::Kind::kLeave:
        book_.Leave(engine.info.pid, request->session);
        break;
      case AdmissionRequest::Kind::kGoesOn:
        if (!engine.adopted) break;
        book_.GoOn(engine.info.pid, request->session, request->tenant);
        news_.NoteTenant(engine.number, request->tenant);
        FlushAll();
        break;
      case AdmissionRequest::Kind::kToldAll:
        engine.told_all = true;
        break;
    }
  }
  if (book_.next() >= reserved_ && !unsaved_) SaveList();
  // The channel was closed by a process that ends: it sends no more requests.
  char byte;
  if (recv(engine.admission, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
    epoll_ctl(epoll_, EPOLL_CTL_DEL, engine.admission, nullptr);
  return all;
}

void Engines::Reap(Running::iterator ended) {
  HandleMessage(ended->second);  // its last words
  int status = 0;
  const pid_t reaped = waitpid(ended->second.info.pid, &status, WNOHANG);
  // An adopted engine is the child of another process, which gets to know how it ended.
  if (reaped != ended->second.info.pid && !ended->second.adopted) return;
  Engine engine = std::move(ended->second);
  engines_.erase(ended);
  const std::string& group = engine.info.group;
  // An adopted engine may have been told to end, or was released.
  const bool clean =
      engine.adopted ? engine.asked || ending_ : WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (engine.spare()) {
    Forget(engine);
    if (!engine.asked && !ending_) {
      NoteSpareFailure(Clock::now() - engine.begun,
                       absl::StrCat("the last one (pid ", engine.info.pid, ") ", Ending(status)));
    }
    return AdjustSpares();
  }
  const std::string text = engine.device_lost ? "has lost its device"
                           : engine.hung ? "did not reply for a minute, so the supervisor ended it"
                           : engine.adopted ? "ended"
                                            : Ending(status);
  const EngineEnd how = engine.device_lost ? EngineEnd::kDeviceLost
                        : clean            ? EngineEnd::kAsked
                                           : EngineEnd::kFailed;
  if (how == EngineEnd::kAsked) {
    LogInfo("the engine of isolation group ", group, " has ended");
  } else {
    LogError("the engine of isolation group ", group, " (pid ", engine.info.pid, ") ", text,
             "; other groups are not affected");
  }
  if (options_.running != nullptr) options_.running->Remove(engine.info.pid);
  if (options_.ended) options_.ended(engine.info, {how, text, book_.SessionsOf(engine.info.pid)});
  // A fault of the group's own programs is no reason to make them wait.
  if (how == EngineEnd::kFailed && !engine.adopted && Clock::now() - engine.begun < kSoon) {
    if (failed_.size() >= kMaxFailed) failed_.clear();
    failed_[group] = Clock::now();
  }
  Forget(engine);
  for (const ClientConnection& connection : engine.waiting) Pass(group, connection);
}

void Engines::Forget(Engine& engine) {
  book_.Forget(engine.info.pid);
  news_.Remove(engine.number);
  FlushAll();
  Drop(engine);
  RemoveTree(engine.info.directory);
  ShowSpares();
  SaveList();
}

void Engines::Reload() {
  for (auto& [number, engine] : engines_) {
    if (engine.channel < 0) continue;
    engine.orders.push_back(EngineOrder::kReload);
    Flush(engine);
  }
}

bool Engines::End(std::chrono::milliseconds timeout) {
  ending_ = true;
  for (auto& [number, engine] : engines_) {
    // An engine without a channel has no other way to learn of it.
    if (engine.channel < 0 && !engine.asked) SendSignal(engine.process, SIGTERM);
    Notify(engine);
  }
  return AwaitEnd(timeout, [](const Engine&) { return true; });
}

bool Engines::AwaitEnd(std::chrono::milliseconds timeout,
                       const std::function<bool(const Engine&)>& counts) {
  const Clock::time_point until = Clock::now() + timeout;
  for (;;) {
    if (std::none_of(engines_.begin(), engines_.end(),
                     [&](const Running::value_type& one) { return counts(one.second); }))
      return true;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return false;
    epoll_event event;
    if (epoll_wait(epoll_, &event, 1, static_cast<int>(left.count())) > 0) Proceed();
  }
}

size_t Engines::Release(std::chrono::milliseconds timeout) {
  ending_ = true;
  for (auto& [number, engine] : engines_) {
    if (engine.channel >= 0) PassOrder(engine.channel, EngineOrder::kRelease).IgnoreError();
  }
  AwaitEnd(timeout, [this](const Engine& engine) { return book_.CountOf(engine.info.pid) == 0; });
  SaveList();
  const size_t left = size();
  for (auto& [number, engine] : engines_) {
    news_.Remove(number);
    Drop(engine);
    for (const ClientConnection& connection : engine.waiting) close(connection.fd);
  }
  engines_.clear();
  return left;
}

}  // namespace detshare
