// Fatbins from bytes (fatbin.h), and what tells the kinds of images apart (image_kind.h).
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "proto/images/fatbin.h"
#include "proto/images/image_kind.h"
#include "tests/fuzzing/check.h"

namespace detshare::images {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint64_t kLimit = 1 << 20;

Bytes AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

bool Inside(Bytes part, Bytes whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void CheckKind(Bytes image) {
  const ImageKind kind = SniffImage(image);
  if (const std::optional<CubinInfo> cubin = ReadCubinHeader(image)) {
    FUZZ_CHECK(kind == ImageKind::kElf);
    FUZZ_CHECK(cubin->sm >= 0 && cubin->sm <= 255);
    FUZZ_CHECK(cubin->bytes >= 64);
  }
}

// Decodes an entry's contents. Returns false if it cannot be decoded.
bool Decode(const FatbinEntry& entry, std::string* text) {
  std::string error;
  if (!DecodeEntry(entry, kLimit, text, &error)) {
    FUZZ_CHECK(!error.empty());
    return false;
  }
  FUZZ_CHECK(text->size() <= kLimit);
  if ((entry.flags & (kEntryLz4 | kEntryZstd)) == 0) {
    FUZZ_CHECK(std::ranges::equal(AsBytes(*text), entry.payload));
  } else {
    FUZZ_CHECK(text->size() == entry.uncompressed_bytes);
  }
  return true;
}

// Texts that are written as a fatbin are its entries.
void CheckWritten(const std::vector<std::string>& texts, uint32_t sm) {
  const std::string image = WritePtxFatbin(texts, sm);
  std::vector<FatbinEntry> entries;
  std::string error, text;
  FUZZ_CHECK(SniffImage(AsBytes(image)) == ImageKind::kFatbin);
  FUZZ_CHECK(ParseFatbins(AsBytes(image), &entries, &error));
  FUZZ_CHECK(entries.size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    FUZZ_CHECK(entries[i].kind == EntryKind::kPtx && entries[i].sm == sm);
    if (!Decode(entries[i], &text)) continue;
    // A terminator and padding follow.
    FUZZ_CHECK(text.size() > texts[i].size() && text.starts_with(texts[i]));
    FUZZ_CHECK(text.find_first_not_of('\0', texts[i].size()) == text.npos);
  }
}

void CheckFatbins(Bytes image) {
  std::vector<Bytes> fatbins;
  std::vector<FatbinEntry> entries;
  std::string error;
  if (!SplitFatbins(image, &fatbins, &error)) {
    FUZZ_CHECK(!error.empty());
    FUZZ_CHECK(!ParseFatbins(image, &entries, &error));
    return;
  }
  FUZZ_CHECK(SniffImage(image) == ImageKind::kFatbin);
  const std::byte* end = image.data();
  for (const Bytes fatbin : fatbins) {
    FUZZ_CHECK(fatbin.size() >= kFatbinHeaderBytes && Inside(fatbin, image));
    FUZZ_CHECK(fatbin.data() >= end);
    end = fatbin.data() + fatbin.size();
  }
  if (!ParseFatbins(image, &entries, &error)) {
    FUZZ_CHECK(!error.empty());
    return;
  }
  std::vector<std::string> texts;
  size_t last_fatbin = 0;
  for (const FatbinEntry& entry : entries) {
    FUZZ_CHECK(entry.kind == EntryKind::kPtx || entry.kind == EntryKind::kElf);
    FUZZ_CHECK(entry.fatbin < fatbins.size() && entry.fatbin >= last_fatbin);
    last_fatbin = entry.fatbin;
    FUZZ_CHECK(Inside(entry.payload, fatbins[entry.fatbin]));
    // Code that runs on a device runs on that of its own architecture.
    FUZZ_CHECK(RunsOn(entry, entry.sm));
    if (!Decode(entry, &texts.emplace_back())) texts.pop_back();
  }
  CheckWritten(texts, entries.empty() ? 0 : entries[0].sm);
}

}  // namespace
}  // namespace detshare::images

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> image(reinterpret_cast<const std::byte*>(data), size);
  detshare::images::CheckKind(image);
  detshare::images::CheckFatbins(image);
  return 0;
}
