// Figures by tenant, for a bounded number of tenants. Programs may be allowed to choose their
// tenant's name, and names must not fill the memory of the daemon or of its monitoring.
//
// Threading: one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace detshare {

// No tenant can have this name.
inline constexpr char kOtherTenants[] = "(other)";
inline constexpr size_t kMaxTenantsApart = 128;

template <typename Figures>
class ByTenant {
 public:
  // A configured tenant always has a place, whichever tenants came before it.
  void Reserve(const std::string& name) { figures_[name]; }
  // The name under which the tenant is counted from its first mention on.
  std::string NameFor(const std::string& name) const {
    if (figures_.contains(name) || figures_.size() < kMaxTenantsApart) return name;
    return kOtherTenants;
  }
  Figures& At(const std::string& name) { return figures_[NameFor(name)]; }
  const std::map<std::string, Figures>& all() const { return figures_; }

 private:
  std::map<std::string, Figures> figures_;
};

}  // namespace detshare
