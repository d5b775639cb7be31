// The handles that programs hold, and a table that finds the object of a handle. A handle is a
// number that looks like a pointer. The shim checks it at every use and never dereferences it.
//
//   63    56 55            28 27              4 3  0
//   +-------+----------------+-----------------+----+
//   | kind  |   generation   |      index      | 0  |
//   +-------+----------------+-----------------+----+
//
// The kind makes a handle a non-canonical address. Handles are even, because PyTorch uses odd
// stream values for its own purposes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace detshare::shim {

enum class HandleKind : uint8_t {
  kContext = 0x21,
  kStream = 0x22,
  kEvent = 0x23,
  kLibrary = 0x24,
  kModule = 0x25,
  kKernel = 0x26,
  kFunction = 0x27,
  kMemoryPool = 0x28,
  kLink = 0x29,
  kPhysicalMemory = 0x30,
  kGraph = 0x38,
  kGraphNode = 0x39,
  kGraphExec = 0x3A,
  kUserObject = 0x3B,
  kGreenContext = 0x40,
  kArray = 0x31,
  kMipmappedArray = 0x32,
};

// A table of objects that are found by handle. Creating an object takes three steps: Reserve() a
// place, fill in the object, Publish() it. Ending takes two: Retire() the handle, then Recycle()
// the place.
//
// The table never frees an object. It reuses the object's memory with another generation. So a
// thread that still holds a T* after the object's end sees another object of the same type, and
// never foreign memory. T needs a default constructor.
//
// Find() is lock-free and costs two dependent loads. The other functions take a mutex, except
// Publish() and Retire(). Any thread may call any of them.
template <typename T>
class HandleTable {
 public:
  static constexpr uint32_t kChunkBits = 10;
  static constexpr uint32_t kChunkSize = 1u << kChunkBits;
  static constexpr uint32_t kMaxChunks = 1u << 10;
  static constexpr uint64_t kGenerationMask = (1u << 28) - 1;

  // Returns the live object of this handle, if the handle has this kind. Null for every other
  // number.
  T* Find(HandleKind kind, uint64_t handle) const {
    if (handle >> 56 != static_cast<uint64_t>(kind) || (handle & 15) != 0) [[unlikely]]
      return nullptr;
    Slot* slot = SlotOf(IndexOf(handle));
    // Pairs with the release in Publish: the object is as its creator left it.
    if (slot == nullptr || slot->live.load(std::memory_order_acquire) != Generation(handle))
        [[unlikely]]
      return nullptr;
    return &slot->object;
  }

  // From now on at most this many places are in use at a time.
  void SetLimit(uint32_t limit) {
    const std::lock_guard lock(mutex_);
    limit_ = limit;
  }

  // Returns a place for a new object, which Find does not see yet. `*index` is unique among living
  // objects. Null if the table is full or has reached its limit.
  T* Reserve(uint32_t* index) {
    const std::lock_guard lock(mutex_);
    if (used_ - free_.size() >= limit_) return nullptr;
    if (!free_.empty()) {
      *index = free_.back();
      free_.pop_back();
      return &SlotOf(*index)->object;
    }
    if (used_ == kChunkSize * kMaxChunks) return nullptr;
    if (used_ % kChunkSize == 0) {
      owned_.push_back(std::make_unique<Slot[]>(kChunkSize));
      chunks_[used_ / kChunkSize].store(owned_.back().get(), std::memory_order_release);
    }
    *index = used_++;
    return &SlotOf(*index)->object;
  }

  // Makes the object of Reserve visible to Find and returns its handle of this kind. The release
  // store publishes the object.
  uint64_t Publish(HandleKind kind, uint32_t index) {
    Slot* slot = SlotOf(index);
    slot->next = slot->next % kGenerationMask + 1;
    slot->live.store(slot->next, std::memory_order_release);
    return Handle(kind, index, slot->next);
  }

  // Ends the object: its handles are stale afterwards. Returns false if another thread ended it
  // first. The caller then gives the place back with Recycle.
  bool Retire(uint64_t handle) {
    Slot* slot = SlotOf(IndexOf(handle));
    if (slot == nullptr) return false;
    uint64_t expected = Generation(handle);
    return slot->live.compare_exchange_strong(expected, 0, std::memory_order_acq_rel);
  }
  void Recycle(uint32_t index) {
    const std::lock_guard lock(mutex_);
    free_.push_back(index);
  }

  // Calls visit(T&) for every object that is alive when the table reaches it.
  template <typename Visit>
  void ForEach(Visit visit) {
    uint32_t used;
    {
      const std::lock_guard lock(mutex_);
      used = used_;
    }
    for (uint32_t i = 0; i < used; ++i) {
      Slot* slot = SlotOf(i);
      if (slot->live.load(std::memory_order_acquire) != 0) visit(slot->object);
    }
  }

  static uint32_t IndexOf(uint64_t handle) { return (handle >> 4) & 0xFFFFFF; }
  static uint64_t Generation(uint64_t handle) { return (handle >> 28) & kGenerationMask; }
  static uint64_t Handle(HandleKind kind, uint32_t index, uint64_t generation) {
    return static_cast<uint64_t>(kind) << 56 | generation << 28 | static_cast<uint64_t>(index) << 4;
  }
  // Returns the handle of the same object under another kind.
  static uint64_t WithKind(HandleKind kind, uint64_t handle) {
    return (handle & ((uint64_t{1} << 56) - 1)) | static_cast<uint64_t>(kind) << 56;
  }

 private:
  struct Slot {
    std::atomic<uint64_t> live{0};  // the generation while the object lives, else 0; release:
                                    // publishes `object`
    uint64_t next = 0;  // the last generation; only the thread that reserved the slot writes it
    T object{};
  };

  Slot* SlotOf(uint32_t index) const {
    const uint32_t chunk = index >> kChunkBits;
    if (chunk >= kMaxChunks) return nullptr;
    Slot* slots = chunks_[chunk].load(std::memory_order_acquire);
    return slots == nullptr ? nullptr : slots + (index & (kChunkSize - 1));
  }

  std::array<std::atomic<Slot*>, kMaxChunks> chunks_{};
  std::mutex mutex_;  // guards the rest
  std::vector<std::unique_ptr<Slot[]>> owned_;
  std::vector<uint32_t> free_;
  uint32_t used_ = 0;
  uint32_t limit_ = kChunkSize * kMaxChunks;
};

}  // namespace detshare::shim
