#include "coroutine_runtime/durations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

namespace detshare {
namespace {

// The guess for an unknown operation: the mean duration of a training step's kernels.
constexpr Nanoseconds kUnknownOperation = 30 * policy::kMicrosecond;
constexpr float kLongest = 3.6e12F;  // an hour; no operation takes longer
constexpr int kEnoughSamples = 4;
// At so many operations, the hand of the table evicts also one that was used, so that it holds the lock
// for a short time.
constexpr int kLooks = 64;
// If the expected slowdown between two sizes is smaller, the measured one says nothing.
constexpr double kMinRatio = 1.5;

uint64_t Mix(uint64_t value) {
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93ULL;
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93ULL;
  return value ^ value >> 32;
}
uint64_t Join(uint64_t hash, uint64_t value) { return Mix(hash + 0x9E3779B97F4A7C15ULL + value); }

// The SMs of a typical partition of the class.
int SmsOf(int size_class, int whole) { return std::max(1, whole >> size_class); }

// The factor by which work of `blocks` equal blocks takes longer on `sms` SMs than on all, if it
// waits for SMs only.
double Slowdown(uint32_t blocks, int sms, int whole) {
  const double used = std::min<double>(blocks, whole);
  return std::max(1.0, used / sms);
}

}  // namespace

uint64_t StableHash(absl::Span<const std::byte> bytes, uint64_t seed) {
  uint64_t hash = Join(seed, bytes.size());
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t part = std::min<size_t>(8, bytes.size());
    for (size_t i = 0; i < part; ++i) word |= std::to_integer<uint64_t>(bytes[i]) << 8 * i;
    hash = Join(hash, word);
    bytes.remove_prefix(part);
  }
  return hash;
}

uint64_t KernelCode(absl::Span<const std::byte> image, std::string_view kernel) {
  return StableHash(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(kernel.data()), kernel.size()),
      StableHash(image));
}

uint64_t ShapeOf(const LaunchShape& shape) {
  const auto pair = [](uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; };
  uint64_t hash = Join(pair(shape.grid.x, shape.grid.y), pair(shape.grid.z, shape.block.x));
  hash = Join(hash, pair(shape.block.y, shape.block.z));
  hash = Join(hash, pair(shape.dynamic_shared_bytes, shape.cluster.x));
  return Join(hash, pair(shape.cluster.y, shape.cluster.z));
}

uint64_t ContentOf(absl::Span<const std::byte> parameters, uint64_t base, uint64_t bytes) {
  constexpr size_t kLooked = 1024;  // bytes: enough for three descriptors of matrices
  uint64_t hash = parameters.size();
  parameters = parameters.first(std::min(parameters.size(), kLooked));
  while (!parameters.empty()) {
    uint64_t word = 0;
    const size_t part = std::min<size_t>(8, parameters.size());
    std::memcpy(&word, parameters.data(), part);
    if (word - base >= bytes) hash = Join(hash, word);
    parameters.remove_prefix(part);
  }
  return hash | 1;
}

OperationKey TransferKey(TransferKind kind, uint64_t bytes) {
  // The code of a kernel is a 64-bit hash, so it hardly ever equals one of these numbers.
  return {1 + static_cast<uint64_t>(kind), static_cast<uint64_t>(std::bit_width(bytes))};
}

int SizeClassOf(int sm_count, int whole) {
  if (sm_count <= 0 || sm_count * 8 >= whole * 7) return 0;
  int size_class = 1;
  while (size_class + 1 < kSizeClasses && sm_count <= SmsOf(size_class + 1, whole)) ++size_class;
  return size_class;
}

// ---- one operation

OperationDurations::OperationDurations(DurationTable& table, const OperationKey& key,
                                       const OperationTraits& traits)
    : table_(table), key_(key), traits_(traits) {
  const Nanoseconds guess = traits.guess > 0 ? traits.guess : kUnknownOperation;
  for (int i = 0; i < kSizeClasses; ++i) {
    const double slowdown = Slowdown(traits.blocks, SmsOf(i, table.sm_count()), table.sm_count());
    estimates_[i].store(static_cast<Nanoseconds>(static_cast<double>(guess) * slowdown),
                        std::memory_order_relaxed);
  }
}

float OperationDurations::Samples::Low() const {
  std::array<float, kKept> sorted = times;
  std::sort(sorted.begin(), sorted.begin() + count);
  return sorted[count / 4];
}

void OperationDurations::Learn(int size_class, float time, bool contended) {
  Samples& samples = samples_[size_class];
  if (contended && samples.count > 0 && !samples.bounds && time >= samples.Low()) return;
  if (!contended && samples.bounds) samples = {};
  if (samples.count == 0) samples.bounds = contended;
  samples.times[samples.next] = time;
  samples.next = static_cast<uint8_t>((samples.next + 1) % kKept);
  samples.count = static_cast<uint8_t>(std::min(samples.count + 1, kKept));
}

void OperationDurations::Publish() {
  const int whole = table_.sm_count();
  uint8_t wanted = 0;
  for (int i = 0; i < kSizeClasses; ++i) {
    if (samples_[i].bounds || samples_[i].count < kEnoughSamples) wanted |= 1 << i;
  }
  wanted_.store(wanted, std::memory_order_relaxed);

  // The two measured sizes that are farthest apart show how much of the expected slowdown occurs.
  int largest = -1, smallest = -1;
  for (int i = 0; i < kSizeClasses; ++i) {
    if (samples_[i].count == 0) continue;
    if (largest < 0) largest = i;
    smallest = i;
  }
  if (largest < 0) return;
  const auto slowdown = [&](int size_class) {
    return Slowdown(traits_.blocks, SmsOf(size_class, whole), whole);
  };
  double share = 1;  // measured slowdown = expected slowdown to the power of `share`
  const double expected = slowdown(smallest) / slowdown(largest);
  if (expected >= kMinRatio) {
    const double seen = samples_[smallest].Low() / samples_[largest].Low();
    share = std::clamp(std::log(std::max(seen, 1e-3)) / std::log(expected), 0.0, 1.0);
    // A grid that hardly fills the device may run as fast on fewer SMs for other reasons.
    const bool fills = traits_.blocks >= 2 * static_cast<uint32_t>(whole);
    const bool exact = !samples_[largest].bounds && !samples_[smallest].bounds;
    if (exact && (fills || share > 0.5)) {
      memory_bound_.store(static_cast<float>(1 - share), std::memory_order_relaxed);
    }
  }
  for (int i = 0; i < kSizeClasses; ++i) {
    double time = 0;
    if (samples_[i].count > 0) {
      time = samples_[i].Low();
    } else {
      // From the nearest size that was measured. If two are equally near, from the larger one.
      int from = largest;
      for (int j = 0; j < kSizeClasses; ++j) {
        if (samples_[j].count > 0 && std::abs(j - i) < std::abs(from - i)) from = j;
      }
      time = samples_[from].Low() * std::pow(slowdown(i) / slowdown(from), share);
    }
    estimates_[i].store(std::max<Nanoseconds>(1, static_cast<Nanoseconds>(time)),
                        std::memory_order_relaxed);
  }
  known_.store(true, std::memory_order_relaxed);
}

void OperationDurations::Add(int size_class, Nanoseconds time, bool contended) {
  if (time < 1 || static_cast<float>(time) > kLongest) return;
  const MutexLock lock(&table_.mutex_);
  Learn(size_class, static_cast<float>(time), contended);
  Publish();
  if (use_.load(std::memory_order_relaxed) != kEvicted) ++table_.changes_;
}

// ---- the table

DurationTable::DurationTable(int sm_count) : sm_count_(std::max(1, sm_count)) {}

DurationTable::~DurationTable() = default;

void DurationTable::Put(std::shared_ptr<OperationDurations> operation, size_t place) {
  places_[operation->key_] = place;
  operations_[place] = std::move(operation);
}

size_t DurationTable::TakePlace() {
  if (!full()) {
    operations_.emplace_back();
    return operations_.size() - 1;
  }
  size_t place = hand_;
  for (int looks = 1;; ++looks) {
    hand_ = (place + 1) % operations_.size();
    const uint8_t use =
        operations_[place]->use_.exchange(OperationDurations::kIdle, std::memory_order_relaxed);
    if (use != OperationDurations::kUsed || looks == kLooks) break;
    place = hand_;
  }
  Evict(place);
  return place;
}

void DurationTable::Evict(size_t place) {
  OperationDurations& operation = *operations_[place];
  operation.use_.store(OperationDurations::kEvicted, std::memory_order_relaxed);
  places_.erase(operation.key_);
  if (operation.known()) ++changes_;
}

std::shared_ptr<OperationDurations> DurationTable::FindOrAdd(const OperationKey& key,
                                                             const OperationTraits& traits) {
  const MutexLock lock(&mutex_);
  if (const auto found = places_.find(key); found != places_.end()) {
    const std::shared_ptr<OperationDurations>& known = operations_[found->second];
    if (std::exchange(known->age_, 0) != 0) ++changes_;
    known->Use();
    return known;
  }
  std::shared_ptr<OperationDurations> made(new OperationDurations(*this, key, traits));
  Put(made, TakePlace());
  return made;
}

std::shared_ptr<OperationDurations> DurationTable::Return(
    std::shared_ptr<OperationDurations> evicted) {
  const MutexLock lock(&mutex_);
  // Another user may have returned it.
  if (const auto found = places_.find(evicted->key_); found != places_.end())
    return operations_[found->second];
  evicted->age_ = 0;
  evicted->use_.store(OperationDurations::kUsed, std::memory_order_relaxed);
  if (evicted->known()) ++changes_;
  Put(evicted, TakePlace());
  return evicted;
}

size_t DurationTable::size() const {
  const MutexLock lock(&mutex_);
  return operations_.size();
}

uint64_t DurationTable::changes() const {
  const MutexLock lock(&mutex_);
  return changes_;
}

std::vector<OperationDurations::Record> DurationTable::Records() const {
  const MutexLock lock(&mutex_);
  std::vector<OperationDurations::Record> records;
  for (const std::shared_ptr<OperationDurations>& operation : operations_) {
    OperationDurations::Record record;
    record.key = operation->key_;
    record.blocks = operation->traits_.blocks;
    record.age = operation->age_;
    bool any = false;
    for (int i = 0; i < kSizeClasses; ++i) {
      const OperationDurations::Samples& samples = operation->samples_[i];
      if (samples.count == 0) continue;
      any = true;
      record.times[i] = samples.bounds ? -samples.Low() : samples.Low();
    }
    if (any) records.push_back(record);
  }
  return records;
}

size_t DurationTable::Restore(absl::Span<const OperationDurations::Record> records) {
  const MutexLock lock(&mutex_);
  size_t taken = 0;
  for (const OperationDurations::Record& record : records) {
    bool sound = false, broken = false;
    for (const float time : record.times) {
      if (time != 0) sound = true;
      broken |= !(std::abs(time) <= kLongest) || (time != 0 && std::abs(time) < 1);
    }
    if (!sound || broken) continue;
    const uint32_t age = std::min(record.age, UINT32_MAX - 1) + 1;
    std::shared_ptr<OperationDurations> made;
    if (const auto found = places_.find(record.key); found != places_.end()) {
      made = operations_[found->second];
      if (made->age_ < age) continue;  // used more recently here
    } else {
      size_t place = hand_;
      if (full()) {
        hand_ = (hand_ + 1) % operations_.size();
        if (operations_[place]->age_ <= age) continue;
        Evict(place);
      } else {
        place = TakePlace();
      }
      made.reset(new OperationDurations(*this, record.key, {record.blocks, 0}));
      Put(made, place);
    }
    made->age_ = age;
    made->samples_ = {};
    for (int i = 0; i < kSizeClasses; ++i) {
      if (record.times[i] != 0) made->Learn(i, std::abs(record.times[i]), record.times[i] < 0);
    }
    made->Publish();
    ++taken;
  }
  return taken;
}

// ---- a worker's cache

DurationCache::DurationCache(DurationTable& table)
    : table_(table), slots_(std::make_unique<std::array<Slot, kSlots>>()) {}

bool DurationCache::Fill(Slot& slot, const OperationKey& key, const OperationTraits& traits) {
  if (slot.operation != nullptr && slot.key == key) [[likely]] {
    if (!slot.operation->Use()) [[unlikely]]
      slot.operation = table_.Return(std::move(slot.operation));
    return false;
  }
  slot = {};
  slot.key = key;
  slot.operation = table_.FindOrAdd(key, traits);
  slot.until_sample = kRarely;
  return true;
}

DurationCache::Lookup DurationCache::Look(const OperationKey& key, const OperationTraits& traits,
                                          int size_class) {
  // The words of a key are hashes already, except for transfers. Their keys are small and few.
  const size_t index = IndexOf(key);
  Slot* slot = &(*slots_)[index];
  Fill(*slot, key, traits);
  if (traits.content != 0 && slot->new_contents <= kNewContents + slot->old_contents / 4)
      [[likely]] {
    Slot& base = *slot;
    const OperationKey own = {key.code, Join(key.shape, traits.content)};
    const size_t place = IndexOf(own) != index ? IndexOf(own) : index ^ 1;
    slot = &(*slots_)[place];
    OperationTraits like_base = traits;
    if (base.operation->known()) like_base.guess = base.operation->Estimate(0);
    // An operation that the table knows is not new. Another worker measured it, or it lost its slot
    // in this cache.
    if (Fill(*slot, own, like_base) && !slot->operation->known()) [[unlikely]] {
      ++base.new_contents;
    } else {
      ++base.old_contents;
    }
  }
  Lookup lookup;
  lookup.operation = slot->operation.get();
  lookup.estimate = slot->operation->Estimate(size_class);
  lookup.known = slot->operation->known();
  if (slot->operation->Wanted(size_class) && slot->asked[size_class] < kEnoughSamples)
      [[unlikely]] {
    ++slot->asked[size_class];
    lookup.sample = true;
  } else if (--slot->until_sample == 0) [[unlikely]] {
    slot->until_sample = kRarely;
    slot->asked[size_class] = 0;
    lookup.sample = true;
  }
  return lookup;
}

}  // namespace detshare
