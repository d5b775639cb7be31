#include "coroutine_runtime/view_board.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <tuple>

#include "policy/tenants.h"

namespace detshare {
namespace {

using policy::CoroutineView;
using policy::Nanoseconds;
using policy::OtherEngineView;
using policy::Tenant;
using policy::TokenView;

// ViewWords::Coroutine::flags. The lowest two bits are the tenant's class.
constexpr uint32_t kClass = 3, kHasWork = 4, kPreempts = 8, kAlwaysPreempts = 16, kUrgent = 32,
                   kPrefill = 64, kExclusive = 128;
constexpr double kThousand = 1000;

// The figures, in their order in the words.
constexpr Nanoseconds CoroutineView::*kTimes[] = {
    &CoroutineView::opened_at,         &CoroutineView::changed_at,
    &CoroutineView::in_flight,         &CoroutineView::in_flight_since,
    &CoroutineView::throttled_since,   &CoroutineView::device_time,
    &CoroutineView::longest_operation, &CoroutineView::typical_operation,
    &CoroutineView::typical_burst,     &CoroutineView::typical_gap};
constexpr Nanoseconds TokenView::*kTokenTimes[] = {&TokenView::last_at, &TokenView::recent_tpot,
                                                   &TokenView::decode_work, &TokenView::step_work,
                                                   &TokenView::prefill_since};
constexpr Nanoseconds Tenant::*kObjectives[] = {&Tenant::slo_latency, &Tenant::slo_ttft,
                                                &Tenant::slo_tpot};
constexpr int Tenant::*kSms[] = {&Tenant::sm_percent, &Tenant::min_sms, &Tenant::max_sms};
// The tokens, and in thousandths the weight and the share that is bound by memory.
constexpr size_t kOthers = 3;
static_assert(std::size(kTimes) + std::size(kTokenTimes) + std::size(kObjectives) +
                  std::size(kSms) + kOthers ==
              ViewWords::kFigures);

constexpr int kMaxSms = 1 << 20;

// The words of a coroutine, one after the other.
class Writer {
 public:
  explicit Writer(ViewWords::Coroutine& words) : at_(words.figures.data()) {}
  void Put(int64_t value) { (at_++)->store(value, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t>* at_;
};
class Reader {
 public:
  explicit Reader(const ViewWords::Coroutine& words) : at_(words.figures.data()) {}
  int64_t Take(int64_t min, int64_t max) {
    return std::clamp((at_++)->load(std::memory_order_relaxed), min, max);
  }

 private:
  const std::atomic<int64_t>* at_;
};

int64_t Thousandths(double value) {
  return std::llround(std::min(value, policy::kMaxWeight) * kThousand);
}

void Write(const CoroutineView& from, const policy::Grant& grant, ViewWords::Coroutine& words) {
  const Tenant& tenant = *from.tenant;
  Writer to(words);
  for (const auto time : kTimes) to.Put(from.*time);
  for (const auto time : kTokenTimes) to.Put(from.tokens.*time);
  for (const auto objective : kObjectives) to.Put(tenant.*objective);
  for (const auto sms : kSms) to.Put(tenant.*sms);
  to.Put(static_cast<int64_t>(from.tokens.tokens));
  to.Put(Thousandths(tenant.weight));
  to.Put(Thousandths(from.memory_bound));
  uint32_t flags = static_cast<uint32_t>(tenant.tenant_class);
  if (from.has_work) flags |= kHasWork;
  if (from.preempts) flags |= kPreempts;
  if (from.always_preempts) flags |= kAlwaysPreempts;
  if (grant.urgent) flags |= kUrgent;
  if (from.tokens.prefill) flags |= kPrefill;
  if (tenant.exclusive) flags |= kExclusive;
  words.flags.store(flags, std::memory_order_relaxed);
  words.rank.store(static_cast<uint32_t>(grant.rank), std::memory_order_relaxed);
}

// `tenant` becomes that of the coroutine.
OtherEngineView Read(const ViewWords::Coroutine& words, Tenant* tenant) {
  OtherEngineView to;
  CoroutineView& coroutine = to.coroutine;
  // The policy may add to such times without an overflow.
  constexpr Nanoseconds kLatest = policy::kForever / 2;
  Reader from(words);
  for (const auto time : kTimes) coroutine.*time = from.Take(0, kLatest);
  for (const auto time : kTokenTimes) coroutine.tokens.*time = from.Take(0, kLatest);
  for (const auto objective : kObjectives) tenant->*objective = from.Take(0, kLatest);
  for (const auto sms : kSms) tenant->*sms = static_cast<int>(from.Take(0, kMaxSms));
  coroutine.tokens.tokens = static_cast<uint64_t>(from.Take(0, kLatest));
  tenant->weight = static_cast<double>(from.Take(1, Thousandths(policy::kMaxWeight))) / kThousand;
  const int64_t memory_bound = from.Take(-1, Thousandths(1));
  coroutine.memory_bound = memory_bound < 0 ? -1 : static_cast<double>(memory_bound) / kThousand;
  const uint32_t flags = words.flags.load(std::memory_order_relaxed);
  const uint32_t tenant_class = flags & kClass;
  if (tenant_class <= static_cast<uint32_t>(policy::TenantClass::kBatch))
    tenant->tenant_class = static_cast<policy::TenantClass>(tenant_class);
  tenant->exclusive = (flags & kExclusive) != 0;
  coroutine.has_work = (flags & kHasWork) != 0;
  coroutine.preempts = (flags & kPreempts) != 0;
  coroutine.always_preempts = (flags & kAlwaysPreempts) != 0;
  coroutine.tokens.prefill = (flags & kPrefill) != 0;
  to.urgent = (flags & kUrgent) != 0;
  to.rank = static_cast<int>(
      std::min<uint32_t>(words.rank.load(std::memory_order_relaxed), policy::kRanks - 1));
  return to;
}

}  // namespace

void ViewBoard::Publish(absl::Span<const CoroutineView> coroutines,
                        absl::Span<const policy::Grant> grants) {
  std::vector<size_t> order(coroutines.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (order.size() > ViewWords::kMaxCoroutines) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::tuple(!coroutines[a].has_work, grants[a].rank) <
             std::tuple(!coroutines[b].has_work, grants[b].rank);
    });
  }
  for (size_t i = 0; i < own_.coroutines.size(); ++i) {
    ViewWords::Coroutine& words = own_.coroutines[i];
    if (i < order.size()) Write(coroutines[order[i]], grants[order[i]], words);
    words.id.store(i < order.size() ? coroutines[order[i]].id : 0, std::memory_order_relaxed);
  }
}

absl::Span<const OtherEngineView> ViewBoard::Others() {
  others_.clear();
  tenants_.clear();
  peers_.ForEach([&](uint64_t, const EnginePage& page) {
    for (const ViewWords::Coroutine& words : page.views[device_].coroutines) {
      const uint64_t id = words.id.load(std::memory_order_relaxed);
      if (id == 0) continue;
      others_.push_back(Read(words, &tenants_.emplace_back()));
      others_.back().coroutine.id = id;
    }
  });
  for (size_t i = 0; i < others_.size(); ++i) others_[i].coroutine.tenant = &tenants_[i];
  return others_;
}

}  // namespace detshare
