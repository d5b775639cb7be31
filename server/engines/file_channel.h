// Lets an engine get the files behind its clients' shared mappings, which it may not open itself:
// with the right to do so it could read and change every process of the host. The supervisor opens
// them. They exchange messages over a socketpair that keeps message boundaries
// (proto/engine.proto):
//
//     engine --[a client's ticket, and a mapping]--> supervisor
//     engine <--[a descriptor, or why not]---------- supervisor
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "proto/mutex.h"
#include "server/engines/client_ticket.h"
#include "server/shared_memory/client_file.h"

namespace detshare {

namespace proto {
class OpenFile;
}  // namespace proto

// An end of a channel, which it closes.
struct ChannelEnd {
  explicit ChannelEnd(int end) : fd(end) {}
  ~ChannelEnd();
  ChannelEnd(const ChannelEnd&) = delete;
  ChannelEnd& operator=(const ChannelEnd&) = delete;

  const int fd;
};

// The supervisor's end, for one engine. A thread replies, because opening a file may wait for the
// client, which may be hostile. Nobody waits for the thread: it ends after the channel does.
class FileServer {
 public:
  // Owns the channel's end.
  FileServer(int channel, TicketKey key);
  // Ends the channel.
  ~FileServer();
  FileServer(const FileServer&) = delete;
  FileServer& operator=(const FileServer&) = delete;

 private:
  const std::shared_ptr<const ChannelEnd> end_;
};

// The engine's end. Any thread may call it.
class FileChannel {
 public:
  // Owns the descriptor. `timeout` is how long Open() waits for the reply, and for a supervisor that
  // replaces one that is gone.
  FileChannel(int channel, std::chrono::milliseconds timeout);
  ~FileChannel();
  FileChannel(const FileChannel&) = delete;
  FileChannel& operator=(const FileChannel&) = delete;

  // As OpenClientFile(). `ticket` is that of the client.
  absl::StatusOr<int> Open(const std::string& ticket, const ClientMapping& mapping, uint64_t bytes);
  // Goes on with another supervisor. Owns the descriptor.
  void Replace(int channel);

 private:
  using Clock = std::chrono::steady_clock;
  // Returns nothing if the channel's other end is gone.
  std::optional<absl::StatusOr<int>> Ask(const ChannelEnd& end, const proto::OpenFile& request,
                                         Clock::time_point until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(asking_);

  const std::chrono::milliseconds timeout_;
  Mutex asking_ ABSL_ACQUIRED_BEFORE(mutex_);       // admits one question at a time
  uint64_t question_ ABSL_GUARDED_BY(asking_) = 0;  // number of the latest question
  Mutex mutex_;
  CondVar replaced_;
  std::shared_ptr<const ChannelEnd> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare
