#include "coroutine_runtime/view_board.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>

#include "tests/coroutine_runtime/engine_peers.h"

namespace detshare {
namespace {

using policy::CoroutineView;
using policy::Grant;
using policy::kForever;
using policy::OtherEngineView;
using policy::Tenant;

// Two processes that share device 3.
struct Boards {
  std::unique_ptr<EnginePage> pages[2] = {std::make_unique<EnginePage>(),
                                          std::make_unique<EnginePage>()};
  EnginePeers peers[2];
  ViewBoard one{pages[0]->views[3], peers[0], 3};
  ViewBoard other{pages[1]->views[3], peers[1], 3};

  Boards() {
    AddPeer(peers[0], 2, *pages[1]);
    AddPeer(peers[1], 1, *pages[0]);
  }
};

TEST_CASE_METHOD(Boards, "A process sees the coroutines and grants of another one as they are") {
  Tenant tenant;
  tenant.name = "chat";
  tenant.tenant_class = policy::TenantClass::kLatency;
  tenant.weight = 2.5;
  tenant.sm_percent = 1;
  tenant.min_sms = 2;
  tenant.max_sms = 3;
  tenant.slo_latency = 4;
  tenant.slo_ttft = 5;
  tenant.slo_tpot = 6;
  tenant.exclusive = true;
  CoroutineView view;
  view.id = 77;
  view.tenant = &tenant;
  view.opened_at = 11;
  view.has_work = true;
  view.changed_at = 12;
  view.in_flight = 13;
  view.in_flight_since = 14;
  view.throttled_since = 15;
  view.preempts = true;
  view.device_time = 16;
  view.longest_operation = 17;
  view.typical_operation = 18;
  view.typical_burst = 19;
  view.typical_gap = 20;
  view.memory_bound = 0.25;
  view.tokens = {.tokens = 21,
                 .last_at = 22,
                 .recent_tpot = 23,
                 .decode_work = 24,
                 .step_work = 25,
                 .prefill = true,
                 .prefill_since = 26};
  Grant grant;
  grant.rank = 3;
  grant.urgent = true;
  one.Publish({&view, 1}, {&grant, 1});
  CHECK(one.Others().empty());
  REQUIRE(other.Others().size() == 1);
  const OtherEngineView seen = other.Others()[0];
  CHECK(seen.rank == 3);
  CHECK(seen.urgent);
  const CoroutineView& there = seen.coroutine;
  CHECK(there.id == 77);
  CHECK(there.team == 0);
  CHECK(there.opened_at == 11);
  CHECK(there.has_work);
  CHECK(there.changed_at == 12);
  CHECK(there.in_flight == 13);
  CHECK(there.in_flight_since == 14);
  CHECK(there.throttled_since == 15);
  CHECK(there.preempts);
  CHECK_FALSE(there.always_preempts);
  CHECK(there.device_time == 16);
  CHECK(there.longest_operation == 17);
  CHECK(there.typical_operation == 18);
  CHECK(there.typical_burst == 19);
  CHECK(there.typical_gap == 20);
  CHECK(there.memory_bound == 0.25);
  CHECK(there.tokens.tokens == 21);
  CHECK(there.tokens.last_at == 22);
  CHECK(there.tokens.recent_tpot == 23);
  CHECK(there.tokens.decode_work == 24);
  CHECK(there.tokens.step_work == 25);
  CHECK(there.tokens.prefill);
  CHECK(there.tokens.prefill_since == 26);
  REQUIRE(there.tenant != nullptr);
  CHECK(there.tenant->name.empty());
  CHECK(there.tenant->tenant_class == policy::TenantClass::kLatency);
  CHECK(there.tenant->weight == 2.5);
  CHECK(there.tenant->sm_percent == 1);
  CHECK(there.tenant->min_sms == 2);
  CHECK(there.tenant->max_sms == 3);
  CHECK(there.tenant->slo_latency == 4);
  CHECK(there.tenant->slo_ttft == 5);
  CHECK(there.tenant->slo_tpot == 6);
  CHECK(there.tenant->exclusive);
  one.Publish({}, {});
  CHECK(other.Others().empty());
}

TEST_CASE_METHOD(Boards, "Of many coroutines a process shows those of low ranks with work") {
  constexpr size_t kCount = 3 * ViewWords::kMaxCoroutines;
  Tenant tenant;
  std::vector<CoroutineView> views(kCount);
  std::vector<Grant> grants(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    views[i].id = i + 1;
    views[i].tenant = &tenant;
    views[i].has_work = i % 2 == 0;
    grants[i].rank = i < kCount / 2 ? 5 : 1;
  }
  one.Publish(views, grants);
  const auto seen = other.Others();
  REQUIRE(seen.size() == ViewWords::kMaxCoroutines);
  for (const OtherEngineView& view : seen) {
    CHECK(view.coroutine.has_work);
    CHECK(view.coroutine.tenant == &(*seen[0].coroutine.tenant) + (&view - seen.data()));
  }
  CHECK(std::count_if(seen.begin(), seen.end(), [](const auto& view) { return view.rank == 1; }) ==
        kCount / 4);
}

TEST_CASE_METHOD(Boards, "Whatever another process writes, its coroutines have possible values") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 100; ++round) {
    for (ViewWords::Coroutine& words : pages[0]->views[3].coroutines) {
      const auto word = [&] { return round == 0 ? ~uint64_t{0} : random() >> random() % 64; };
      words.id = word();
      words.flags = static_cast<uint32_t>(word());
      words.rank = static_cast<uint32_t>(word());
      for (auto& figure : words.figures) figure = static_cast<int64_t>(word());
    }
    for (const OtherEngineView& view : other.Others()) {
      CHECK((view.rank >= 0 && view.rank < policy::kRanks));
      const CoroutineView& there = view.coroutine;
      const policy::TokenView& tokens = there.tokens;
      const Tenant& tenant = *there.tenant;
      for (const policy::Nanoseconds time :
           {there.opened_at, there.changed_at, there.in_flight, there.in_flight_since,
            there.throttled_since, there.device_time, there.longest_operation,
            there.typical_operation, there.typical_burst, there.typical_gap, tokens.last_at,
            tokens.recent_tpot, tokens.decode_work, tokens.step_work, tokens.prefill_since,
            tenant.slo_latency, tenant.slo_ttft, tenant.slo_tpot})
        CHECK((time >= 0 && time <= kForever / 2));
      CHECK((there.memory_bound == -1 || (there.memory_bound >= 0 && there.memory_bound <= 1)));
      CHECK((there.tenant->weight > 0 && there.tenant->weight <= 1e6));
      CHECK((there.tenant->sm_percent >= 0 && there.tenant->max_sms >= 0));
      CHECK(there.tenant->tenant_class <= policy::TenantClass::kBatch);
    }
  }
}

}  // namespace
}  // namespace detshare
