#include "tools/detsharectl/trace.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "tools/detsharectl/daemon.h"
#include "tools/detsharectl/digest_log.h"
#include "tools/detsharectl/json_text.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

using nlohmann::ordered_json;

// Numbers of the tracks that are not streams. Streams are numbered from 1 on.
constexpr uint64_t kPartitionTrack = 1'000'000;
constexpr uint64_t kThrottledTrack = 1'000'001;
constexpr uint64_t kCollectionTrack = 1'000'002;
constexpr std::chrono::milliseconds kFetchPeriod(50);

std::atomic<bool> g_interrupted{false};

std::string PartitionName(uint32_t first, uint32_t count, bool urgent = false) {
  if (urgent) return "urgent";
  return "sm" + std::to_string(first) + "-" + std::to_string(first + count - 1);
}

ordered_json NameEvent(const char* what, int pid, uint64_t tid, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}};
}

// The file of --out. What was there stays until there is a trace to write. A file that this object
// has made goes with it, unless a trace was written.
class OutFile {
 public:
  explicit OutFile(std::string path) : path_(std::move(path)) {
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    made_ = fd_ >= 0;
    if (!made_ && errno == EEXIST) fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  }
  ~OutFile() {
    if (fd_ >= 0) close(fd_);
    if (made_) unlink(path_.c_str());
  }
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;

  // Whether the file may be written. If not, errno says why, right after the constructor.
  bool ok() const { return fd_ >= 0; }
  // Replaces what the file has. False with errno. Call it once.
  bool Write(const std::string& text) {
    // A pipe or a terminal has no length.
    if (ftruncate(fd_, 0) != 0 && errno != EINVAL) return false;
    for (size_t done = 0; done < text.size();) {
      const ssize_t written = write(fd_, text.data() + done, text.size() - done);
      if (written < 0) return false;
      done += static_cast<size_t>(written);
    }
    if (close(std::exchange(fd_, -1)) != 0) return false;
    made_ = false;
    return true;
  }

 private:
  const std::string path_;
  int fd_ = -1;
  bool made_ = false;
};

int CannotWrite(const std::string& path) {
  std::fprintf(stderr, "detsharectl: cannot write %s: %s; name another file with --out\n",
               path.c_str(), std::strerror(errno));
  return kExitRefused;
}

}  // namespace

void TraceWriter::Append(const std::string& event) {
  text_ += text_.empty() ? "\n" : ",\n";
  text_ += event;
}

int TraceWriter::PidOf(const Track& track, const proto::SessionTrace& session) {
  const auto found = pids_.find(track);
  if (found != pids_.end()) return found->second;
  const int pid = static_cast<int>(pids_.size()) + 1;
  pids_[track] = pid;
  std::string name = "session " + std::to_string(session.session());
  if (!session.tenant().empty()) name += ", " + session.tenant();
  if (!session.program().empty()) name += ", " + session.program();
  if (session.pid() != 0) name += ", pid " + std::to_string(session.pid());
  name += ", device " + std::to_string(session.device());
  Append(JsonLine(NameEvent("process_name", pid, 0, name)));
  Append(JsonLine(NameEvent("thread_name", pid, kPartitionTrack, "partition")));
  Append(JsonLine(NameEvent("thread_name", pid, kThrottledTrack, "throttled")));
  Append(JsonLine(NameEvent("thread_name", pid, kCollectionTrack, "collecting")));
  return pid;
}

void TraceWriter::EndStay(int pid, const Stay& stay) {
  if (stay.sm_count == 0) return;
  Append(JsonLine({{"ph", "X"},
                   {"name", PartitionName(stay.first_sm, stay.sm_count, stay.urgent)},
                   {"pid", pid},
                   {"tid", kPartitionTrack},
                   {"ts", static_cast<double>(stay.begin - begin_ns_) / 1e3},
                   {"dur", static_cast<double>(stay.end - stay.begin) / 1e3}}));
}

void TraceWriter::AddOperation(const Track& track, int pid, const proto::TracedEvent& event) {
  ++operations_;
  const std::string& name = names_[track][event.name()];
  Append(JsonLine(
      {{"ph", "X"},
       {"name", name.empty() ? "?" : Demangle(name)},
       {"pid", pid},
       {"tid", event.stream()},
       {"ts", static_cast<double>(event.at_ns() - begin_ns_) / 1e3},
       {"dur", static_cast<double>(event.duration_ns()) / 1e3},
       {"args",
        {{"partition", PartitionName(event.first_sm(), event.sm_count(), event.urgent())},
         {"queued_us", static_cast<double>(event.at_ns() - event.submitted_ns()) / 1e3}}}}));
  const int64_t end = event.at_ns() + event.duration_ns();
  Stay& stay = stays_[track];
  if (stay.first_sm == event.first_sm() && stay.sm_count == event.sm_count() &&
      stay.urgent == event.urgent()) {
    stay.begin = std::min(stay.begin, event.at_ns());
    stay.end = std::max(stay.end, end);
    return;
  }
  // Streams that run on two partitions at a time overlap. The track shows the partition that began
  // last.
  if (stay.end > event.at_ns()) stay.end = std::max(stay.begin, event.at_ns());
  EndStay(pid, stay);
  stay = {event.first_sm(), event.sm_count(), event.urgent(), event.at_ns(), end};
}

void TraceWriter::AddSpan(int pid, uint64_t tid, const proto::TracedEvent& event,
                          const std::string& name) {
  Append(JsonLine({{"ph", "X"},
                   {"name", name},
                   {"pid", pid},
                   {"tid", tid},
                   {"ts", static_cast<double>(event.at_ns() - begin_ns_) / 1e3},
                   {"dur", static_cast<double>(event.duration_ns()) / 1e3}}));
}

void TraceWriter::AddInstant(int pid, const proto::TracedEvent& event, const std::string& name) {
  Append(JsonLine({{"ph", "i"},
                   {"s", "t"},
                   {"name", name},
                   {"pid", pid},
                   {"tid", event.stream()},
                   {"ts", static_cast<double>(event.at_ns() - begin_ns_) / 1e3}}));
}

void TraceWriter::Add(const proto::TraceChunk& chunk) {
  silent_groups_.insert(chunk.silent_groups().begin(), chunk.silent_groups().end());
  for (const proto::SessionTrace& session : chunk.sessions()) {
    const Track track(session.session(), session.device());
    const int pid = PidOf(track, session);
    for (const auto& [number, name] : session.names()) names_[track][number] = name;
    lost_ += session.lost();
    for (const proto::TracedEvent& event : session.events()) {
      switch (event.kind()) {
        case proto::TracedEvent::OPERATION:
          AddOperation(track, pid, event);
          break;
        case proto::TracedEvent::THROTTLED:
          AddSpan(pid, kThrottledTrack, event, "throttled by the " + event.cause());
          break;
        case proto::TracedEvent::COLLECTION:
          AddSpan(pid, kCollectionTrack, event, "collects operations");
          break;
        case proto::TracedEvent::MIGRATION:
          AddInstant(pid, event,
                     event.cause().empty()
                         ? "to " + PartitionName(event.first_sm(), event.sm_count())
                         : event.cause());
          break;
        case proto::TracedEvent::WAIT:
          AddInstant(pid, event, "client waits");
          break;
        default:
          break;
      }
    }
  }
}

std::string TraceWriter::Finish() {
  for (const auto& [track, stay] : stays_) EndStay(pids_[track], stay);
  return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [" + text_ + "\n]}\n";
}

int Trace(const TraceOptions& options) {
  OutFile file(options.out);
  if (!file.ok()) return CannotWrite(options.out);
  // Ctrl-C or a termination ends the trace early, and the file is written all the same.
  struct sigaction stop {};
  stop.sa_handler = [](int) { g_interrupted.store(true, std::memory_order_relaxed); };
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &stop, nullptr);
  const std::unique_ptr<proto::Admin::Stub> admin = AdminAt(options.socket);
  proto::TraceStarted started;
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    const int code = Explain(admin->StartTrace(&context, {}, &started), options.socket);
    if (code != 0) return code;
  }
  TraceWriter writer(started.now_ns());
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  for (bool last = false; !last;) {
    std::this_thread::sleep_for(kFetchPeriod);
    last = g_interrupted.load(std::memory_order_relaxed) || std::chrono::steady_clock::now() >= end;
    proto::FetchTraceRequest request;
    request.set_trace(started.trace());
    request.set_last(last);
    proto::TraceChunk chunk;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    const int code = Explain(admin->FetchTrace(&context, request, &chunk), options.socket);
    if (code != 0) return code;
    writer.Add(chunk);
  }
  if (!file.Write(writer.Finish())) return CannotWrite(options.out);
  std::fprintf(stderr, "%s in %s; open it in ui.perfetto.dev\n",
               text::Counted(writer.operations(), "operation").c_str(), options.out.c_str());
  if (writer.lost() != 0) {
    std::fprintf(stderr, "the trace lacks %s: more happened than the daemon could keep\n",
                 text::Counted(writer.lost(), "event").c_str());
  }
  for (const std::string& group : writer.silent_groups()) {
    std::fprintf(stderr,
                 "the trace lacks work of isolation group %s: its engine has ended or does not "
                 "reply (detsharectl status shows which)\n",
                 group.c_str());
  }
  return 0;
}

}  // namespace detshare::ctl
