#include "server/base/journal.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace detshare {

bool IsJournalStream(int fd, const char* journal_stream) {
  struct stat status;
  if (journal_stream == nullptr || fstat(fd, &status) != 0) return false;
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino) == journal_stream;
}

std::unique_ptr<Journal> Journal::At(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) return nullptr;
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  return fd < 0 ? nullptr : std::unique_ptr<Journal>(new Journal(fd, path));
}

Journal::~Journal() { close(fd_); }

bool Journal::Send(const Fields& fields) const {
  std::string entry;
  for (const auto& [name, value] : fields) {
    entry.append(name);
    if (value.find('\n') == value.npos) {
      entry += '=';
    } else {
      // The value follows its length: 64 bits, the lowest byte first.
      entry += '\n';
      for (int shift = 0; shift < 64; shift += 8)
        entry += static_cast<char>(static_cast<uint64_t>(value.size()) >> shift);
    }
    entry.append(value);
    entry += '\n';
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  // The socket is not connected, because a restarted journal listens on a new socket. The call does
  // not wait for a journal that is behind.
  return sendto(fd_, entry.data(), entry.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) == static_cast<ssize_t>(entry.size());
}

}  // namespace detshare
