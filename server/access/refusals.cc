#include "server/access/refusals.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace detshare {

std::optional<std::string> Refusals::Note(const ConnectionHolder& holder, const std::string& reason,
                                          Clock::time_point now) {
  if (holders_.size() >= kMaxHolders && !holders_.contains(holder)) Prune(now);
  if (holders_.size() >= kMaxHolders && !holders_.contains(holder))
    return Tell(others_, reason, " of any users", now);
  Holder& own = holders_[holder];
  if (own.reasons.size() >= kMaxReasons && !own.reasons.contains(reason)) Prune(own, now);
  if (own.reasons.size() >= kMaxReasons && !own.reasons.contains(reason))
    return Tell(own.others, reason, " for any reasons", now);
  const auto [found, is_new] = own.reasons.try_emplace(reason);
  std::optional<Kind> kind;
  if (!is_new) kind = found->second;
  std::optional<std::string> text = Tell(kind, reason, "", now);
  found->second = *kind;
  return text;
}

void Refusals::Prune(Holder& holder, Clock::time_point now) {
  std::erase_if(holder.reasons, [&](const auto& one) { return !Told(one.second, now); });
  if (holder.others.has_value() && !Told(*holder.others, now)) holder.others.reset();
}

void Refusals::Prune(Clock::time_point now) {
  for (auto one = holders_.begin(); one != holders_.end();) {
    Prune(one->second, now);
    const bool empty = one->second.reasons.empty() && !one->second.others.has_value();
    one = empty ? holders_.erase(one) : std::next(one);
  }
}

std::optional<std::string> Refusals::Tell(std::optional<Kind>& kind, const std::string& reason,
                                          const char* which, Clock::time_point now) {
  if (kind.has_value() && Told(*kind, now)) {
    ++kind->untold;
    return std::nullopt;
  }
  const uint64_t untold = kind.has_value() ? kind->untold : 0;
  kind = Kind{now, 0};
  if (untold == 0) return reason;
  return absl::StrCat(reason, " (", untold, untold == 1 ? " refusal" : " refusals", which,
                      " before this one ", untold == 1 ? "was" : "were", " only counted)");
}

}  // namespace detshare
