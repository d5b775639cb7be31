// Figures by tenant, for a bounded number of tenants. Programs may be allowed to choose their
// tenant's name, and names must not fill the memory of the daemon or of its monitoring.
//
// The first kMaxTenantsApart tenants have figures of their own. A later tenant gets the place of the
// tenant that has been out of use the longest, if that is long enough for everyone to have read its
// last figures. If there is none, it is counted with others under kOtherTenants. A tenant in use
// keeps the name under which it is counted, so no figure ever falls.
//
// Threading: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace detshare {

// No tenant can have this name.
inline constexpr char kOtherTenants[] = "(other)";
inline constexpr size_t kMaxTenantsApart = 128;
// Longer than what lies between two scrapes, and than what Prometheus looks back (5 minutes).
inline constexpr int64_t kTenantKeptNs = 10LL * 60 * 1'000'000'000;

template <typename Figures>
class ByTenant {
 public:
  // A configured tenant always has a place, whichever tenants came before it.
  void Reserve(const std::string& name) {
    places_[name].reserved = true;
    figures_[name];
  }
  // A use of the tenant begins or ends: a session, for example. `now` is of a clock that never goes
  // back, in nanoseconds.
  void Begin(const std::string& name, int64_t now) {
    if (name == kOtherTenants) return;
    if (const auto other = others_.find(name); other != others_.end()) {
      ++other->second;
      return;
    }
    if (!figures_.contains(name) && figures_.size() >= kMaxTenantsApart && !MakeRoom(now)) {
      others_[name] = 1;
      figures_[kOtherTenants];
      return;
    }
    figures_[name];
    ++places_[name].users;
  }
  void End(const std::string& name, int64_t now) {
    if (const auto other = others_.find(name); other != others_.end()) {
      if (--other->second == 0) others_.erase(other);
      return;
    }
    const auto place = places_.find(name);
    if (place == places_.end() || place->second.users == 0) return;
    if (--place->second.users == 0) place->second.idle_since = now;
  }
  // The name under which the tenant is counted. It stays the same from Begin() to the last End().
  std::string NameFor(const std::string& name) const {
    if (others_.contains(name)) return kOtherTenants;
    if (figures_.contains(name) || figures_.size() < kMaxTenantsApart) return name;
    return kOtherTenants;
  }
  Figures& At(const std::string& name) { return figures_[NameFor(name)]; }
  const std::map<std::string, Figures>& all() const { return figures_; }
  // How many tenants have lost their places so far.
  size_t evictions() const { return evictions_; }

 private:
  struct Place {
    bool reserved = false;
    size_t users = 0;
    std::optional<int64_t> idle_since;  // nothing: it was never in use
  };

  bool MakeRoom(int64_t now) {
    auto oldest = places_.end();
    for (auto place = places_.begin(); place != places_.end(); ++place) {
      const Place& one = place->second;
      if (one.reserved || one.users != 0 || !one.idle_since.has_value()) continue;
      if (oldest == places_.end() || *one.idle_since < *oldest->second.idle_since) oldest = place;
    }
    if (oldest == places_.end() || now - *oldest->second.idle_since < kTenantKeptNs) return false;
    figures_.erase(oldest->first);
    places_.erase(oldest);
    ++evictions_;
    return true;
  }

  std::map<std::string, Figures> figures_;
  std::map<std::string, Place> places_;   // of names that are reserved, or were in use
  std::map<std::string, size_t> others_;  // users of tenants in use without a place
  size_t evictions_ = 0;
};

}  // namespace detshare
