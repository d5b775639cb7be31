#include "policy/eviction.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <vector>

namespace detshare::policy {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr Nanoseconds kNow = 100 * kSecond;

struct Card {
  EvictionParameters parameters;
  uint64_t free = 0, host_limit = 1000 * kGiB, host_used = 0;
  std::vector<ResidentMemory> residents;
  std::vector<RoomRequest> requests;

  EvictionDecision At(Nanoseconds now) const {
    return Evict({now, free, host_limit, host_used, residents, requests}, parameters);
  }
  // The evicted sessions, with the bytes of each.
  std::vector<std::pair<uint64_t, uint64_t>> Victims(Nanoseconds now = kNow) const {
    std::vector<std::pair<uint64_t, uint64_t>> victims;
    for (const auto& victim : At(now).victims)
      victims.emplace_back(residents[victim.resident].session, victim.bytes);
    return victims;
  }
};

using Victims = std::vector<std::pair<uint64_t, uint64_t>>;

ResidentMemory Idle(uint64_t session, uint64_t movable, Nanoseconds since) {
  ResidentMemory memory;
  memory.session = session;
  memory.movable = movable;
  memory.working_until = since;
  return memory;
}

TEST_CASE("A request for which there is room has no victims") {
  Card card;
  card.free = 4 * kGiB;
  card.residents = {Idle(1, 8 * kGiB, 0)};
  card.requests = {{2, TenantClass::kUnset, 4 * kGiB}};
  const EvictionDecision decision = card.At(kNow);
  CHECK(decision.request == 0);
  CHECK(decision.victims.empty());
}

TEST_CASE("The longest idle session is evicted first, and no more than is needed") {
  Card card;
  card.free = kGiB;
  card.residents = {Idle(1, 8 * kGiB, 20 * kSecond), Idle(2, 8 * kGiB, 10 * kSecond),
                    Idle(3, 8 * kGiB, 30 * kSecond)};
  card.requests = {{4, TenantClass::kUnset, 11 * kGiB}};
  CHECK(card.Victims() == Victims{{2, 8 * kGiB}, {1, 2 * kGiB}});
}

TEST_CASE("Memory is not moved in small amounts") {
  Card card;
  card.residents = {Idle(1, 8 * kGiB, 0)};
  card.requests = {{2, TenantClass::kUnset, 2 << 20}};
  CHECK(card.Victims() == Victims{{1, card.parameters.min_bytes}});
  card.residents[0].movable = 4 << 20;
  CHECK(card.Victims() == Victims{{1, 4 << 20}});
}

TEST_CASE("No session makes room for itself, and an impossible request is hopeless") {
  Card card;
  card.residents = {Idle(1, 8 * kGiB, 0), Idle(2, 2 * kGiB, 0)};
  card.requests = {{1, TenantClass::kUnset, 3 * kGiB}};
  EvictionDecision decision = card.At(kNow);
  CHECK(decision.request == -1);
  CHECK(decision.hopeless == std::vector<size_t>{0});
  card.requests[0].bytes = 2 * kGiB;
  CHECK(card.Victims() == Victims{{2, 2 * kGiB}});
}

TEST_CASE("A hopeless request does not delay later ones") {
  Card card;
  card.residents = {Idle(1, 2 * kGiB, 0)};
  card.requests = {{2, TenantClass::kUnset, 3 * kGiB}, {3, TenantClass::kUnset, 2 * kGiB}};
  const EvictionDecision decision = card.At(kNow);
  CHECK(decision.request == 1);
  CHECK(decision.hopeless == std::vector<size_t>{0});
  CHECK(decision.victims.size() == 1);
}

TEST_CASE("A tenant that has returned is evicted after those that were idle for long") {
  Card card;
  card.residents = {Idle(1, 8 * kGiB, 0), Idle(2, 8 * kGiB, kNow - kSecond / 2)};
  card.residents[0].placed_at = kNow - kSecond / 2;
  card.requests = {{3, TenantClass::kUnset, 8 * kGiB}};
  CHECK(card.Victims() == Victims{{2, 8 * kGiB}});
  card.requests[0].bytes = 16 * kGiB;  // no other session is there
  CHECK(card.Victims() == Victims{{2, 8 * kGiB}, {1, 8 * kGiB}});
}

TEST_CASE("A short pause counts as work") {
  Card card;
  card.residents = {Idle(1, 8 * kGiB, kNow - 100 * kMillisecond),
                    Idle(2, 8 * kGiB, kNow - kSecond)};
  card.residents[0].placed_at = kNow - 500 * kMillisecond;
  card.requests = {{3, TenantClass::kUnset, 16 * kGiB}};
  EvictionDecision decision = card.At(kNow);
  CHECK(decision.request == -1);  // the first one still has its turn
  CHECK(decision.hopeless.empty());
  CHECK(card.Victims(kNow + 501 * kMillisecond).size() == 2);
}

TEST_CASE("A waiting request is not overtaken by later ones") {
  Card card;
  card.residents = {Idle(1, 8 * kGiB, kNow)};
  card.residents[0].placed_at = kNow - kSecond / 2;
  card.residents.push_back(Idle(4, 2 * kGiB, 0));
  card.requests = {{2, TenantClass::kUnset, 10 * kGiB}, {3, TenantClass::kUnset, 2 * kGiB}};
  CHECK(card.At(kNow).request == -1);
  CHECK(card.At(kNow + kSecond).request == 0);
}

TEST_CASE("The session whose turn it is gets its memory before the others") {
  Card card;
  RoomRequest turn{2, TenantClass::kUnset, 2 * kGiB};
  turn.placed_at = kNow - kSecond / 2;
  card.residents = {Idle(1, 8 * kGiB, kNow), Idle(2, 8 * kGiB, kNow)};
  card.residents[0].blocked = true;
  card.residents[1].placed_at = turn.placed_at;
  card.requests = {{1, TenantClass::kUnset, 4 * kGiB, true}, turn};
  const EvictionDecision decision = card.At(kNow);
  CHECK(decision.request == 1);
  CHECK(card.Victims() == Victims{{1, 2 * kGiB}});
}

TEST_CASE(
    "A working latency tenant makes room only for latency tenants, and does not wait for turns") {
  Card card;
  card.residents = {Idle(1, 8 * kGiB, kNow)};
  card.residents[0].tenant_class = TenantClass::kLatency;
  card.requests = {{2, TenantClass::kBatch, 4 * kGiB}};
  CHECK(card.At(kNow).hopeless == std::vector<size_t>{0});
  CHECK(card.At(kNow + kSecond).request == 0);  // it is idle by then
  card.requests[0].tenant_class = TenantClass::kLatency;
  CHECK(card.At(kNow).request == 0);

  card.residents.push_back(Idle(3, 8 * kGiB, kNow));
  card.requests.insert(card.requests.begin(), {4, TenantClass::kBatch, 8 * kGiB});
  CHECK(card.At(kNow).request == 1);
}

TEST_CASE("A session that could not be evicted is left alone for a while") {
  Card card;
  card.residents = {Idle(1, 8 * kGiB, 0)};
  card.residents[0].could_not_go = kNow - kSecond;
  card.requests = {{2, TenantClass::kUnset, 4 * kGiB}};
  CHECK(card.At(kNow).hopeless == std::vector<size_t>{0});
  CHECK(card.At(kNow + card.parameters.refusal).request == 0);
}

TEST_CASE("Half of the host's room is kept for exchanges") {
  Card card;
  card.host_limit = 8 * kGiB;
  card.residents = {Idle(1, 8 * kGiB, 0)};
  card.requests = {{2, TenantClass::kUnset, 5 * kGiB}};
  CHECK(card.At(kNow).hopeless == std::vector<size_t>{0});
  card.requests[0].bytes = 4 * kGiB;
  CHECK(card.Victims() == Victims{{1, 4 * kGiB}});
  card.host_used = 4 * kGiB;
  CHECK(card.At(kNow).hopeless == std::vector<size_t>{0});
  card.requests[0].comes_back = true;
  CHECK(card.Victims() == Victims{{1, 4 * kGiB}});
}

TEST_CASE("If the host has no room for all of it, memory is exchanged by parts") {
  Card card;
  card.free = kGiB;
  card.host_limit = 8 * kGiB;
  card.host_used = 6 * kGiB;
  card.residents = {Idle(1, 8 * kGiB, 0)};
  card.requests = {{2, TenantClass::kUnset, 6 * kGiB, true}};
  CHECK(card.At(kNow).hopeless == std::vector<size_t>{0});
  card.requests[0].part = 2 * kGiB;
  CHECK(card.Victims() == Victims{{1, 2 * kGiB}});  // all that the host has room for

  card.free = 3 * kGiB;
  card.host_used = 8 * kGiB;
  EvictionDecision decision = card.At(kNow);
  CHECK(decision.request == 0);  // a part comes back
  CHECK(decision.victims.empty());

  card.free = kGiB;
  decision = card.At(kNow);
  CHECK(decision.request == -1);
  CHECK(decision.hopeless == std::vector<size_t>{0});
}

TEST_CASE("A part returns when no session can be evicted") {
  Card card;
  card.free = 3 * kGiB;
  card.residents = {Idle(1, 8 * kGiB, 0)};
  card.residents[0].could_not_go = kNow - kSecond;
  card.requests = {{2, TenantClass::kUnset, 6 * kGiB, true}};
  card.requests[0].part = 3 * kGiB;
  const EvictionDecision decision = card.At(kNow);
  CHECK(decision.request == 0);
  CHECK(decision.victims.empty());
}

// All sessions always work, and the card holds one of them.
TEST_CASE("Sessions that together exceed the card take turns, each as often and as long") {
  constexpr uint64_t kCard = 10 * kGiB, kEach = 8 * kGiB;
  struct Program {
    uint64_t in = 0;
    Nanoseconds placed_at = ResidentMemory::kNever, ran = 0;
    int turns = 0;
  };
  std::map<uint64_t, Program> programs;
  for (uint64_t session : {1, 2, 3}) programs[session];
  programs[1].in = kEach;
  std::vector<uint64_t> line = {2, 3};
  constexpr Nanoseconds kTick = 10 * kMillisecond;
  for (Nanoseconds now = kNow; now < kNow + 60 * kSecond; now += kTick) {
    Card card;
    uint64_t used = 0, out = 0;
    for (const auto& [session, program] : programs) {
      ResidentMemory memory = Idle(session, program.in, now);
      memory.blocked = program.in < kEach;
      memory.placed_at = program.placed_at;
      card.residents.push_back(memory);
      used += program.in;
      out += kEach - program.in;
    }
    card.free = kCard - used;
    card.host_used = out;
    for (uint64_t session : line) {
      RoomRequest request{session, TenantClass::kUnset, kEach - programs[session].in, true};
      request.placed_at = programs[session].placed_at;
      card.requests.push_back(request);
    }
    const EvictionDecision decision = card.At(now);
    REQUIRE(decision.hopeless.empty());
    if (decision.request >= 0) {
      const uint64_t winner = line[decision.request];
      for (const auto& victim : decision.victims) {
        Program& program = programs[card.residents[victim.resident].session];
        const bool worked = program.in == kEach;
        program.in -= victim.bytes;
        if (worked) line.push_back(card.residents[victim.resident].session);
        card.free += victim.bytes;
      }
      REQUIRE(card.free >= kEach - programs[winner].in);
      programs[winner].in = kEach;
      programs[winner].placed_at = now;
      ++programs[winner].turns;
      std::erase(line, winner);
    }
    for (auto& [session, program] : programs) {
      if (program.in == kEach) program.ran += kTick;
    }
  }
  for (const auto& [session, program] : programs) {
    CHECK(program.ran > 19 * kSecond);
    CHECK(program.turns >= 19);
    CHECK(program.turns <= 21);
  }
}

TEST_CASE(
    "Only as much is evicted as the host has room for, and nothing of a session without memory") {
  Card card;
  card.host_limit = 8 * kGiB + 1;
  card.residents = {Idle(1, 0, 0), Idle(2, 8 * kGiB, kSecond), Idle(3, 8 * kGiB, 2 * kSecond)};
  card.requests = {{4, TenantClass::kUnset, 8 * kGiB + 1, true}};
  CHECK(card.Victims() == Victims{{2, 8 * kGiB}, {3, 1}});
}

TEST_CASE("Among working sessions the one whose turn began first is evicted first") {
  Card card;
  card.residents = {Idle(1, 8 * kGiB, kNow), Idle(2, 8 * kGiB, kNow), Idle(3, 8 * kGiB, kNow)};
  card.residents[0].placed_at = kNow - 2 * kSecond;
  card.residents[1].placed_at = kNow - 3 * kSecond;
  card.residents[2].placed_at = kNow - 2 * kSecond;
  card.requests = {{4, TenantClass::kUnset, 24 * kGiB}};
  CHECK(card.Victims() == Victims{{2, 8 * kGiB}, {1, 8 * kGiB}, {3, 8 * kGiB}});
}

TEST_CASE("A session that waits for its memory is evicted before an idle one") {
  Card card;
  card.residents = {Idle(1, 8 * kGiB, 0), Idle(2, 8 * kGiB, kNow)};
  card.residents[1].blocked = true;
  card.requests = {{3, TenantClass::kUnset, 8 * kGiB}};
  CHECK(card.Victims() == Victims{{2, 8 * kGiB}});
}

TEST_CASE("A session that has its turn and waits for more room is not evicted during that turn") {
  Card card;
  card.residents = {Idle(1, 8 * kGiB, kNow)};
  card.residents[0].blocked = true;
  card.residents[0].placed_at = kNow - kSecond / 2;
  card.requests = {{2, TenantClass::kUnset, 8 * kGiB}};
  const EvictionDecision decision = card.At(kNow);
  CHECK(decision.request == -1);
  CHECK(decision.hopeless.empty());
  CHECK(card.Victims(kNow + kSecond / 2) == Victims{{1, 8 * kGiB}});
}

}  // namespace
}  // namespace detshare::policy
