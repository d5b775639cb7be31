#include "server/engines/session_book.h"

namespace detshare {

SessionBook::Decision SessionBook::Enter(pid_t process, const std::string& tenant) {
  std::map<uint64_t, std::string>& sessions = sessions_[process];
  if (sessions.size() >= kMaxOfProcess)
    return {Outcome::kProcessIsFull, 0, sessions.size(), kMaxOfProcess};
  if (limits_.all != 0 && all_ >= limits_.all)
    return {Outcome::kDaemonIsFull, 0, all_, limits_.all};
  const auto named = limits_.tenants.find(tenant);
  const uint64_t limit = named != limits_.tenants.end() ? named->second : limits_.other_tenants;
  const auto known = tenants_.find(tenant);
  const uint64_t used = known != tenants_.end() ? known->second : 0;
  if (limit != 0 && used >= limit) return {Outcome::kTenantIsFull, 0, used, limit};
  ++all_;
  ++tenants_[tenant];
  sessions[next_] = tenant;
  return {Outcome::kEnter, next_++, 0, 0};
}

void SessionBook::GoOn(pid_t process, uint64_t session, const std::string& tenant) {
  std::map<uint64_t, std::string>& sessions = sessions_[process];
  if (sessions.size() >= kMaxOfProcess || !sessions.emplace(session, tenant).second) return;
  ++all_;
  ++tenants_[tenant];
}

size_t SessionBook::CountOf(pid_t process) const {
  const auto sessions = sessions_.find(process);
  return sessions != sessions_.end() ? sessions->second.size() : 0;
}

std::vector<uint64_t> SessionBook::SessionsOf(pid_t process) const {
  std::vector<uint64_t> numbers;
  const auto sessions = sessions_.find(process);
  if (sessions == sessions_.end()) return numbers;
  for (const auto& [session, tenant] : sessions->second) numbers.push_back(session);
  return numbers;
}

bool SessionBook::Has(uint64_t session) const {
  return std::any_of(sessions_.begin(), sessions_.end(),
                     [&](const auto& one) { return one.second.contains(session); });
}

void SessionBook::Give(const std::string& tenant) {
  --all_;
  const auto known = tenants_.find(tenant);
  if (--known->second == 0) tenants_.erase(known);
}

void SessionBook::Leave(pid_t process, uint64_t session) {
  const auto sessions = sessions_.find(process);
  if (sessions == sessions_.end()) return;
  const auto found = sessions->second.find(session);
  if (found == sessions->second.end()) return;
  Give(found->second);
  sessions->second.erase(found);
}

void SessionBook::Forget(pid_t process) {
  const auto sessions = sessions_.find(process);
  if (sessions == sessions_.end()) return;
  for (const auto& [session, tenant] : sessions->second) Give(tenant);
  sessions_.erase(sessions);
}

}  // namespace detshare
