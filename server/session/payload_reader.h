// Reads structs and bytes in order from a payload that a client wrote.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace detshare {

class PayloadReader {
 public:
  explicit PayloadReader(std::span<const uint8_t> payload) : rest_(payload) {}

  // Takes the next `count` bytes. Returns false and takes nothing when fewer bytes are left.
  bool Bytes(uint64_t count, std::span<const uint8_t>* bytes) {
    if (count > rest_.size()) return false;
    *bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return true;
  }
  template <typename T>
  bool Struct(T* value) {
    std::span<const uint8_t> bytes;
    if (!Bytes(sizeof(T), &bytes)) return false;
    std::memcpy(value, bytes.data(), sizeof(T));
    return true;
  }
  bool empty() const { return rest_.empty(); }
  uint64_t left() const { return rest_.size(); }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace detshare
