// The name of some bytes by their content. Nobody can find other bytes of the same name, so that
// who has checked a name need not compare.
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
  // Once, last.
  ContentHash Finish();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

ContentHash HashOf(std::span<const std::byte> bytes);

// Of what consists of these pieces, one after the other: the hash of its length, its first and its
// last 4 KiB. Things of different sketches differ; those of one sketch may differ all the same.
ContentHash SketchOf(std::span<const std::span<const std::byte>> pieces);

// Lower-case hexadecimal digits.
std::string ToHex(const ContentHash& hash);

}  // namespace detshare
