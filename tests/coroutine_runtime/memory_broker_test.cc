#include "coroutine_runtime/memory_broker.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "tests/coroutine_runtime/fake_device.h"
#include "tests/units.h"

namespace detshare {
namespace {

constexpr uint64_t kCard = 64 * kMiB;
using policy::kMillisecond;
using policy::kSecond;

struct Card {
  explicit Card(uint64_t host_memory = 1 << 30) : host_memory(host_memory) {
    device.runs_at_once = true;
  }
  void Pass(int64_t time) { clock.Advance(time); }

  const uint64_t host_memory;
  FakeDevice device{2 << 20, kCard};
  QueuePool pool{device};
  HostStore store{host_memory};
  MemoryMover mover{device, pool, 1};
  ManualClock clock;
  MemoryBroker broker{device, store, mover, clock, [] {
                        policy::EvictionParameters parameters;
                        parameters.min_bytes = 0;
                        return parameters;
                      }()};
  const std::atomic<bool> stop{false};
};

struct BrokerSession {
  BrokerSession(Card& card, uint64_t id) : card(card) {
    space = *card.device.CreateAddressSpace(id << 40, 1ull << 36);
    coroutine = *GpuCoroutine::Create(card.device, *space, card.pool, parking);
    memory = std::make_unique<DeviceMemory>(*coroutine);
    account = card.broker.Open(id, policy::TenantClass::kUnset, *memory, [this] { ++attended; });
  }
  ~BrokerSession() {
    account->Leave();
    executor.reset();
    memory.reset();
    space.reset();
    account.reset();
  }
  static Task<void> Keep(Task<absl::StatusOr<DeviceAddress>> task, bool* done) {
    *done = (co_await task).ok();
  }
  bool Allocate(uint64_t bytes) {
    bool done = false;
    executor->Spawn(Keep(memory->Allocate(1, bytes), &done));
    card.device.RunAll();
    executor->Poll();
    return done;
  }
  // Does what a session's thread does with an order.
  void Obey() {
    const uint64_t bytes = account->Begin();
    if (bytes != 0) account->End(account->MoveOut(bytes, card.stop).ok());
  }

  Card& card;
  std::unique_ptr<Executor> executor = std::make_unique<Executor>();
  Parking parking{*executor};
  std::unique_ptr<GpuCoroutine> coroutine;
  std::unique_ptr<AddressSpace> space;
  std::unique_ptr<DeviceMemory> memory;
  std::unique_ptr<MemoryBroker::Account> account;
  int attended = 0;
};

RoomTicket::State StateOf(const std::unique_ptr<RoomTicket>& ticket) {
  return static_cast<RoomTicket::State>(ticket->state().load());
}

TEST_CASE("Existing room is granted at once, to one session at a time") {
  Card card;
  BrokerSession a(card, 1), b(card, 2);
  auto first = a.account->Ask(40 * kMiB);
  auto second = b.account->Ask(40 * kMiB);
  CHECK(StateOf(first) == RoomTicket::kGranted);
  CHECK(StateOf(second) == RoomTicket::kWaiting);
  CHECK(b.account->waiting() == 1);
  first.reset();
  CHECK(StateOf(second) == RoomTicket::kGranted);
  CHECK(b.account->waiting() == 0);
}

TEST_CASE("An idle session is evicted, and the room is granted when it has left") {
  Card card;
  BrokerSession a(card, 1), b(card, 2);
  REQUIRE(a.Allocate(40 * kMiB));
  card.Pass(10 * kSecond);
  a.account->SetIdle(kSecond);
  auto ticket = b.account->Ask(30 * kMiB);
  CHECK(StateOf(ticket) == RoomTicket::kWaiting);
  CHECK(a.attended == 1);
  REQUIRE(a.account->ordered());
  a.Obey();
  CHECK(!a.account->ordered());
  CHECK(StateOf(ticket) == RoomTicket::kGranted);
  CHECK(a.account->counters().out == 40 * kMiB);
  CHECK(card.store.used() == 40 * kMiB);
  ticket.reset();

  auto back = a.account->AskToReturn(0);
  REQUIRE(StateOf(back) == RoomTicket::kGranted);
  CHECK(a.account->MoveIn(card.stop).ok());
  CHECK(a.account->counters().bytes_in == 40 * kMiB);
  CHECK(a.account->counters().moves == 2);
  CHECK(card.store.used() == 0);
}

TEST_CASE("The host's room is used and given back to the last byte") {
  HostStore store(4 * kMiB);
  {
    const absl::StatusOr<HostBlock> most = store.Take(3 * kMiB);
    REQUIRE(most.ok());
    CHECK_FALSE(store.Take(kMiB + 1).ok());
    CHECK(store.Take(kMiB).ok());
  }
  CHECK(store.used() == 0);
  CHECK(store.Take(4 * kMiB).ok());
}

TEST_CASE("A move whose session ends is not carried out") {
  Card card;
  BrokerSession a(card, 1);
  REQUIRE(a.Allocate(8 * kMiB));
  std::vector<std::byte> host(8 * kMiB);
  const MovePiece pieces[] = {{a.space->base(), host.data(), host.size()}};
  const auto move = [&](const std::atomic<bool>& stop) {
    return card.mover.Move(*a.space, MemoryMover::Direction::kToHost, pieces, stop);
  };
  CHECK(absl::IsCancelled(move(std::atomic<bool>(true))));
  CHECK(move(card.stop).ok());
}

TEST_CASE("Impossible requests are refused at once, except those of returning sessions") {
  Card card;
  BrokerSession a(card, 1), b(card, 2);
  REQUIRE(a.Allocate(40 * kMiB));
  a.memory->KeepInPlace(uint64_t{1} << 40);
  CHECK(StateOf(b.account->Ask(30 * kMiB)) == RoomTicket::kRefused);
  const auto back = b.account->AskToReturn(30 * kMiB);
  CHECK(StateOf(back) == RoomTicket::kWaiting);
  // Other requests do not wait behind it.
  CHECK(StateOf(b.account->Ask(10 * kMiB)) == RoomTicket::kGranted);
}

TEST_CASE(
    "An eviction that does not begin is withdrawn, and the session is left alone for a while") {
  Card card;
  BrokerSession a(card, 1), b(card, 2);
  REQUIRE(a.Allocate(40 * kMiB));
  card.Pass(10 * kSecond);
  auto ticket = b.account->Ask(30 * kMiB);
  REQUIRE(a.account->ordered());
  card.Pass(kSecond);
  b.account->Look();
  CHECK(StateOf(ticket) == RoomTicket::kWaiting);
  card.Pass(2 * kSecond);
  b.account->Look();
  CHECK(StateOf(ticket) == RoomTicket::kRefused);
  CHECK(!a.account->ordered());
  CHECK(a.account->Begin() == 0);
  CHECK(StateOf(b.account->Ask(30 * kMiB)) == RoomTicket::kRefused);
  card.Pass(20 * kSecond);
  ticket = b.account->Ask(30 * kMiB);
  CHECK(StateOf(ticket) == RoomTicket::kWaiting);
  a.account->Begin();
  card.Pass(20 * kSecond);  // it has begun, so the broker waits for it
  b.account->Look();
  CHECK(StateOf(ticket) == RoomTicket::kWaiting);
  a.account->End(false);
  CHECK(StateOf(ticket) == RoomTicket::kRefused);
}

TEST_CASE("The broker does not wait for a session that ended") {
  Card card;
  BrokerSession b(card, 2);
  std::unique_ptr<RoomTicket> ticket;
  {
    BrokerSession a(card, 1);
    REQUIRE(a.Allocate(40 * kMiB));
    card.Pass(10 * kSecond);
    ticket = b.account->Ask(30 * kMiB);
    REQUIRE(a.account->ordered());
    CHECK(StateOf(ticket) == RoomTicket::kWaiting);
  }
  CHECK(StateOf(ticket) == RoomTicket::kGranted);
}

TEST_CASE("A request waits for the memory of a session that is ending") {
  Card card;
  BrokerSession b(card, 2);
  std::unique_ptr<RoomTicket> ticket;
  {
    BrokerSession a(card, 1);
    REQUIRE(a.Allocate(40 * kMiB));
    a.account->Leave();
    ticket = b.account->Ask(30 * kMiB);
    CHECK(StateOf(ticket) == RoomTicket::kWaiting);
  }
  CHECK(StateOf(ticket) == RoomTicket::kGranted);
}

TEST_CASE("A session that got room keeps it for a while, although others wait") {
  Card card;
  BrokerSession a(card, 1), b(card, 2);
  REQUIRE(a.Allocate(40 * kMiB));
  card.Pass(10 * kSecond);
  auto ticket = b.account->Ask(40 * kMiB);
  a.Obey();
  REQUIRE(StateOf(ticket) == RoomTicket::kGranted);
  ticket.reset();
  REQUIRE(b.Allocate(40 * kMiB));

  a.account->SetBlocked(true);
  auto back = a.account->AskToReturn(0);
  CHECK(StateOf(back) == RoomTicket::kWaiting);
  CHECK(!b.account->ordered());
  card.Pass(500 * kMillisecond);
  a.account->Look();
  CHECK(!b.account->ordered());
  card.Pass(600 * kMillisecond);
  a.account->Look();
  CHECK(b.account->ordered());
  b.Obey();
  CHECK(StateOf(back) == RoomTicket::kGranted);
  CHECK(a.account->MoveIn(card.stop).ok());
}

TEST_CASE("Sessions are exchanged by parts if the host has no room for one of them") {
  Card card(30 * kMiB);
  BrokerSession a(card, 1), b(card, 2);
  for (const uint64_t bytes : {10, 10, 10, 8}) REQUIRE(a.Allocate(bytes * kMiB));
  const auto make_room = [&](BrokerSession& goes, const std::unique_ptr<RoomTicket>& ticket) {
    for (int turn = 0; turn < 100 && StateOf(ticket) == RoomTicket::kWaiting; ++turn) {
      card.Pass(kSecond);
      goes.account->SetIdle(card.clock.NowNanoseconds() - kSecond / 2);
      goes.Obey();
      goes.account->Look();
    }
    REQUIRE(StateOf(ticket) == RoomTicket::kGranted);
  };
  card.Pass(10 * kSecond);
  a.account->SetIdle(kSecond);
  make_room(a, b.account->Ask(40 * kMiB));
  for (const uint64_t bytes : {10, 10, 10, 10}) REQUIRE(b.Allocate(bytes * kMiB));
  REQUIRE(a.memory->out() >= 14 * kMiB);
  for (int round = 0; round < 3; ++round) {
    for (auto [back, goes] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      goes->account->SetBlocked(false);
      back->account->SetBlocked(true);
      for (int turn = 0; turn < 100 && back->memory->out() != 0; ++turn) {
        const auto ticket = back->account->AskToReturn(0);
        make_room(*goes, ticket);
        CHECK(back->account->MoveIn(card.stop).ok());
      }
      REQUIRE(back->memory->out() == 0);
    }
  }
}

TEST_CASE("A request for new memory waits for half a minute, and no longer") {
  Card card;
  BrokerSession a(card, 1), b(card, 2), c(card, 3);
  REQUIRE(a.Allocate(40 * kMiB));
  card.Pass(10 * kSecond);
  auto first = b.account->Ask(40 * kMiB);
  REQUIRE(a.account->Begin() != 0);  // the broker waits for it
  auto late = c.account->Ask(60 * kMiB);
  bool refused = false;
  SECTION("less") { card.Pass(29 * kSecond); }
  SECTION("more") {
    card.Pass(30 * kSecond);
    refused = true;
  }
  a.account->End(true);
  CHECK(StateOf(late) == (refused ? RoomTicket::kRefused : RoomTicket::kWaiting));
}

TEST_CASE("A session for which nobody was evicted has no turn") {
  Card card;
  BrokerSession a(card, 1), b(card, 2);
  CHECK(StateOf(a.account->Ask(40 * kMiB)) == RoomTicket::kGranted);
  REQUIRE(a.Allocate(40 * kMiB));
  const auto ticket = b.account->Ask(30 * kMiB);
  CHECK(a.account->ordered());
}

}  // namespace
}  // namespace detshare
