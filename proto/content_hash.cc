#include "proto/content_hash.h"

// The plain functions bring 20 KiB into the shim; their successors bring most of the library.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

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
