// The addresses that a process reserves for managed memory: ranges of a window that is free in every
// client.
//
// A range consists of units, and their number is a power of two. A range that is given back serves
// only later ranges of its size, so the driver's record of a range can be kept for the next one.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace detshare {

// Part of the process's addresses, in bytes. No bytes: none.
struct ManagedWindow {
  uint64_t base = 0, bytes = 0;
};

// Threading: one thread at a time.
class ManagedAddresses {
 public:
  // NVIDIA's driver keeps its own reservations in units of this size.
  static constexpr uint64_t kUnit = uint64_t{32} << 20;

  // `base` is a multiple of kUnit. At most `capacity` bytes are in use at a time.
  ManagedAddresses(const ManagedWindow& window, uint64_t capacity)
      : next_(window.base), end_(window.base + window.bytes), capacity_(capacity) {}

  // Returns the bytes of the range that Take(bytes) returns.
  static constexpr uint64_t ReservedFor(uint64_t bytes) {
    return std::bit_ceil((bytes + kUnit - 1) / kUnit) * kUnit;
  }

  struct Taken {
    uint64_t address = 0;
    bool fresh = false;  // nobody has had the range before
  };
  // Takes the lowest range of the right size that was given back, or else a fresh one. `bytes` is not
  // 0. Returns nothing if there is no room.
  std::optional<Taken> Take(uint64_t bytes) {
    if (bytes > capacity_ - used_) return std::nullopt;
    const uint64_t reserved = ReservedFor(bytes);
    Taken taken;
    std::set<uint64_t>& given_back = given_back_[reserved];
    if (!given_back.empty()) {
      taken.address = given_back.extract(given_back.begin()).value();
    } else if (reserved <= end_ - next_) {
      taken.address = next_;
      taken.fresh = true;
      next_ += reserved;
    } else {
      return std::nullopt;
    }
    used_ += bytes;
    return taken;
  }
  // The memory of a range is gone. `bytes` are those of its Take().
  void Free(uint64_t bytes) { used_ -= bytes; }
  // A later Take() may return the range, of which `reserved` are the bytes of addresses.
  void GiveBack(uint64_t address, uint64_t reserved) { given_back_[reserved].insert(address); }

 private:
  uint64_t next_;
  const uint64_t end_, capacity_;
  uint64_t used_ = 0;
  std::map<uint64_t, std::set<uint64_t>> given_back_;  // by their reserved bytes
};

}  // namespace detshare
