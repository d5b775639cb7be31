#include "proto/images/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "proto/images/decompress.h"
#include "proto/images/fatbin_wrapper.h"
#include "proto/images/image_kind.h"
#include "tests/test_file.h"

namespace detshare::images {
namespace {

std::string ReadFile(const std::string& name) { return ReadTestFile("tests/proto/images/" + name); }

std::span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Deleted, because the entries point into the image.
std::vector<FatbinEntry> Entries(std::string&& image) = delete;
std::vector<FatbinEntry> Entries(const std::string& image) {
  std::vector<FatbinEntry> entries;
  std::string error;
  INFO(error);
  REQUIRE(ParseFatbins(Bytes(image), &entries, &error));
  return entries;
}

std::string Decoded(const FatbinEntry& entry) {
  std::string text, error;
  const bool decoded = DecodeEntry(entry, 1 << 24, &text, &error);
  INFO(error);
  REQUIRE(decoded);
  return text;
}

// The PTX of the only PTX entry, up to its terminator.
std::string OnlyPtx(const std::string& image) {
  std::string text;
  for (const FatbinEntry& entry : Entries(image)) {
    if (entry.kind != EntryKind::kPtx) continue;
    REQUIRE(text.empty());
    text = Decoded(entry);
  }
  return text.substr(0, text.find('\0'));
}

// Does everything that the daemon does with an image. It must neither crash nor take more memory
// than the limit.
void Digest(std::span<const std::byte> image) {
  constexpr uint64_t kLimit = 1 << 20;
  SniffImage(image);
  ReadCubinHeader(image);
  std::vector<FatbinEntry> entries;
  std::string error, text;
  if (!ParseFatbins(image, &entries, &error)) {
    REQUIRE(!error.empty());
    return;
  }
  for (const FatbinEntry& entry : entries) {
    RunsOn(entry, 90);
    if (DecodeEntry(entry, kLimit, &text, &error)) REQUIRE(text.size() <= kLimit);
  }
}

}  // namespace

TEST_CASE("every way in which nvcc compresses a fatbin yields the same PTX") {
  const std::string plain = OnlyPtx(ReadFile("kernels_plain.fatbin"));
  CHECK(plain.find(".visible .entry _Z5Scale") != plain.npos);
  CHECK(OnlyPtx(ReadFile("kernels_zstd.fatbin")) == plain);
  CHECK(OnlyPtx(ReadFile("kernels_lz4.fatbin")) == plain);
  CHECK(OnlyPtx(ReadFile("kernels_default.fatbin")) == plain);
}

TEST_CASE("nvcc's fatbins are compressed as the tests expect") {
  const std::string zstd = ReadFile("kernels_zstd.fatbin"), lz4 = ReadFile("kernels_lz4.fatbin");
  const std::string plain = ReadFile("kernels_plain.fatbin");
  CHECK((Entries(zstd).back().flags & kEntryZstd) != 0);
  CHECK((Entries(lz4).back().flags & kEntryLz4) != 0);
  CHECK((Entries(plain).back().flags & (kEntryLz4 | kEntryZstd)) == 0);
}

TEST_CASE("machine code in a fatbin is ELF for the architecture that its entry names") {
  const std::string image = ReadFile("kernels_default.fatbin");
  const std::vector<FatbinEntry> entries = Entries(image);
  REQUIRE(entries.size() == 2);
  REQUIRE(entries[0].kind == EntryKind::kElf);
  const std::string elf = Decoded(entries[0]);
  CHECK(SniffImage(Bytes(elf)) == ImageKind::kElf);
  const auto cubin = ReadCubinHeader(Bytes(elf));
  REQUIRE(cubin.has_value());
  CHECK(cubin->sm == static_cast<int>(entries[0].sm));
  CHECK(cubin->bytes <= elf.size());
  CHECK(cubin->bytes + 8 > elf.size());
}

TEST_CASE("fatbins that follow each other are one image with numbered parts") {
  const std::string one = ReadFile("kernels_default.fatbin");
  REQUIRE(one.size() % 8 == 0);
  const std::string both = one + ReadFile("kernels_lz4.fatbin") + std::string(7, '\0');
  const std::vector<FatbinEntry> entries = Entries(both);
  REQUIRE(entries.size() == 4);
  CHECK(entries[1].fatbin == 0);
  CHECK(entries[2].fatbin == 1);
}

TEST_CASE("a fatbin that follows another one begins at a multiple of 8 bytes") {
  const std::string text = ".version 8.0\n";
  std::string image = WritePtxFatbin({&text, 1}, 90);
  // The last three bytes of the first fatbin become padding: of the fatbin and of its entry.
  for (const size_t field : {size_t{8}, kFatbinHeaderBytes + 8}) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, image.data() + field, sizeof(bytes));
    bytes -= 3;
    std::memcpy(image.data() + field, &bytes, sizeof(bytes));
  }
  image += WritePtxFatbin({&text, 1}, 90);
  const std::vector<FatbinEntry> entries = Entries(image);
  REQUIRE(entries.size() == 2);
  CHECK(entries[1].fatbin == 1);
  CHECK(Decoded(entries[1]).substr(0, text.size()) == text);
}

TEST_CASE("a wrapper yields its fatbin, and the parts of a linked program after it") {
  const std::string linked = ReadFile("kernels_default.fatbin"),
                    part = ReadFile("kernels_zstd.fatbin");
  const void* parts[] = {part.data(), part.data(), nullptr};
  FatbinWrapper wrapper{kFatbinWrapperMagic, 1, linked.data(), parts};
  CHECK(SniffImage({reinterpret_cast<const std::byte*>(&wrapper), sizeof(wrapper)}) ==
        ImageKind::kWrapper);
  REQUIRE(WrappedFatbins(&wrapper).size() == 1);
  CHECK(WrappedFatbins(&wrapper)[0].size() == linked.size());
  wrapper.version = 2;
  REQUIRE(WrappedFatbins(&wrapper).size() == 3);
  CHECK(WrappedFatbins(&wrapper)[2].size() == part.size());
  wrapper.version = 3;
  CHECK(WrappedFatbins(&wrapper).empty());
}

TEST_CASE("code runs on newer devices, machine code and specific PTX only on related ones") {
  FatbinEntry entry;
  entry.sm = 80;
  CHECK(RunsOn(entry, 80));
  CHECK(RunsOn(entry, 90));
  CHECK_FALSE(RunsOn(entry, 75));
  entry.kind = EntryKind::kElf;
  CHECK(RunsOn(entry, 86));
  CHECK_FALSE(RunsOn(entry, 90));
  entry.kind = EntryKind::kPtx;
  entry.flags = kEntryArchitectureSpecific;
  CHECK(RunsOn(entry, 80));
  CHECK_FALSE(RunsOn(entry, 86));
  entry.flags = kEntryFamilySpecific;
  CHECK(RunsOn(entry, 86));
  CHECK_FALSE(RunsOn(entry, 90));
}

TEST_CASE("PTX is recognised after comments and white space") {
  CHECK(SniffImage(Bytes("//\n// Generated\n/* by\n * hand */\n\t.version 9.0\n")) ==
        ImageKind::kPtx);
  CHECK(SniffImage(Bytes(".version 9.0")) == ImageKind::kPtx);
  CHECK(SniffImage(Bytes("// .version 9.0")) == ImageKind::kUnknown);
  CHECK(SniffImage(Bytes("/* .version")) == ImageKind::kUnknown);
  CHECK(SniffImage(Bytes("")) == ImageKind::kUnknown);
  CHECK(SniffImage(Bytes("\x7f"
                         "EL")) == ImageKind::kUnknown);
}

TEST_CASE("a fatbin that is written is read back") {
  const std::vector<std::string> texts = {".version 9.0\n", "", std::string(1000, 'x')};
  const std::string image = WritePtxFatbin(texts, 75);
  const std::vector<FatbinEntry> entries = Entries(image);
  REQUIRE(entries.size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text = Decoded(entries[i]);
    CHECK(text.substr(0, text.find('\0')) == texts[i]);
    CHECK(entries[i].sm == 75);
  }
}

TEST_CASE("an entry that announces too much is refused before memory is allocated") {
  std::string out, error;
  const std::string text(5000, 'a');
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  CHECK(DecompressZstd(Bytes(packed), text.size(), &out, &error));
  CHECK(out == text);
  CHECK_FALSE(DecompressZstd(Bytes(packed), text.size() - 1, &out, &error));
  CHECK_FALSE(DecompressZstd(Bytes(packed), uint64_t{1} << 60, &out, &error));
  CHECK(out.capacity() < (16 << 20));
  CHECK_FALSE(
      DecompressZstd(Bytes(packed.substr(0, packed.size() - 1)), text.size(), &out, &error));

  packed.resize(LZ4_compressBound(text.size()));
  packed.resize(LZ4_compress_default(text.data(), packed.data(), text.size(), packed.size()));
  CHECK(DecompressLz4Block(Bytes(packed), text.size(), &out, &error));
  CHECK(out == text);
  CHECK_FALSE(DecompressLz4Block(Bytes(packed), text.size() - 1, &out, &error));
  CHECK_FALSE(DecompressLz4Block(Bytes(packed), text.size() + 1, &out, &error));
  out = {};
  CHECK_FALSE(DecompressLz4Block(Bytes(packed), uint64_t{1} << 30, &out, &error));
  CHECK(out.capacity() < (16 << 20));
}

TEST_CASE("a decompression bomb stops at the limit") {
  const std::string text(8 << 20, '\0');
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  FatbinEntry entry;
  entry.flags = kEntryZstd;
  entry.payload = Bytes(packed);
  entry.uncompressed_bytes = 1000;
  std::string out, error;
  CHECK_FALSE(DecodeEntry(entry, 1 << 20, &out, &error));
  CHECK(out.capacity() < (2 << 20));
  entry.uncompressed_bytes = text.size();
  CHECK_FALSE(DecodeEntry(entry, 1 << 20, &out, &error));
}

TEST_CASE("an entry whose options or identifier lie outside of its header is refused") {
  constexpr size_t kOptions = 20, kIdentifier = 32, kIdentifierBytes = 36;
  const std::string text = ".version 8.0\n", image = WritePtxFatbin({&text, 1}, 90);
  const auto with = [&](size_t field, uint32_t value, size_t other, uint32_t other_value) {
    std::string changed = image;
    std::memcpy(changed.data() + kFatbinHeaderBytes + field, &value, sizeof(value));
    std::memcpy(changed.data() + kFatbinHeaderBytes + other, &other_value, sizeof(other_value));
    std::vector<FatbinEntry> entries;
    std::string error;
    return ParseFatbins(Bytes(changed), &entries, &error);
  };
  CHECK(with(kOptions, 64, kOptions, 64));
  CHECK_FALSE(with(kOptions, 65, kOptions, 65));
  CHECK(with(kIdentifier, 60, kIdentifierBytes, 4));
  CHECK_FALSE(with(kIdentifier, 60, kIdentifierBytes, 5));
  CHECK_FALSE(with(kIdentifier, 8, kIdentifierBytes, UINT32_MAX));  // the sum has more than 32 bits
}

TEST_CASE("every truncation of a fatbin is read or refused") {
  for (const char* name : {"kernels_default.fatbin", "kernels_lz4.fatbin"}) {
    const std::string image = ReadFile(name);
    for (size_t bytes = 0; bytes < image.size(); ++bytes) {
      // In its own buffer, so that a sanitizer sees every byte too many.
      const std::vector<char> cut(image.begin(), image.begin() + bytes);
      Digest({reinterpret_cast<const std::byte*>(cut.data()), cut.size()});
    }
  }
}

}  // namespace detshare::images
