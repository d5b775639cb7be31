#include "server/tenants/tenant_board.h"

#include <catch2/catch.hpp>
#include <memory>

#include "server/tenants/tenant_accounts.h"
#include "tests/coroutine_runtime/engine_peers.h"

namespace detshare {
namespace {

constexpr pid_t kFirst = 101, kSecond = 102;

// Two processes that see each other.
struct Engine {
  explicit Engine(EnginePage& other, pid_t other_pid) {
    AddPeer(peers, static_cast<uint64_t>(other_pid), other);
  }
  void SetLimit(uint64_t memory, uint64_t pinned) {
    TenantQuota quota;
    quota.memory = memory;
    quota.pinned_memory = pinned;
    accounts.Set("team", quota);
  }
  EnginePage page;
  EnginePeers peers;
  TenantBoard board{&page, &peers};
  TenantAccounts accounts{2, &board};
};

struct TwoEngines {
  std::unique_ptr<Engine> first, second;
  TwoEngines() {
    // Each needs the other's page.
    first = std::make_unique<Engine>(placeholder, kSecond);
    second = std::make_unique<Engine>(first->page, kFirst);
    first->peers.peers[0].page = &second->page;
    for (Engine* engine : {first.get(), second.get()}) engine->SetLimit(100, 50);
  }
  void Share(const std::string& tenant) {
    first->board.Share(kSecond, tenant);
    second->board.Share(kFirst, tenant);
  }
  EnginePage placeholder;
};

TEST_CASE_METHOD(TwoEngines, "The limits of a tenant hold for all processes that serve it") {
  Share("team");
  const auto one = first->accounts.Of("team"), other = second->accounts.Of("team");
  auto most = Quota::TryTake(TenantAccount::Memory(one, 1), 70);
  REQUIRE(most.has_value());
  CHECK_FALSE(Quota::TryTake(TenantAccount::Memory(other, 1), 31).has_value());
  const absl::Status refusal = Quota::Take(TenantAccount::Memory(other, 1), 31).status();
  CHECK_THAT(std::string(refusal.message()), Catch::Contains("use 0.00 MiB"));
  CHECK(Quota::TryTake(TenantAccount::Memory(other, 1), 30).has_value());
  // Another device, and pinned memory, have limits of their own.
  CHECK(Quota::TryTake(TenantAccount::Memory(other, 0), 100).has_value());
  auto pinned = Quota::TryTake(TenantAccount::Pinned(one), 50);
  CHECK_FALSE(Quota::TryTake(TenantAccount::Pinned(other), 1).has_value());
  CHECK(TenantAccount::Pinned(other)->used_by_all() == 50);
  // What is given back is for all.
  most.reset();
  pinned.reset();
  CHECK(Quota::TryTake(TenantAccount::Memory(other, 1), 100).has_value());
  CHECK(Quota::TryTake(TenantAccount::Pinned(other), 50).has_value());
}

TEST_CASE_METHOD(TwoEngines, "A process counts for a tenant only if it serves it") {
  Share("somebody else");
  const auto one = first->accounts.Of("team"), other = second->accounts.Of("team");
  const auto all = Quota::TryTake(TenantAccount::Memory(one, 0), 100);
  CHECK(Quota::TryTake(TenantAccount::Memory(other, 0), 100).has_value());
}

TEST_CASE_METHOD(TwoEngines, "A process that is gone holds nothing") {
  Share("team");
  const auto other = second->accounts.Of("team");
  const auto one = first->accounts.Of("team");
  const auto all = Quota::TryTake(TenantAccount::Memory(one, 0), 100);
  CHECK_FALSE(Quota::TryTake(TenantAccount::Memory(other, 0), 1).has_value());
  second->peers.peers[0].id = 0;
  CHECK(Quota::TryTake(TenantAccount::Memory(other, 0), 100).has_value());
}

TEST_CASE_METHOD(TwoEngines, "What a process publishes may be anything") {
  Share("team");
  const auto one = first->accounts.Of("team"), other = second->accounts.Of("team");
  for (TenantWords& words : first->page.tenants) {
    words.tenant = first->page.tenants[0].tenant.load();
    words.memory[0] = UINT64_MAX;
  }
  CHECK_FALSE(Quota::TryTake(TenantAccount::Memory(other, 0), 1).has_value());
  CHECK(Quota::TryTake(TenantAccount::Memory(other, 1), 100).has_value());
}

TEST_CASE_METHOD(TwoEngines,
                 "Places in the page are free again, and more tenants have limits alone") {
  Engine& engine = *first;
  std::vector<std::shared_ptr<TenantAccount>> accounts;
  for (size_t round = 0; round < 2; ++round) {
    for (size_t i = 0; i < EnginePage::kMaxTenants + 3; ++i)
      accounts.push_back(engine.accounts.Of(std::to_string(i)));
    CHECK(engine.board.Claim("one more") == nullptr);
    const auto more = engine.accounts.Of("one more");
    CHECK(Quota::TryTake(TenantAccount::Memory(more, 0), 1000).has_value());
    accounts.clear();
  }
  TenantWords* const words = engine.board.Claim("one more");
  REQUIRE(words != nullptr);
  TenantBoard::Release(words);
}

TEST_CASE("A process alone has its limits alone") {
  TenantBoard board(nullptr, nullptr);
  CHECK(board.Claim("team") == nullptr);
  TenantAccounts accounts(1, &board);
  accounts.Set("team", [] {
    TenantQuota quota;
    quota.memory = 10;
    return quota;
  }());
  const auto account = accounts.Of("team");
  const auto all = Quota::TryTake(TenantAccount::Memory(account, 0), 10);
  CHECK(all.has_value());
  CHECK_FALSE(Quota::TryTake(TenantAccount::Memory(account, 0), 1).has_value());
}

}  // namespace
}  // namespace detshare
