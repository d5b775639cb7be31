// How long operations take on the device: learned while they run, asked for before they run.
//
// An operation is known by its key: what it executes and in which shape. The same key means the
// same work in every session and every run of the daemon, so all of them learn from each other
// (DurationTable, one a device) and what was learned survives in a file (durations_profile.h).
//
//     worker:     DurationCache::Look(key)  -->  estimate, and whether to sample this occurrence
//     somebody:   puts timed markers around it, later OperationDurations::Add(time)
//
// Times are learned apart for partitions of different size (SizeClass), and compared: an operation
// that is as fast on half of the SMs, though it has work for all, waits for memory.
//
// The estimate is a low quantile of the latest samples: what neighbours do to an operation only
// makes it longer. Samples that were taken while neighbours ran are used as upper bounds, and
// forgotten once there is a better one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "policy/policy.h"

namespace detshare {

using policy::Nanoseconds;

struct OperationKey {
  uint64_t code = 0;   // what it executes
  uint64_t shape = 0;  // how
  friend bool operator==(const OperationKey&, const OperationKey&) = default;
};

// A number that is the same on all machines and in all versions. `seed`: the hash of what comes
// before.
uint64_t StableHash(absl::Span<const std::byte> bytes, uint64_t seed = 0);

// The `code` of a kernel. `image`: a name of the image's content.
uint64_t KernelCode(absl::Span<const std::byte> image, std::string_view kernel);
// Of a launch. A few multiplications.
uint64_t ShapeOf(const LaunchShape& shape);
// Of a launch's parameters, without those that are addresses in [base, base + bytes): sizes and
// strides, in the beginning of them. Never 0.
uint64_t ContentOf(absl::Span<const std::byte> parameters, uint64_t base, uint64_t bytes);

// Copies and fills of one kind whose sizes lie between the same powers of two have one key.
enum class TransferKind : uint8_t { kToDevice, kFromDevice, kInside, kBetweenDevices, kFill };
OperationKey TransferKey(TransferKind kind, uint64_t bytes);

// Sizes of partitions that are told apart, by their share of the SMs: 0 is 7/8 and more, 1 more
// than 1/4, 2 more than 1/8 and so on; the last one is the rest.
inline constexpr int kSizeClasses = 5;
int SizeClassOf(int sm_count, int whole);

// What is known of an operation before it ran.
struct OperationTraits {
  uint32_t blocks = 0;    // of its grid; 0: it runs on no SMs
  Nanoseconds guess = 0;  // its duration; 0: nobody knows
  // What it is given beside its shape (ContentOf); 0: nothing. Matrix products of a library, say,
  // have one grid, that of the device, whatever their size. Operations of one key are told apart by
  // it, unless it turns out to be something else every time.
  uint64_t content = 0;
};

class DurationTable;

// What was learned about one operation. Owned by its table, and as old as that. Any thread.
class OperationDurations {
 public:
  // On a partition of that size, alone. Above 0. One load.
  Nanoseconds Estimate(int size_class) const {
    return estimates_[size_class].load(std::memory_order_relaxed);
  }
  // Whether the estimate for that size rests on a sample of any size.
  bool known() const { return known_.load(std::memory_order_relaxed); }
  // Whether samples of that size are still wanted more than others.
  bool Wanted(int size_class) const {
    return (wanted_.load(std::memory_order_relaxed) >> size_class & 1) != 0;
  }
  // How much of its time it waits for memory and not for SMs: 0 to 1, below 0 when not known.
  double memory_bound() const { return memory_bound_.load(std::memory_order_relaxed); }

  // `contended`: work of others was in the hardware meanwhile. Times below 1 ns are ignored.
  void Add(int size_class, Nanoseconds time, bool contended);

  // What is kept of it on disk.
  struct Record {
    OperationKey key;
    uint32_t blocks = 0;
    uint32_t age = 0;  // runs of the daemon since it was last looked up
    // Nanoseconds; 0: no sample; below 0: an upper bound.
    std::array<float, kSizeClasses> times{};
  };

 private:
  friend class DurationTable;
  static constexpr int kKept = 8;
  struct Samples {
    std::array<float, kKept> times{};
    uint8_t count = 0, next = 0;
    bool bounds = false;  // all are contended
    float Low() const;
  };

  OperationDurations(DurationTable& table, const OperationKey& key, const OperationTraits& traits);
  void Learn(int size_class, float time, bool contended);  // with the table's mutex held
  void Publish();                                          // with the table's mutex held

  // Relaxed, all of them: each is a figure of its own and publishes nothing.
  std::array<std::atomic<Nanoseconds>, kSizeClasses> estimates_;
  std::atomic<float> memory_bound_{-1};
  std::atomic<uint8_t> wanted_{(1 << kSizeClasses) - 1};
  std::atomic<bool> known_{false};

  DurationTable& table_;
  const OperationKey key_;
  const OperationTraits traits_;
  uint32_t age_ = 0;  // guarded by the table's mutex, as what follows
  std::array<Samples, kSizeClasses> samples_{};
};

// All operations of one device. Any thread.
class DurationTable {
 public:
  // Further ones share one record, which answers with guesses.
  static constexpr size_t kMaxOperations = 65'536;

  explicit DurationTable(int sm_count);
  ~DurationTable();
  DurationTable(const DurationTable&) = delete;
  DurationTable& operator=(const DurationTable&) = delete;

  int sm_count() const { return sm_count_; }
  // Never null. Locks, and allocates for a new key. `traits` count for a new key only.
  OperationDurations* FindOrAdd(const OperationKey& key, const OperationTraits& traits);
  size_t size() const;

  // For the profile: what is known of every operation with samples, those that were looked up first
  // ages by a run. In no order.
  std::vector<OperationDurations::Record> Records() const;
  // Takes over what earlier runs learned; records that make no sense are left out. Returns how many
  // were taken. Before anything is looked up.
  size_t Restore(absl::Span<const OperationDurations::Record> records);

 private:
  friend class OperationDurations;
  struct Hash {
    size_t operator()(const OperationKey& key) const { return key.code ^ key.shape; }
  };

  const int sm_count_;
  mutable std::mutex mutex_;
  absl::flat_hash_map<OperationKey, std::unique_ptr<OperationDurations>, Hash>
      operations_;                                // guarded by mutex_
  std::unique_ptr<OperationDurations> overflow_;  // of all that found no room
};

// One worker's way to its table: neither locks nor allocates for what it has seen lately. One
// thread.
class DurationCache {
 public:
  // Of how many occurrences one is sampled when there are enough samples.
  static constexpr uint32_t kRarely = 1024;

  explicit DurationCache(DurationTable& table);

  struct Lookup {
    OperationDurations* operation = nullptr;  // never null
    Nanoseconds estimate = 0;
    bool known = false;   // it rests on measurements
    bool sample = false;  // time this occurrence
  };
  // One occurrence of an operation, on a partition of that size.
  Lookup Look(const OperationKey& key, const OperationTraits& traits, int size_class);

 private:
  static constexpr size_t kSlots = 4096;
  // So many contents of one key may be new, and a quarter of those that were not.
  static constexpr uint32_t kNewContents = 64;
  struct Slot {
    OperationKey key;
    OperationDurations* operation = nullptr;
    uint32_t until_sample = 0;  // occurrences
    std::array<uint8_t, kSizeClasses> asked{};
    uint32_t new_contents = 0, old_contents = 0;  // with this key
  };

  static size_t IndexOf(const OperationKey& key) { return (key.code * 31 + key.shape) % kSlots; }
  // Whether the slot was filled anew.
  bool Fill(Slot& slot, const OperationKey& key, const OperationTraits& traits);

  DurationTable& table_;
  const std::unique_ptr<std::array<Slot, kSlots>> slots_;
};

}  // namespace detshare
