#include "coroutine_runtime/work_account.h"

#include <utility>

#include "coroutine_runtime/device_attributes.h"

namespace detshare {
namespace {

// Returns bytes per nanosecond by TransferKind. The peak rate of the card's memory follows from its
// clock and width; three quarters of it are assumed to be reached. A copy within the card reads and
// writes. No attribute tells the rates of the bus and of the link between cards, so they are those
// of PCI Express 5 and of four links of NVLink.
std::array<double, 5> TransferRates(const DeviceProperties& properties) {
  constexpr int kMemoryClockKhz = 36, kBusWidthBits = 37;  // CUdevice_attribute
  constexpr double kReached = 0.75, kUnknown = 1'000, kBus = 50, kLink = 200;
  const auto attribute = [&](int number) {
    return static_cast<double>(AttributeOf(properties, number));
  };
  // The memory transfers twice per clock.
  double memory = attribute(kMemoryClockKhz) * 2e3 * attribute(kBusWidthBits) / 8 / 1e9 * kReached;
  if (memory <= 0) memory = kUnknown;
  return {kBus, kBus, memory / 2, kLink, memory};
}

// How often the device is asked whether it has work that the account does not know.
constexpr Nanoseconds kUnknownPeriod = policy::kMillisecond;

// The duration of a transfer of no bytes.
constexpr Nanoseconds kTransferStart = 1'500;

}  // namespace

WorkAccount::WorkAccount(Device& device, const AddressSpace& space, const Binding& binding,
                         StreamOrder& order, const Parking& parking, OperationTimer& timer)
    : space_(space),
      binding_(binding),
      order_(order),
      parking_(parking),
      timer_(timer),
      transfer_rates_(TransferRates(device.properties())) {}

void WorkAccount::Reserve(size_t streams) {
  for (std::vector<LogicalStream*>* all : {&unfenced_, &parked_}) {
    if (all->capacity() < streams) all->reserve(2 * streams + 16);
  }
}

void WorkAccount::Add(LogicalStream& stream, Nanoseconds estimate) {
  if (observed_) {
    // A client that continues has the result for which it waited.
    observed_ = false;
    TakeRead();
  }
  if (order_.IsParked(stream)) [[unlikely]] {
    if (stream.work.parked == 0) parked_.push_back(&stream);
    stream.work.parked += estimate;
    entity().Started(estimate, /*counts=*/false);
    added_to_ = nullptr;
    return;
  }
  AddUnfenced(stream, estimate);
  added_to_ = &stream;
  added_ = estimate;
  entity().Started(estimate, /*counts=*/true);
}

void WorkAccount::AddTransfer(LogicalStream& stream, TransferKind kind, uint64_t bytes,
                              bool result) {
  // Transfers are not measured, because their size determines their duration well enough.
  const double rate = transfer_rates_[static_cast<size_t>(kind)];
  Add(stream, kTransferStart + static_cast<Nanoseconds>(static_cast<double>(bytes) / rate));
  stream.work.reads |= result;
}

void WorkAccount::AddUnfenced(LogicalStream& stream, Nanoseconds estimate) {
  if (stream.work.unfenced_operations++ == 0) unfenced_.push_back(&stream);
  stream.work.unfenced += estimate;
}

void WorkAccount::FenceIfDue(LogicalStream& stream) {
  if (stream.work.unfenced < entity().fence_every()) return;
  PutFence(stream);
  std::erase(unfenced_, &stream);
}

void WorkAccount::PutFence(LogicalStream& stream) {
  const absl::StatusOr<FencePoint> point = order_.OwnPointOf(stream);
  // Without a point the device is lost, and no work is in flight any more.
  const FencePoint behind = point.ok() ? *point : FencePoint{};
  timer_.Cover(stream, behind);
  in_flight_.Add(behind, stream.work.unfenced);
  if (std::exchange(stream.work.reads, false)) {
    read_ = behind;
    read_awaited_ = observed_;
  }
  stream.work.unfenced = 0;
  stream.work.unfenced_operations = 0;
}

void WorkAccount::FenceAll() {
  for (LogicalStream* const stream : unfenced_) PutFence(*stream);
  unfenced_.clear();
}

void WorkAccount::Suspend() {
  if (submits_ && !withdrawn_ && added_to_ != nullptr && entity().followed()) {
    withdrawn_ = true;
    added_to_->work.unfenced -= added_;
    if (--added_to_->work.unfenced_operations == 0) std::erase(unfenced_, added_to_);
    entity().Completed(added_);
  }
  uncounted_ |= submits_ && !withdrawn_;
  timer_.NoteWait();
  Watch(/*pause=*/true);
}

bool WorkAccount::Resume() {
  if (!withdrawn_) return true;
  entity().Update();
  if (entity().followed()) {
    if (!entity().MayRun() && !entity().Throttle()) return false;
    AddUnfenced(*added_to_, added_);
    entity().Restarted(added_);
  } else {
    added_to_ = nullptr;
    uncounted_ = true;
  }
  withdrawn_ = false;
  return true;
}

void WorkAccount::BeforeWait(LogicalStream& stream) {
  if (binding_.entity() == nullptr || stream.work.unfenced_operations == 0) return;
  // A fence behind the wait would show the completion of this work too late.
  PutFence(stream);
  std::erase(unfenced_, &stream);
}

void WorkAccount::NoteWait(LogicalStream& stream) {
  // Work behind the wait may be followed later.
  if (binding_.entity() == nullptr) return;
  const absl::StatusOr<FencePoint> point = order_.OwnPointOf(stream);
  if (!point.ok()) return;
  stream.work.awaited = *point;
  timer_.Cover(stream, *point);
}

void WorkAccount::NoteWait(LogicalStream& stream, const FencePoint& awaited) {
  // A fence behind both waits shows when the later one has ended.
  if (stream.IsParked()) return NoteWait(stream);
  if (binding_.entity() != nullptr) stream.work.awaited = awaited;
}

void WorkAccount::End(LogicalStream& stream) {
  if (added_to_ == &stream) added_to_ = nullptr;
  FenceAll();
  // No fence follows the parked operations, so their times are given up.
  timer_.Cover(stream, FencePoint{});
  if (stream.work.parked == 0) return;
  std::erase(parked_, &stream);
  entity().Resumed(stream.work.parked);
  entity().Completed(std::exchange(stream.work.parked, 0));
}

void WorkAccount::ResumeParked() {
  for (size_t i = 0; i < parked_.size();) {
    LogicalStream& stream = *parked_[i];
    if (stream.IsParked()) {
      ++i;
      continue;
    }
    entity().Resumed(stream.work.parked);
    AddUnfenced(stream, std::exchange(stream.work.parked, 0));
    parked_[i] = parked_.back();
    parked_.pop_back();
  }
}

void WorkAccount::LookForUnknown() {
  const bool shares = entity().assignment().shares_device;
  const uint64_t passed_on = parking_.passed_on();
  const bool begins = !std::exchange(looked_, true);
  if (begins || (shares && !shares_) || passed_on != passed_on_) {
    passed_on_ = passed_on;
    may_have_unknown_ = true;
    look_at_ = 0;
  }
  shares_ = shares;
  if (!may_have_unknown_ && (!shares || parked_.empty())) [[likely]] {
    if (!shares) entity().NoteUnknown(false);
    return;
  }
  const Nanoseconds now = entity().Now();
  if (now < look_at_) return;
  look_at_ = now + kUnknownPeriod;
  may_have_unknown_ = space_.Busy();
  // Work of the urgent group takes no turns. Other work that is in flight has its turn.
  const bool unknown = binding_.InUrgentGroup() ? !binding_.OnlyUrgentWork() : !HasKnownWork();
  entity().NoteUnknown(shares && may_have_unknown_ && unknown);
}

bool WorkAccount::MayHaveOrdinaryWork() {
  if (!binding_.InUrgentGroup()) return HasKnownWork() || may_have_unknown_;
  if (!binding_.MayHaveOrdinaryWork()) return false;
  if (const Nanoseconds now = entity().Now(); now >= ask_at_) {
    ask_at_ = now + kUnknownPeriod;
    left_ = !binding_.OnlyUrgentWork();
  }
  return left_;
}

void WorkAccount::NoteUrgentWork() {
  if (binding_.InUrgentGroup()) {
    entity().NoteUrgent(HasKnownWork() || may_have_unknown_);
    return;
  }
  if (!binding_.MayHaveLeftUrgentWork()) [[likely]]
    return entity().NoteUrgent(false);
  const Nanoseconds now = entity().Now();
  if (now < ask_at_) return;
  ask_at_ = now + kUnknownPeriod;
  entity().NoteUrgent(binding_.LeftUrgentWork());
}

void WorkAccount::TakeProgress() {
  if (const Nanoseconds complete = in_flight_.TakeComplete(); complete != 0) {
    entity().Completed(complete);
  }
  TakeRead();
  timer_.Take();
}

void WorkAccount::TakeRead() {
  if (read_.fence == nullptr || !read_awaited_ || !read_.reached()) return;
  read_ = {};
  entity().ResultRead();
}

bool WorkAccount::MakeRoom() {
  ResumeParked();
  FenceAll();
  TakeProgress();
  return entity().MayRun();
}

void WorkAccount::Watch(bool pause) {
  entity().Update();
  if (entity().followed() && space_.fault().ok()) {
    // What is just being passed on does not count while it waits.
    if (!parking_.passes_on()) ResumeParked();
    if (pause || observed_) FenceAll();
    read_awaited_ |= observed_;
    TakeProgress();
    if (!HasKnownWork()) entity().Idle();
    LookForUnknown();
    NoteUrgentWork();
    entity().Proceed(MayHaveOrdinaryWork());
  } else if (looked_ || watching() || !unfenced_.empty() || !parked_.empty()) {
    Forget();
  }
  entity().NotifyScheduler();
}

void WorkAccount::Forget() {
  for (LogicalStream* const stream : unfenced_) {
    stream->work.unfenced = 0;
    stream->work.unfenced_operations = 0;
  }
  for (LogicalStream* const stream : parked_) stream->work.parked = 0;
  unfenced_.clear();
  parked_.clear();
  timer_.Forget();
  in_flight_.Clear();
  looked_ = shares_ = may_have_unknown_ = left_ = false;
  ask_at_ = 0;
  read_ = {};
  entity().Forget();
}

}  // namespace detshare
