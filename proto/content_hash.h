// Hashes that name bytes by their content. Different bytes with the same hash cannot be found, so
// equal hashes mean equal bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace detshare {

// SHA-256.
using ContentHash = std::array<uint8_t, 32>;

class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  ContentHasher& Add(std::span<const std::byte> bytes);
  // Returns the hash of all added bytes. Called once; nothing is added afterwards.
  ContentHash Finish();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

ContentHash HashOf(std::span<const std::byte> bytes);

// A cheap hash of the concatenated pieces: of their total length, their first 4 KiB and their last
// 4 KiB. Different sketches mean different bytes. Equal sketches do not mean equal bytes.
ContentHash SketchOf(std::span<const std::span<const std::byte>> pieces);

// Lower-case hexadecimal digits.
std::string ToHex(const ContentHash& hash);

}  // namespace detshare
