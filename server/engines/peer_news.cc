#include "server/engines/peer_news.h"

#include <unistd.h>

#include "server/engines/engine_channel.h"
#include "server/engines/engine_pages.h"

namespace detshare {

PeerNews::~PeerNews() {
  for (const auto& [number, member] : members_) {
    if (member.page >= 0) close(member.page);
  }
}

void PeerNews::Add(uint32_t engine, pid_t pid, bool spare) {
  Member& member = members_[engine];
  member.pid = pid;
  member.spare = spare;
  for (const auto& [number, other] : members_) {
    if (other.page >= 0) member.new_pages.push_back(number);
  }
}

void PeerNews::Remove(uint32_t engine) {
  const auto gone = members_.find(engine);
  if (gone == members_.end()) return;
  const int page = gone->second.page;
  members_.erase(gone);
  if (page < 0) return;
  close(page);
  ChangeList();
}

void PeerNews::Assign(uint32_t engine) {
  const auto assigned = members_.find(engine);
  if (assigned == members_.end()) return;
  assigned->second.spare = false;
  ChangeList();
}

void PeerNews::ChangeList() {
  // An engine that has just begun gets its first list behind the pages, once it has sent its own.
  for (auto& [number, member] : members_) {
    if (member.sent_page) member.list_changed = true;
  }
}

bool PeerNews::TakePage(uint32_t engine, int page) {
  const auto found = members_.find(engine);
  const bool counts = found != members_.end() && found->second.page < 0 && IsSealedPage(page);
  if (found != members_.end()) found->second.sent_page = true;
  if (!counts) {
    if (page >= 0) close(page);
    return false;
  }
  Member& sender = found->second;
  sender.page = page;
  for (auto& [number, other] : members_) {
    if (number == engine) continue;
    other.new_pages.push_back(engine);
    // The list says that it is a spare one.
    if (sender.spare && other.sent_page) other.list_changed = true;
  }
  // An earlier supervisor may have told it of engines that are gone.
  sender.list_changed = true;
  return true;
}

bool PeerNews::has_sent_page(uint32_t engine) const {
  const auto found = members_.find(engine);
  return found != members_.end() && found->second.sent_page;
}

std::vector<pid_t> PeerNews::ReadySpares() const {
  std::vector<pid_t> spares;
  for (const auto& [number, member] : members_) {
    if (member.spare && member.sent_page) spares.push_back(member.pid);
  }
  return spares;
}

void PeerNews::NoteTenant(uint32_t engine, const std::string& tenant) {
  const auto found = members_.find(engine);
  if (found == members_.end() || found->second.tenants.size() >= kMaxTenants ||
      !found->second.tenants.insert(tenant).second)
    return;
  for (auto& [number, other] : members_) {
    if (number == engine || !other.tenants.contains(tenant)) continue;
    found->second.new_shares.emplace_back(number, tenant);
    other.new_shares.emplace_back(engine, tenant);
  }
}

void PeerNews::Send(uint32_t engine, int channel) {
  const auto found = members_.find(engine);
  if (found == members_.end()) return;
  Member& member = found->second;
  if (SendPages(member, channel) && SendList(member, channel)) SendShares(member, channel);
}

bool PeerNews::SendPages(Member& member, int channel) {
  for (; !member.new_pages.empty(); member.new_pages.pop_front()) {
    const auto peer = members_.find(member.new_pages.front());
    if (peer == members_.end() || peer->second.page < 0) continue;
    if (!PassPeer(channel, peer->second.pid, peer->second.page).ok()) return false;
  }
  return true;
}

bool PeerNews::SendList(Member& member, int channel) {
  if (!member.list_changed) return true;
  EngineProcesses all;
  for (const auto& [number, other] : members_) {
    if (other.page < 0) continue;
    all.pids.push_back(other.pid);
    if (other.spare) all.spares.push_back(other.pid);
  }
  member.list_changed = !PassPeers(channel, all).ok();
  return !member.list_changed;
}

bool PeerNews::SendShares(Member& member, int channel) {
  for (; !member.new_shares.empty(); member.new_shares.pop_front()) {
    const auto& [number, tenant] = member.new_shares.front();
    const auto peer = members_.find(number);
    if (peer == members_.end()) continue;
    if (!PassSharedTenant(channel, peer->second.pid, tenant).ok()) return false;
  }
  return true;
}

bool PeerNews::has_news(uint32_t engine) const {
  const auto found = members_.find(engine);
  return found != members_.end() &&
         (!found->second.new_pages.empty() || found->second.list_changed ||
          !found->second.new_shares.empty());
}

bool PeerNews::Introduced(uint32_t engine) const {
  return has_sent_page(engine) && !has_news(engine);
}

}  // namespace detshare
