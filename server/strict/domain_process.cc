#include "server/strict/domain_process.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/strict/domain_channel.h"

namespace detshare {

namespace fs = std::filesystem;

std::string DomainsDirectory(const std::string& runtime_directory) {
  return runtime_directory + "/domains";
}

std::string DomainDirectoryForClients(uid_t user) { return absl::StrCat("domains/", user, "/"); }

std::string DomainSocket(const std::string& domain_directory) {
  return domain_directory + "/detshared.sock";
}

std::string UserName(uid_t user) {
  std::vector<char> buffer(16384);
  passwd entry;
  passwd* found = nullptr;
  if (getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return absl::StrCat(user);
  return found->pw_name;
}

std::vector<DomainInfo> DomainsBeside(const std::string& domain_directory) {
  std::vector<DomainInfo> domains;
  std::error_code error;
  // Domains may end meanwhile; they are missing then.
  for (const auto& entry :
       fs::directory_iterator(fs::path(domain_directory).parent_path(), error)) {
    DomainInfo info;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &info.user)) continue;
    info.socket = DomainSocket(entry.path().string());
    std::error_code none;
    for (fs::directory_iterator session(entry.path() / "sessions", none), end;
         !none && session != end; session.increment(none)) {
      ++info.sessions;
    }
    domains.push_back(std::move(info));
  }
  std::sort(domains.begin(), domains.end(),
            [](const DomainInfo& a, const DomainInfo& b) { return a.user < b.user; });
  return domains;
}

DomainMember::DomainMember(int channel, std::chrono::milliseconds idle)
    : channel_(channel), idle_(idle) {}

DomainMember::~DomainMember() { close(channel_); }

bool DomainMember::Proceed(const std::function<void(int connection)>& take,
                           const std::function<bool()>& in_use) {
  for (;;) {
    const Received received = TakeConnection(channel_);
    if (received.end) return false;
    if (!received.any) break;
    ++received_;
    idle_since_ = Clock::now();
    if (received.connection >= 0) take(received.connection);
  }
  if (in_use()) {
    idle_since_ = Clock::now();
  } else if (Clock::now() - idle_since_ >= idle_) {
    idle_since_ = Clock::now();
    OfferToEnd(channel_, received_);
  }
  return true;
}

int DomainMember::timeout() const {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(idle_since_ + idle_ - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count() + 1, 1, 1000));
}

}  // namespace detshare
