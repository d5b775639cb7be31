#include "policy/temporal/temporal.h"

#include <algorithm>

#include "policy/saturating.h"
#include "policy/status_macros.h"

namespace detshare::policy {
namespace {

constexpr Parameter kParameters[] = {
    {"slice", ParameterKind::kDuration, "2ms", "100us", "1s", "length of a turn"},
};

class Temporal final : public Policy {
 public:
  explicit Temporal(Nanoseconds slice) : slice_(slice) {}

  std::vector<SmRange> Partitions(const DeviceShape&, absl::Span<const Tenant>) const override {
    return {};
  }

  Decision Decide(const Snapshot& snapshot) override {
    Decision decision;
    decision.grants.resize(snapshot.coroutines.size());
    if (snapshot.coroutines.size() < 2) {
      holder_ = 0;
      return decision;
    }
    const CoroutineView* holder = Holder(snapshot);
    const int64_t active =
        std::count_if(snapshot.coroutines.begin(), snapshot.coroutines.end(),
                      [](const CoroutineView& coroutine) { return coroutine.has_work; });
    for (size_t i = 0; i < snapshot.coroutines.size(); ++i) {
      Grant& grant = decision.grants[i];
      // Work in flight runs on into the next turn, so it must be little.
      grant.idle.window = slice_ / 4;
      if (active > 1 && &snapshot.coroutines[i] != holder) grant.idle.window = 0;
      if (active > 1 && &snapshot.coroutines[i] == holder) {
        grant.budget = Minus(slice_, Minus(holder->device_time, device_time_));
      }
      // A coroutine is throttled during the turns of all others; its own turn must come first.
      grant.idle.max_throttle = std::max<Nanoseconds>(100 * kMillisecond, 2 * active * slice_);
      grant.contended = grant.idle;
    }
    if (active > 1) decision.ask_again_at = Plus(began_, slice_);
    return decision;
  }

 private:
  // The coroutine whose turn it is; null if no coroutine has work.
  const CoroutineView* Holder(const Snapshot& snapshot) {
    const CoroutineView* first = nullptr;
    const CoroutineView* next = nullptr;
    for (const CoroutineView& coroutine : snapshot.coroutines) {
      if (!coroutine.has_work) continue;
      if (first == nullptr || coroutine.id < first->id) first = &coroutine;
      if (coroutine.id == holder_ && Minus(snapshot.now, began_) < slice_ &&
          Minus(coroutine.device_time, device_time_) < slice_) {
        return &coroutine;
      }
      if (coroutine.id > holder_ && (next == nullptr || coroutine.id < next->id)) {
        next = &coroutine;
      }
    }
    const CoroutineView* holder = next != nullptr ? next : first;
    if (holder == nullptr) return nullptr;
    holder_ = holder->id;
    began_ = snapshot.now;
    device_time_ = holder->device_time;
    return holder;
  }

  const Nanoseconds slice_;
  CoroutineId holder_ = 0;  // the coroutine of the latest turn
  Nanoseconds began_ = 0;
  Nanoseconds device_time_ = 0;  // of the holder when the turn began
};

}  // namespace

absl::Span<const Parameter> TemporalParameters() { return kParameters; }

absl::StatusOr<std::unique_ptr<Policy>> CreateTemporal(const Options& options) {
  DETSHARE_ASSIGN_OR_RETURN(ParameterValues values,
                            ParameterValues::Read("temporal", kParameters, options));
  return std::make_unique<Temporal>(values.Duration("slice"));
}

}  // namespace detshare::policy
