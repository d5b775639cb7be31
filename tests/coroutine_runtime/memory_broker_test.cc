#include "coroutine_runtime/memory_broker.h"

#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <vector>

#include "tests/coroutine_runtime/engine_peers.h"
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
  // The card is a Card, or a Process as below.
  template <typename CardOfSession>
  BrokerSession(CardOfSession& card, uint64_t id) : device(card.device), stop(card.stop) {
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
    device.RunAll();
    executor->Poll();
    return done;
  }
  // Does what a session's thread does with an order.
  void Obey() {
    const uint64_t bytes = account->Begin();
    if (bytes != 0) account->End(account->MoveOut(bytes, stop).ok());
  }

  FakeDevice& device;
  const std::atomic<bool>& stop;
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

// ---- several processes

struct SharedCard {
  FakeDevice device{2 << 20, kCard};
  QueuePool pool{device};
  ManualClock clock;
  EnginePage pages[2];
  SharedCard() {
    device.runs_at_once = true;
    clock.Advance(100 * kSecond);
  }
};

// One of two processes on the card. The other one has the page `other`.
struct Process {
  Process(SharedCard& shared, int own, uint64_t min_bytes = 0)
      : shared(shared), own(shared.pages[own]), min_bytes(min_bytes) {
    AddPeer(peers, 1, shared.pages[1 - own]);
  }
  // Does what the process does when another one wakes it.
  void Wake() {
    shared.clock.Advance(2 * kMillisecond);
    broker.Look();
  }

  SharedCard& shared;
  EnginePage& own;
  const uint64_t min_bytes;
  FakeDevice& device = shared.device;
  QueuePool& pool = shared.pool;
  EnginePeers peers;
  int woke_others = 0;
  HostStore store{1 << 30, {&own.evicted, [this] { return peers.peers[0].page->evicted.load(); }}};
  MemoryMover mover{device, pool, 1};
  MemoryBroker broker{
      device,
      store,
      mover,
      shared.clock,
      [this] {
        policy::EvictionParameters parameters;
        parameters.min_bytes = min_bytes;
        return parameters;
      }(),
      std::make_unique<RoomBoard>(own.devices[0].room, peers, 0, [this] { ++woke_others; })};
  const std::atomic<bool> stop{false};
};

TEST_CASE("An idle session of another process is evicted, and by its own process only") {
  SharedCard card;
  Process first(card, 0), second(card, 1);
  BrokerSession idle(first, 1), asks(second, 2);
  REQUIRE(idle.Allocate(40 * kMiB));
  idle.account->SetIdle(kSecond);
  auto ticket = asks.account->Ask(30 * kMiB);
  CHECK(StateOf(ticket) == RoomTicket::kWaiting);
  CHECK(second.woke_others == 1);
  CHECK_FALSE(idle.account->ordered());
  first.Wake();
  REQUIRE(idle.account->ordered());
  CHECK(idle.attended == 1);
  idle.Obey();
  CHECK(StateOf(ticket) == RoomTicket::kWaiting);
  second.Wake();
  CHECK(StateOf(ticket) == RoomTicket::kGranted);
  CHECK(second.store.used() == 0);
  CHECK(second.store.used_by_all() == 40 * kMiB);
  REQUIRE(asks.Allocate(30 * kMiB));
  ticket.reset();

  // Its memory comes back in the same way.
  asks.account->SetIdle(kSecond);
  auto back = idle.account->AskToReturn(0);
  CHECK(StateOf(back) == RoomTicket::kWaiting);
  CHECK(first.woke_others >= 1);
  card.clock.Advance(2 * kSecond);
  second.Wake();
  REQUIRE(asks.account->ordered());
  asks.Obey();
  first.Wake();
  CHECK(StateOf(back) == RoomTicket::kGranted);
  CHECK(idle.account->MoveIn(first.stop).ok());
}

TEST_CASE("A process that has an idle session of its own does not disturb others") {
  SharedCard card;
  Process first(card, 0), second(card, 1);
  BrokerSession working(first, 1), idle(second, 2), asks(second, 3);
  REQUIRE(working.Allocate(20 * kMiB));
  REQUIRE(idle.Allocate(30 * kMiB));
  idle.account->SetIdle(kSecond);
  first.Wake();
  auto ticket = asks.account->Ask(30 * kMiB);
  REQUIRE(idle.account->ordered());
  first.Wake();
  CHECK_FALSE(working.account->ordered());
  idle.Obey();
  CHECK(StateOf(ticket) == RoomTicket::kGranted);
}

TEST_CASE("A request is refused when all processes have said that they have no memory for it") {
  SharedCard card;
  Process first(card, 0), second(card, 1);
  BrokerSession asks(second, 2);
  SECTION("as soon as the other one has looked") {
    auto ticket = asks.account->Ask(100 * kMiB);
    CHECK(StateOf(ticket) == RoomTicket::kWaiting);
    first.Wake();
    second.Wake();
    CHECK(StateOf(ticket) == RoomTicket::kRefused);
  }
  SECTION("after a moment, if the other one does not look") {
    auto ticket = asks.account->Ask(100 * kMiB);
    card.clock.Advance(400 * kMillisecond);
    second.Wake();
    CHECK(StateOf(ticket) == RoomTicket::kWaiting);
    card.clock.Advance(100 * kMillisecond);
    second.Wake();
    CHECK(StateOf(ticket) == RoomTicket::kRefused);
  }
}

TEST_CASE("A request is not refused while the memory that goes for it counts on the host already") {
  SharedCard card;
  Process first(card, 0), second(card, 1);
  BrokerSession idle(first, 1), asks(second, 2);
  REQUIRE(idle.Allocate(40 * kMiB));
  idle.account->SetIdle(kSecond);
  // Requests for new memory may use half of the host's room. All of that but 50 MiB is used.
  const absl::StatusOr<HostBlock> used = second.store.Take(second.store.limit() / 2 - 50 * kMiB);
  REQUIRE(used.ok());
  auto ticket = asks.account->Ask(40 * kMiB);
  first.Wake();
  REQUIRE(idle.account->Begin() != 0);
  {
    // As while the pieces are copied.
    const absl::StatusOr<HostBlock> going = first.store.Take(40 * kMiB);
    REQUIRE(going.ok());
    for (int i = 0; i < 3; ++i) {
      first.Wake();
      second.Wake();
      CHECK(StateOf(ticket) == RoomTicket::kWaiting);
    }
  }
  idle.account->End(idle.account->MoveOut(40 * kMiB, first.stop).ok());
  second.Wake();
  CHECK(StateOf(ticket) == RoomTicket::kGranted);
}

TEST_CASE("Room is granted in one process at a time, in the order of the requests") {
  SharedCard card;
  Process first(card, 0), second(card, 1);
  BrokerSession a(first, 1), b(second, 2);
  auto earlier = a.account->Ask(40 * kMiB);
  CHECK(StateOf(earlier) == RoomTicket::kGranted);
  auto later = b.account->Ask(40 * kMiB);
  CHECK(StateOf(later) == RoomTicket::kWaiting);
  earlier.reset();
  second.Wake();
  CHECK(StateOf(later) == RoomTicket::kGranted);
}

TEST_CASE("A process that lies about its memory delays others and nothing else") {
  SharedCard card;
  Process honest(card, 0, /*min_bytes=*/8 * kMiB);
  BrokerSession idle(honest, 1), asks(honest, 2);
  RoomWords& lies = card.pages[1].devices[0].room;
  const auto pass = [&](int64_t time) {
    for (int64_t passed = 0; passed < time; passed += 100 * kMillisecond) {
      card.clock.Advance(100 * kMillisecond);
      lies.looked_at = card.clock.NowNanoseconds();
      honest.broker.Look();
    }
  };
  const auto pretend = [&] {
    REQUIRE(idle.Allocate(40 * kMiB));
    idle.account->SetIdle(50 * kSecond);
    // It is the first to go: it says that it has been idle for longer.
    lies.residents[0].session = 77;
    lies.residents[0].movable = 60 * kMiB;
  };
  const auto obey = [&](const auto& ticket) {
    REQUIRE(idle.account->ordered());
    idle.Obey();
    CHECK(StateOf(ticket) == RoomTicket::kGranted);
  };
  SECTION("a session that never goes") {
    pretend();
    auto ticket = asks.account->Ask(40 * kMiB);
    CHECK_FALSE(idle.account->ordered());
    pass(4 * kSecond);
    CHECK_FALSE(idle.account->ordered());
    pass(2 * kSecond);
    obey(ticket);
  }
  SECTION("a session that goes by one byte at each look") {
    pretend();
    auto ticket = asks.account->AskToReturn(40 * kMiB);
    for (int i = 0; i < 60 && !idle.account->ordered(); ++i) {
      --lies.residents[0].movable;
      pass(100 * kMillisecond);
    }
    obey(ticket);
  }
  SECTION("a session that lets go of enough each time has more time") {
    pretend();
    auto ticket = asks.account->AskToReturn(40 * kMiB);
    for (int i = 0; i < 4; ++i) {
      pass(4 * kSecond);
      CHECK_FALSE(idle.account->ordered());
      lies.residents[0].movable -= 8 * kMiB;
    }
  }
  SECTION("sessions that come and go with their memory") {
    REQUIRE(idle.Allocate(40 * kMiB));
    idle.account->SetIdle(50 * kSecond);
    lies.residents[0].movable = 60 * kMiB;
    const bool for_new = GENERATE(false, true);
    auto ticket = for_new ? asks.account->Ask(40 * kMiB) : asks.account->AskToReturn(40 * kMiB);
    for (int i = 0; i < 310 && !idle.account->ordered(); ++i) {
      lies.residents[0].session = 77 + i % 2;
      pass(100 * kMillisecond);
      if (i < 290) CHECK_FALSE(idle.account->ordered());
    }
    obey(ticket);
  }
  SECTION("a newcomer with more memory than the card, for ever") {
    // Another request of the same process is served meanwhile.
    REQUIRE(idle.Allocate(20 * kMiB));
    lies.residents[0].session = 77;
    lies.residents[0].movable = uint64_t{1} << 48;
    auto large = asks.account->AskToReturn(70 * kMiB);
    auto small = idle.account->AskToReturn(10 * kMiB);
    for (int i = 0; i < 310 && StateOf(small) == RoomTicket::kWaiting; ++i) {
      lies.residents[0].placed_at = card.clock.NowNanoseconds();
      pass(100 * kMillisecond);
    }
    CHECK(StateOf(small) == RoomTicket::kGranted);
    CHECK(StateOf(large) == RoomTicket::kWaiting);
  }
  SECTION("a request that is never done") {
    lies.requests[0].session = 77;
    lies.requests[0].bytes = 1;
    lies.requests[0].granted = GENERATE(0u, 1u);
    lies.requests[0].tenant_class = static_cast<uint32_t>(policy::TenantClass::kLatency);
    auto ticket = asks.account->Ask(40 * kMiB);
    CHECK(StateOf(ticket) == RoomTicket::kWaiting);
    pass(11 * kSecond);
    CHECK(StateOf(ticket) == RoomTicket::kGranted);
    ticket.reset();
    // It costs the time once.
    CHECK(StateOf(asks.account->Ask(40 * kMiB)) == RoomTicket::kGranted);
  }
}

TEST_CASE("Random words of another process leave a process able to have what the card has free") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    SharedCard card;
    Process honest(card, 0);
    BrokerSession idle(honest, 1), asks(honest, 2);
    REQUIRE(idle.Allocate(20 * kMiB));
    idle.account->SetIdle(kSecond);
    // Whole words of noise, or small numbers, which mean more.
    auto* const words = reinterpret_cast<std::atomic<uint64_t>*>(&card.pages[1].devices[0].room);
    const auto scribble = [&] {
      for (size_t i = 0; i < sizeof(RoomWords) / sizeof(uint64_t); ++i)
        words[i] = random() >> (random() % 64);
    };
    scribble();
    auto ticket = asks.account->Ask(40 * kMiB);
    for (int i = 0; i < 130 && StateOf(ticket) == RoomTicket::kWaiting; ++i) {
      card.clock.Advance(100 * kMillisecond);
      if (random() % 2 == 0) scribble();
      honest.broker.Look();
      idle.Obey();
    }
    CHECK(StateOf(ticket) == RoomTicket::kGranted);
  }
}

TEST_CASE("Processes that share the host's room never have more than the limit") {
  std::atomic<uint64_t> first_uses{0}, second_uses{0};
  HostStore first(8 * kMiB, {&first_uses, [&] { return second_uses.load(); }});
  HostStore second(8 * kMiB, {&second_uses, [&] { return first_uses.load(); }});
  auto most = first.Take(6 * kMiB);
  REQUIRE(most.ok());
  CHECK(first_uses == 6 * kMiB);
  CHECK_FALSE(second.Take(3 * kMiB).ok());
  CHECK(second_uses == 0);
  auto rest = second.Take(2 * kMiB);
  REQUIRE(rest.ok());
  CHECK(first.used_by_all() == 8 * kMiB);
  *most = HostBlock();
  CHECK(first_uses == 0);
  CHECK(second.Take(3 * kMiB).ok());
}

}  // namespace
}  // namespace detshare
