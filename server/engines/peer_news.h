// What engines do not know yet of each other: the pages by which they share their devices
// (engine_page.h), which processes there are, and tenants that several of them serve.
//
// An engine gets the pages of the others first, and then the list that names them all. So it never knows
// a process without its page. An engine that has not sent its own page gets no list.
//
// Threading: one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coroutine_runtime/engine_page.h"

namespace detshare {

class PeerNews {
 public:
  PeerNews() = default;
  ~PeerNews();
  PeerNews(const PeerNews&) = delete;
  PeerNews& operator=(const PeerNews&) = delete;

  // Engines have numbers, each its own for good. The other functions ignore an engine that is not there.
  void Add(uint32_t engine, pid_t pid, bool spare);
  void Remove(uint32_t engine);
  // A spare engine serves a group from now on.
  void Assign(uint32_t engine);

  // Owns the page that the engine has sent. Returns false if it counts for nothing: others could change
  // it, or the engine has sent one before.
  bool TakePage(uint32_t engine, int page);
  // Whether the engine has sent a page, also one that counts for nothing.
  bool has_sent_page(uint32_t engine) const;
  // The spare engines that have sent their pages.
  std::vector<pid_t> ReadySpares() const;

  // A program of the tenant comes to the engine. Engines that serve one tenant keep its limits together.
  void NoteTenant(uint32_t engine, const std::string& tenant);

  // Sends what the engine does not know, as far as it reads. `channel`: the supervisor's end
  // (engine_channel.h).
  void Send(uint32_t engine, int channel);
  // Whether it does not know all.
  bool has_news(uint32_t engine) const;
  // Whether it knows which processes share its devices, so that programs may come.
  bool Introduced(uint32_t engine) const;

  // The tenants of one engine whose limits others can share.
  static constexpr size_t kMaxTenants = EnginePage::kMaxTenants;

 private:
  struct Member {
    pid_t pid = -1;
    bool spare = false;
    bool sent_page = false;
    int page = -1;  // -1: it has none that counts
    std::set<std::string> tenants;
    // What it does not know yet.
    std::deque<uint32_t> new_pages;  // the engines whose pages it gets
    bool list_changed = false;
    std::deque<std::pair<uint32_t, std::string>>
        new_shares;  // an engine that serves the tenant, too
  };

  // All that have sent their pages get a new list.
  void ChangeList();
  bool SendPages(Member& member, int channel);
  bool SendList(Member& member, int channel);
  bool SendShares(Member& member, int channel);

  std::map<uint32_t, Member> members_;
};

}  // namespace detshare
