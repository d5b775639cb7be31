#include "proto/content_hash.h"

// The deprecated functions add 20 KiB to the shim. Their successors would add most of the library.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <algorithm>

namespace detshare {

struct ContentHasher::State {
  SHA256_CTX context;
};

ContentHasher::ContentHasher() : state_(new State) { SHA256_Init(&state_->context); }
ContentHasher::~ContentHasher() = default;

ContentHasher& ContentHasher::Add(std::span<const std::byte> bytes) {
  SHA256_Update(&state_->context, bytes.data(), bytes.size());
  return *this;
}

ContentHash ContentHasher::Finish() {
  ContentHash hash;
  static_assert(sizeof(hash) == SHA256_DIGEST_LENGTH);
  SHA256_Final(hash.data(), &state_->context);
  return hash;
}

ContentHash HashOf(std::span<const std::byte> bytes) { return ContentHasher().Add(bytes).Finish(); }

ContentHash SketchOf(std::span<const std::span<const std::byte>> pieces) {
  constexpr size_t kEnd = 4096;
  uint64_t total = 0;
  for (const auto& piece : pieces) total += piece.size();
  ContentHasher hasher;
  hasher.Add(std::as_bytes(std::span(&total, 1)));
  size_t wanted = kEnd;
  for (size_t i = 0; i < pieces.size() && wanted != 0; ++i) {
    const auto part = pieces[i].first(std::min(wanted, pieces[i].size()));
    hasher.Add(part);
    wanted -= part.size();
  }
  uint64_t skipped = total - std::min<uint64_t>(total, kEnd);
  for (const auto& piece : pieces) {
    const size_t before = std::min<uint64_t>(skipped, piece.size());
    hasher.Add(piece.subspan(before));
    skipped -= before;
  }
  return hasher.Finish();
}

std::string ToHex(const ContentHash& hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : hash) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace detshare
