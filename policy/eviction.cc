#include "policy/eviction.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace detshare::policy {
namespace {

// Times may be kNever, so nothing is subtracted from them.
bool Within(Nanoseconds since, Nanoseconds period, Nanoseconds now) {
  return since != ResidentMemory::kNever && now < since + period;
}

// The order in which sessions are evicted: smaller numbers first.
enum Standing { kBlocked, kIdle, kIdleNewcomer, kWorking, kLater, kNotForThis };

Standing StandingOf(const ResidentMemory& resident, const RoomRequest& request, Nanoseconds now,
                    const EvictionParameters& parameters) {
  if (resident.session == request.session || resident.movable == 0) return kNotForThis;
  if (Within(resident.could_not_go, parameters.refusal, now)) return kNotForThis;
  const bool newcomer = Within(resident.placed_at, parameters.residence, now);
  if (resident.blocked) return newcomer ? kLater : kBlocked;
  if (!Within(resident.working_until, parameters.idle_after, now))
    return newcomer ? kIdleNewcomer : kIdle;
  if (resident.tenant_class == TenantClass::kLatency &&
      request.tenant_class != TenantClass::kLatency)
    return kNotForThis;
  return newcomer ? kLater : kWorking;
}

uint64_t HostRoom(const EvictionSnapshot& snapshot, const RoomRequest& request) {
  const uint64_t limit = request.comes_back ? snapshot.host_limit : snapshot.host_limit / 2;
  return limit > snapshot.host_used ? limit - snapshot.host_used : 0;
}

}  // namespace

EvictionDecision Evict(const EvictionSnapshot& snapshot, const EvictionParameters& parameters) {
  EvictionDecision decision;
  // The session whose turn it is goes before the sessions that wait for the end of that turn.
  std::vector<size_t> line(snapshot.requests.size());
  std::iota(line.begin(), line.end(), size_t{0});
  std::stable_sort(line.begin(), line.end(), [&](size_t a, size_t b) {
    const auto rank = [&](const RoomRequest& request) {
      if (request.tenant_class == TenantClass::kLatency) return 0;
      return Within(request.placed_at, parameters.residence, snapshot.now) ? 1 : 2;
    };
    return rank(snapshot.requests[a]) < rank(snapshot.requests[b]);
  });

  for (const size_t index : line) {
    const RoomRequest& request = snapshot.requests[index];
    if (request.bytes <= snapshot.free) {
      if (decision.request < 0) decision.request = static_cast<int>(index);
      return decision;
    }
    uint64_t needed = request.bytes - snapshot.free;
    std::vector<std::pair<Standing, size_t>> order;
    uint64_t now = 0, later = 0;
    for (size_t i = 0; i < snapshot.residents.size(); ++i) {
      const Standing standing =
          StandingOf(snapshot.residents[i], request, snapshot.now, parameters);
      if (standing == kNotForThis) continue;
      (standing == kLater ? later : now) += snapshot.residents[i].movable;
      if (standing != kLater) order.emplace_back(standing, i);
    }
    uint64_t host_room = HostRoom(snapshot, request);
    if (needed > host_room || needed > now + later) {
      const uint64_t goes =
          request.part != 0 && needed <= now + later ? std::min(host_room, now) : 0;
      if (goes == 0 || goes < parameters.min_bytes) {
        if (request.part != 0 && request.part <= snapshot.free) {
          decision.request = static_cast<int>(index);
          return decision;
        }
        decision.hopeless.push_back(index);
        continue;
      }
      needed = goes;
    }
    // Requests behind this one in the line must not take the memory that it waits for.
    if (needed > now) return decision;
    std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
      if (a.first != b.first) return a.first < b.first;
      const ResidentMemory& left = snapshot.residents[a.second];
      const ResidentMemory& right = snapshot.residents[b.second];
      // The session that has been longest without work; of working sessions, the one that got its
      // room first.
      if (left.working_until != right.working_until)
        return left.working_until < right.working_until;
      if (left.placed_at != right.placed_at) return left.placed_at < right.placed_at;
      return left.session < right.session;
    });
    decision.request = static_cast<int>(index);
    uint64_t left = needed;
    for (const auto& [standing, i] : order) {
      const uint64_t movable = snapshot.residents[i].movable;
      const uint64_t bytes = std::min({movable, host_room, std::max(left, parameters.min_bytes)});
      decision.victims.push_back({i, bytes});
      host_room -= bytes;
      if (bytes >= left) break;
      left -= bytes;
    }
    return decision;
  }
  return decision;
}

}  // namespace detshare::policy
