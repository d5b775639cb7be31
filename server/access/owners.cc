#include "server/access/owners.h"

#include <optional>

namespace detshare {
namespace {

// Empties the fields of `owner` that `other` has differently.
void KeepCommon(const proto::Owner& other, proto::Owner* owner) {
  if (owner->job() != other.job()) owner->clear_job();
  if (owner->user() != other.user()) owner->clear_user();
  // A container's name says nothing without its pod, and a pod's nothing without its namespace.
  if (owner->namespace_() != other.namespace_()) owner->clear_namespace_();
  if (owner->namespace_().empty() || owner->pod() != other.pod()) owner->clear_pod();
  if (owner->pod().empty() || owner->container() != other.container()) owner->clear_container();
}

}  // namespace

void Owners::Set(uint64_t number, const std::string& endpoint, const std::string& tenant,
                 const proto::Owner& owner) {
  const MutexLock lock(&mutex_);
  entries_[number] = {endpoint, tenant, owner};
}

void Owners::Close(uint64_t number) {
  const MutexLock lock(&mutex_);
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  found->second.open = false;
  closed_.push_back(number);
  if (closed_.size() <= kClosed) return;
  entries_.erase(closed_.front());
  closed_.pop_front();
}

proto::Owner Owners::OfEndpoint(const std::string& name) const {
  const MutexLock lock(&mutex_);
  for (const auto& [number, entry] : entries_) {
    if (entry.open && entry.endpoint == name) return entry.owner;
  }
  return {};
}

proto::Owner Owners::OfNumber(uint64_t number) const {
  const MutexLock lock(&mutex_);
  const auto found = entries_.find(number);
  return found != entries_.end() ? found->second.owner : proto::Owner();
}

proto::Owner Owners::OfTenant(const std::string& tenant) const {
  const MutexLock lock(&mutex_);
  std::optional<proto::Owner> owner;
  for (const auto& [number, entry] : entries_) {
    if (!entry.open || entry.tenant != tenant) continue;
    if (owner.has_value()) {
      KeepCommon(entry.owner, &*owner);
    } else {
      owner = entry.owner;
    }
  }
  return owner.value_or(proto::Owner());
}

}  // namespace detshare
