// The supervisor's word that a process has connected to an engine.
//
// An engine shows a client's ticket when it asks the supervisor for a file of the client
// (file_channel.h). It cannot make one, so an engine whose process was taken over by a hostile image
// reaches no files of processes that are not its clients. Tickets outlive the supervisor: the next
// one has the same key.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace detshare {

// Makes and checks tickets. Any thread may call it.
class TicketKey {
 public:
  static TicketKey Random();
  // Returns nothing if the bytes are not those of a key.
  static std::optional<TicketKey> FromBytes(std::string_view bytes);
  // A secret of supervisors.
  const std::string& bytes() const { return bytes_; }

  // Returns a ticket for a process that has connected; "" if it has ended. `pid` is 0 for a process
  // in a foreign pid namespace.
  std::string TicketFor(pid_t pid, uid_t uid) const;
  // Returns whether the ticket was made for the process, and the process still runs.
  bool Accepts(std::string_view ticket, pid_t pid, uid_t uid) const;

 private:
  explicit TicketKey(std::string bytes) : bytes_(std::move(bytes)) {}

  std::string bytes_;
};

}  // namespace detshare
