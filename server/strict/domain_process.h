// One trust domain's process: where its files are, how it gets connections, when it ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace detshare {

// Below the runtime directory of the daemon: `domains/UID`, as clients and as root see it.
std::string DomainsDirectory(const std::string& runtime_directory);
std::string DomainDirectoryForClients(uid_t user);

std::string DomainSocket(const std::string& domain_directory);

// How a domain's process ended.
enum class DomainEnd { kAsked, kFailed, kDeviceLost };
// Its exit code when it lost a device.
inline constexpr int kExitDeviceLost = 3;

struct DomainInfo {
  uid_t user = 0;
  uint32_t sessions = 0;
  std::string socket;
};
// The domains whose directories lie beside `domain_directory`, that one among them.
std::vector<DomainInfo> DomainsBeside(const std::string& domain_directory);
// Its name, or its number.
std::string UserName(uid_t user);

// One thread.
class DomainMember {
 public:
  // Takes the channel. `idle`: after so long without use it offers to end.
  DomainMember(int channel, std::chrono::milliseconds idle);
  ~DomainMember();
  DomainMember(const DomainMember&) = delete;
  DomainMember& operator=(const DomainMember&) = delete;

  int fd() const { return channel_; }
  // Takes what has come and offers to end when that is due. False when the process is to end.
  bool Proceed(const std::function<void(int connection)>& take,
               const std::function<bool()>& in_use);
  // When it wants to be asked again at the latest, in milliseconds.
  int timeout() const;

 private:
  using Clock = std::chrono::steady_clock;
  const int channel_;
  const std::chrono::milliseconds idle_;
  uint64_t received_ = 0;
  Clock::time_point idle_since_ = Clock::now();
};

}  // namespace detshare
