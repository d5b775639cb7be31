// `detsharectl trace`: writes what happens on the devices to a file that ui.perfetto.dev opens.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "proto/admin.pb.h"

namespace detshare::ctl {

// Turns the daemon's trace events into Chrome's JSON trace format.
class TraceWriter {
 public:
  // Times in the file count from `begin_ns` of the daemon's clock.
  explicit TraceWriter(int64_t begin_ns) : begin_ns_(begin_ns) {}

  // In the trace, a session on a device is a process. It has a track for each stream, one for the
  // partitions on which it ran, and one for the times in which it was throttled.
  void Add(const proto::TraceChunk& chunk);
  // Returns the whole file. Call it once, as the last function.
  std::string Finish();

  uint64_t operations() const { return operations_; }
  uint64_t lost() const { return lost_; }  // events that the daemon could not keep
  // Isolation groups whose engines did not reply.
  const std::set<std::string>& silent_groups() const { return silent_groups_; }

 private:
  using Track = std::pair<uint64_t, uint32_t>;  // session and device
  // A time in which a session's operations ran on one partition. Times are the daemon's clock.
  struct Stay {
    uint32_t first_sm = 0, sm_count = 0;
    bool urgent = false;  // in the urgent time-slice group
    int64_t begin = 0, end = 0;
  };

  void Append(const std::string& event);
  void AddOperation(const Track& track, int pid, const proto::TracedEvent& event);
  void AddSpan(int pid, uint64_t tid, const proto::TracedEvent& event, const std::string& name);
  void AddInstant(int pid, const proto::TracedEvent& event, const std::string& name);
  void EndStay(int pid, const Stay& stay);
  int PidOf(const Track& track, const proto::SessionTrace& session);

  const int64_t begin_ns_;
  std::string text_;
  std::map<Track, int> pids_;
  std::map<Track, std::map<uint32_t, std::string>> names_;
  std::map<Track, Stay> stays_;
  uint64_t operations_ = 0, lost_ = 0;
  std::set<std::string> silent_groups_;
};

struct TraceOptions {
  std::string socket;
  std::string out;
  double seconds = 2;
};
// Takes a trace for `seconds`, or until SIGINT or SIGTERM, and then writes it to `out`. What `out` had
// before stays if no trace is taken. Returns an exit code; after an error, a message is on stderr.
int Trace(const TraceOptions& options);

}  // namespace detshare::ctl
