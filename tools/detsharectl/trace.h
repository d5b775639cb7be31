// `detsharectl trace`: what happens on the devices, as a file that ui.perfetto.dev opens.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "proto/admin.pb.h"

namespace detshare::ctl {

// Turns what the daemon notes down into Chrome's JSON trace format, event by event.
class TraceWriter {
 public:
  // Times are shown from `begin_ns` of the daemon's clock on.
  explicit TraceWriter(int64_t begin_ns) : begin_ns_(begin_ns) {}

  // A session is a process of the trace, with a track for each stream, one for the partitions on
  // which it ran and one for the times in which it was held.
  void Add(const proto::TraceChunk& chunk);
  // The whole file. Once, last.
  std::string Finish();

  uint64_t operations() const { return operations_; }
  uint64_t lost() const { return lost_; }

 private:
  using Track = std::pair<uint64_t, uint32_t>;  // session and device
  // Operations one after the other on one partition.
  struct Stay {
    uint32_t first_sm = 0, sm_count = 0;
    int64_t begin = 0, end = 0;
  };

  void Append(const std::string& event);
  void AddOperation(const Track& track, int pid, const proto::TracedEvent& event);
  void EndStay(int pid, const Stay& stay);
  int PidOf(const Track& track, const proto::SessionTrace& session);

  const int64_t begin_ns_;
  std::string text_;
  std::map<Track, int> pids_;
  std::map<Track, std::map<uint32_t, std::string>> names_;
  std::map<Track, Stay> stays_;
  uint64_t operations_ = 0, lost_ = 0;
};

struct TraceOptions {
  std::string socket;
  std::string out;
  double seconds = 2;
};
// An exit code, after a message.
int Trace(const TraceOptions& options);

}  // namespace detshare::ctl
