// Durations of operations on the device. They are learned while operations run, and estimate later
// ones.
//
// A key identifies an operation: its code and its shape. The same key means the same work in every
// session and every run of the daemon. So all sessions share what is learned (DurationTable, one
// per device), and a file keeps it between runs (durations_profile.h).
//
//     worker:  DurationCache::Look(key)  -->  estimate, and whether to sample this occurrence
//     caller:  puts timed markers around it, later OperationDurations::Add(time)
//
// Times are learned separately for partitions of different sizes (SizeClass), and compared. An
// operation that has work for all SMs but is as fast on half of them waits for memory.
//
// The estimate is a low quantile of the latest samples, because neighbours only make an operation
// longer. Samples taken while neighbours ran are upper bounds, and are dropped once there is a
// better sample.
//
// A full table makes room as a clock does (the page replacement algorithm): a hand goes round, clears
// the marks of operations that were used since it came by last, and evicts the first one without a
// mark. So a tenant whose operations are new every time evicts mostly those.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "policy/policy.h"
#include "proto/mutex.h"

namespace detshare {

using policy::Nanoseconds;

struct OperationKey {
  uint64_t code = 0;   // the code that it executes
  uint64_t shape = 0;  // the shape of the execution
  friend bool operator==(const OperationKey&, const OperationKey&) = default;
};

// A hash that is the same on all machines and in all versions. `seed`: the hash of the preceding
// bytes.
uint64_t StableHash(absl::Span<const std::byte> bytes, uint64_t seed = 0);

// The `code` of a kernel. `image`: an identifier of the image's content.
uint64_t KernelCode(absl::Span<const std::byte> image, std::string_view kernel);
// The `shape` of a launch. Costs a few multiplications.
uint64_t ShapeOf(const LaunchShape& shape);
// A hash of a launch's parameters without addresses in [base, base + bytes): sizes and strides in
// the first part of the parameters. Never 0.
uint64_t ContentOf(absl::Span<const std::byte> parameters, uint64_t base, uint64_t bytes);

// Copies and fills of one kind share a key if their sizes lie between the same powers of two.
enum class TransferKind : uint8_t { kToDevice, kFromDevice, kInside, kBetweenDevices, kFill };
OperationKey TransferKey(TransferKind kind, uint64_t bytes);

// Size classes of partitions, by their share of the SMs: class 0 has 7/8 and more, 1 more than 1/4,
// 2 more than 1/8 and so on; the last class is the rest.
inline constexpr int kSizeClasses = 5;
int SizeClassOf(int sm_count, int whole);

// Facts about an operation that are known before it has run.
struct OperationTraits {
  uint32_t blocks = 0;    // of its grid; 0: it runs on no SMs
  Nanoseconds guess = 0;  // its duration; 0: unknown
  // Its input besides the shape (ContentOf); 0: none. For example, matrix products of a library
  // have one grid, that of the device, whatever their size. The content distinguishes operations of
  // one key, unless it turns out to be different every time.
  uint64_t content = 0;
};

class DurationTable;

// The durations learned for one operation. The table and those who use it share it. It ends before the
// table. Threading: any thread.
class OperationDurations : public std::enable_shared_from_this<OperationDurations> {
 public:
  // The duration without neighbours on a partition of this size. Above 0. Costs one load.
  Nanoseconds Estimate(int size_class) const {
    return estimates_[size_class].load(std::memory_order_relaxed);
  }
  // Whether the estimate rests on a sample of any size class.
  bool known() const { return known_.load(std::memory_order_relaxed); }
  // Whether samples of this size class are still wanted more than others.
  bool Wanted(int size_class) const {
    return (wanted_.load(std::memory_order_relaxed) >> size_class & 1) != 0;
  }
  // The share of its time in which it waits for memory and not for SMs: 0 to 1; below 0 if unknown.
  double memory_bound() const { return memory_bound_.load(std::memory_order_relaxed); }

  // `contended`: others had work in the hardware meanwhile. Times below 1 ns are ignored.
  void Add(int size_class, Nanoseconds time, bool contended);

  // The operation occurs. Returns false if the table has evicted it. Neither locks nor writes if it
  // was used a moment ago.
  bool Use() {
    if (use_.load(std::memory_order_relaxed) == kUsed) [[likely]]
      return true;
    uint8_t use = kIdle;
    return use_.compare_exchange_strong(use, kUsed, std::memory_order_relaxed) || use == kUsed;
  }

  // The data of an operation that is kept on disk.
  struct Record {
    OperationKey key;
    uint32_t blocks = 0;
    uint32_t age = 0;  // runs of the daemon since the last look-up
    // Nanoseconds; 0: no sample; below 0: an upper bound.
    std::array<float, kSizeClasses> times{};
  };

 private:
  friend class DurationTable;
  enum : uint8_t { kIdle, kUsed, kEvicted };
  static constexpr int kKept = 8;
  struct Samples {
    std::array<float, kKept> times{};
    uint8_t count = 0, next = 0;
    bool bounds = false;  // all samples are contended
    float Low() const;
  };

  OperationDurations(DurationTable& table, const OperationKey& key, const OperationTraits& traits);
  void Learn(int size_class, float time, bool contended);  // requires the table's mutex
  void Publish();                                          // requires the table's mutex

  // All relaxed: each is an independent figure and publishes nothing else.
  std::array<std::atomic<Nanoseconds>, kSizeClasses> estimates_;
  std::atomic<float> memory_bound_{-1};
  std::atomic<uint8_t> wanted_{(1 << kSizeClasses) - 1};
  std::atomic<bool> known_{false};
  std::atomic<uint8_t> use_{kIdle};  // the table's mutex guards the changes to and from kEvicted

  DurationTable& table_;
  const OperationKey key_;
  const OperationTraits traits_;
  uint32_t age_ = 0;  // the table's mutex guards this and samples_
  std::array<Samples, kSizeClasses> samples_{};
};

// All operations of one device. Threading: any thread.
class DurationTable {
 public:
  // Of more operations, the table forgets those that were not used for longest, nearly.
  static constexpr size_t kMaxOperations = 65'536;

  explicit DurationTable(int sm_count);
  ~DurationTable();
  DurationTable(const DurationTable&) = delete;
  DurationTable& operator=(const DurationTable&) = delete;

  int sm_count() const { return sm_count_; }
  // Never null. Locks, and allocates for a new key. `traits` are used for a new key only.
  std::shared_ptr<OperationDurations> FindOrAdd(const OperationKey& key,
                                                const OperationTraits& traits);
  // An operation that the table has evicted is used again. Returns it, or what the table has learned
  // about the same key since.
  std::shared_ptr<OperationDurations> Return(std::shared_ptr<OperationDurations> evicted);
  size_t size() const;
  // Grows with each change of Records(), and otherwise stays.
  uint64_t changes() const;

  // For the profile: returns every operation that has samples, in no order. An operation that was
  // looked up in this run has age 0; Restore() adds 1 to each age.
  std::vector<OperationDurations::Record> Records() const;
  // Takes what earlier runs, or other processes, learned about operations that were not looked up here
  // more recently. Skips invalid records, and those for which a full table would have to forget what was
  // used more recently. Returns the number of those taken.
  size_t Restore(absl::Span<const OperationDurations::Record> records);

 private:
  friend class OperationDurations;
  struct Hash {
    size_t operator()(const OperationKey& key) const { return key.code ^ key.shape; }
  };

  // Puts the operation, which is of none yet, into a place.
  void Put(std::shared_ptr<OperationDurations> operation, size_t place)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns a free place, for which it evicts an operation if there is none.
  size_t TakePlace() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Evict(size_t place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool full() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return operations_.size() >= kMaxOperations;
  }

  const int sm_count_;
  mutable Mutex mutex_;
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<OperationDurations>> operations_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<OperationKey, size_t, Hash> places_ ABSL_GUARDED_BY(mutex_);
  size_t hand_ ABSL_GUARDED_BY(mutex_) = 0;  // the next place that may be evicted
};

// One worker's cache of its table. It neither locks nor allocates for recently seen operations.
// Threading: one thread.
class DurationCache {
 public:
  // Once there are enough samples, one occurrence in this number is sampled.
  static constexpr uint32_t kRarely = 1024;

  explicit DurationCache(DurationTable& table);

  struct Lookup {
    OperationDurations* operation = nullptr;  // never null; lives at least until the next Look()
    Nanoseconds estimate = 0;
    bool known = false;   // the estimate rests on measurements
    bool sample = false;  // the caller should time this occurrence
  };
  // Looks up one occurrence of an operation on a partition of this size class.
  Lookup Look(const OperationKey& key, const OperationTraits& traits, int size_class);

 private:
  static constexpr size_t kSlots = 4096;
  // This many contents of one key may be new, plus a quarter of the contents that were not.
  static constexpr uint32_t kNewContents = 64;
  struct Slot {
    OperationKey key;
    std::shared_ptr<OperationDurations> operation;
    uint32_t until_sample = 0;  // occurrences
    std::array<uint8_t, kSizeClasses> asked{};
    uint32_t new_contents = 0, old_contents = 0;  // with this key
  };

  static size_t IndexOf(const OperationKey& key) { return (key.code * 31 + key.shape) % kSlots; }
  // Returns whether the slot was filled anew.
  bool Fill(Slot& slot, const OperationKey& key, const OperationTraits& traits);

  DurationTable& table_;
  const std::unique_ptr<std::array<Slot, kSlots>> slots_;
};

}  // namespace detshare
