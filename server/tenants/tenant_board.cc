#include "server/tenants/tenant_board.h"

#include <limits>

#include "absl/types/span.h"
#include "coroutine_runtime/durations.h"

namespace detshare {
namespace {

// The same in all processes. Never 0.
uint64_t HashOf(const std::string& tenant) {
  return StableHash(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(tenant.data()),
                                        tenant.size())) |
         1;
}

}  // namespace

void TenantBoard::Share(pid_t process, const std::string& tenant) {
  const MutexLock lock(&mutex_);
  std::set<uint64_t>& others = others_[tenant];
  if (others.size() >= EnginePeers::kMax) {
    std::set<uint64_t> there;
    peers_->ForEach([&](uint64_t id, const EnginePage&) { there.insert(id); });
    std::erase_if(others, [&](uint64_t id) { return !there.contains(id); });
  }
  others.insert(static_cast<uint64_t>(process));
}

TenantWords* TenantBoard::Claim(const std::string& tenant) {
  if (own_ == nullptr) return nullptr;
  const uint64_t hash = HashOf(tenant);
  for (TenantWords& words : own_->tenants) {
    uint64_t free = 0;
    if (words.tenant.compare_exchange_strong(free, hash)) return &words;
  }
  return nullptr;
}

void TenantBoard::Release(TenantWords* words) {
  if (words == nullptr) return;
  words->pinned.store(0);
  for (std::atomic<uint64_t>& memory : words->memory) memory.store(0);
  words->tenant.store(0);
}

template <typename Word>
uint64_t TenantBoard::SumOfOthers(const std::string& tenant, uint64_t hash,
                                  const Word& word) const {
  const MutexLock lock(&mutex_);
  const auto found = others_.find(tenant);
  if (found == others_.end()) return 0;
  uint64_t sum = 0;
  peers_->ForEach([&](uint64_t id, const EnginePage& page) {
    if (!found->second.contains(id)) return;
    for (const TenantWords& words : page.tenants) {
      if (words.tenant.load() != hash) continue;
      const uint64_t used = word(words).load();
      const uint64_t room = std::numeric_limits<uint64_t>::max() - sum;
      sum += used < room ? used : room;
    }
  });
  return sum;
}

Quota::Shared TenantBoard::Memory(const std::string& tenant, TenantWords* words, size_t device) {
  if (words == nullptr || device >= words->memory.size()) return {};
  return {&words->memory[device], [this, tenant, hash = HashOf(tenant), device] {
            return SumOfOthers(
                tenant, hash, [device](const TenantWords& other) -> const auto& {
                  return other.memory[device];
                });
          }};
}

Quota::Shared TenantBoard::Pinned(const std::string& tenant, TenantWords* words) {
  if (words == nullptr) return {};
  return {&words->pinned, [this, tenant, hash = HashOf(tenant)] {
            return SumOfOthers(
                tenant, hash, [](const TenantWords& other) -> const auto& { return other.pinned; });
          }};
}

}  // namespace detshare
