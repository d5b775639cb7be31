// The process of one trust domain: where its files are, how it gets connections, and when it ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace detshare {

// The domain's directory, `domains/UID` below the runtime directory: as a path of the host, and as
// clients reach it from the socket's directory.
std::string DomainsDirectory(const std::string& runtime_directory);
std::string DomainDirectoryForClients(uid_t user);

std::string DomainSocket(const std::string& domain_directory);

// How a domain's process ended: it was asked to, it failed, or it lost a device.
enum class DomainEnd { kAsked, kFailed, kDeviceLost };
// The exit code of a process that lost a device.
inline constexpr int kExitDeviceLost = 3;

struct DomainInfo {
  uid_t user = 0;
  uint32_t sessions = 0;
  std::string socket;
};
// Returns the domains whose directories lie beside `domain_directory`, including that one.
std::vector<DomainInfo> DomainsBeside(const std::string& domain_directory);
// Returns the user's name, or the number as text if the user has no name.
std::string UserName(uid_t user);

// The domain's end of its channel. One thread uses it.
class DomainMember {
 public:
  // Owns the channel. After `idle` without use, the domain offers to end.
  DomainMember(int channel, std::chrono::milliseconds idle);
  ~DomainMember();
  DomainMember(const DomainMember&) = delete;
  DomainMember& operator=(const DomainMember&) = delete;

  int fd() const { return channel_; }
  // Calls `take` for each connection that has come, and offers to end if that is due. Returns false
  // if the process must end.
  bool Proceed(const std::function<void(int connection)>& take,
               const std::function<bool()>& in_use);
  // Returns in how many milliseconds Proceed() must be called again at the latest.
  int timeout() const;

 private:
  using Clock = std::chrono::steady_clock;
  const int channel_;
  const std::chrono::milliseconds idle_;
  uint64_t received_ = 0;
  Clock::time_point idle_since_ = Clock::now();
};

}  // namespace detshare
