#include "proto/images/fatbin.h"

#include <algorithm>
#include <cstring>

#include "proto/images/decompress.h"

namespace detshare::images {
namespace {

constexpr uint16_t kFatbinVersion = 1;
constexpr uint16_t kEntryVersion = 0x0101;
constexpr size_t kEntryHeaderBytes = 64;
constexpr uint64_t kAlignment = 8;

struct FatbinHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t entry_bytes;
};
static_assert(sizeof(FatbinHeader) == kFatbinHeaderBytes);

struct EntryHeader {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;
  uint32_t compressed_bytes;
  uint32_t options_offset;
  uint16_t format_minor;
  uint16_t format_major;
  uint32_t sm;
  uint32_t identifier_offset;
  uint32_t identifier_bytes;
  uint64_t flags;
  uint64_t zero;
  uint64_t uncompressed_bytes;
};
static_assert(sizeof(EntryHeader) == kEntryHeaderBytes);

bool Fail(std::string* error, const char* reason) {
  *error = reason;
  return false;
}

uint64_t Padded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool ParseEntries(std::span<const std::byte> rest, size_t fatbin, std::vector<FatbinEntry>* entries,
                  std::string* error) {
  while (!rest.empty()) {
    EntryHeader header;
    if (rest.size() < sizeof(header)) return Fail(error, "a fatbin entry's header is cut off");
    std::memcpy(&header, rest.data(), sizeof(header));
    if (header.header_bytes < sizeof(header) || header.header_bytes > rest.size()) {
      return Fail(error, "a fatbin entry's header has an impossible size");
    }
    if (header.options_offset > header.header_bytes ||
        uint64_t{header.identifier_offset} + header.identifier_bytes > header.header_bytes) {
      return Fail(error, "a fatbin entry's options or identifier lie outside of its header");
    }
    rest = rest.subspan(header.header_bytes);
    if (header.payload_bytes > rest.size())
      return Fail(error, "a fatbin entry reaches beyond its fatbin");
    if (header.compressed_bytes > header.payload_bytes) {
      return Fail(error, "a fatbin entry's compressed size is larger than the entry");
    }
    const bool compressed = (header.flags & (kEntryLz4 | kEntryZstd)) != 0;
    if (header.kind == static_cast<uint16_t>(EntryKind::kPtx) ||
        header.kind == static_cast<uint16_t>(EntryKind::kElf)) {
      FatbinEntry entry;
      entry.kind = static_cast<EntryKind>(header.kind);
      entry.sm = header.sm;
      entry.flags = header.flags;
      entry.format_major = header.format_major;
      entry.format_minor = header.format_minor;
      entry.payload = rest.first(compressed ? header.compressed_bytes : header.payload_bytes);
      entry.uncompressed_bytes = compressed ? header.uncompressed_bytes : 0;
      entry.fatbin = fatbin;
      entries->push_back(entry);
    }
    rest = rest.subspan(header.payload_bytes);
  }
  return true;
}

}  // namespace

bool SplitFatbins(std::span<const std::byte> image,
                  std::vector<std::span<const std::byte>>* fatbins, std::string* error) {
  fatbins->clear();
  do {
    FatbinHeader header;
    if (image.size() < sizeof(header)) return Fail(error, "a fatbin's header is cut off");
    std::memcpy(&header, image.data(), sizeof(header));
    if (header.magic != kFatbinMagic)
      return Fail(error, "a fatbin does not begin with its magic number");
    if (header.version != kFatbinVersion) return Fail(error, "a fatbin has an unknown version");
    if (header.header_bytes < sizeof(header) || header.header_bytes > image.size()) {
      return Fail(error, "a fatbin's header has an impossible size");
    }
    if (header.entry_bytes > image.size() - header.header_bytes) {
      return Fail(error, "a fatbin is cut off");
    }
    fatbins->push_back(image.first(header.header_bytes + header.entry_bytes));
    image = image.subspan(
        std::min<uint64_t>(header.header_bytes + Padded(header.entry_bytes), image.size()));
    // A rest that is shorter than a header is padding.
  } while (image.size() >= kFatbinHeaderBytes);
  return true;
}

bool ParseFatbins(std::span<const std::byte> image, std::vector<FatbinEntry>* entries,
                  std::string* error) {
  entries->clear();
  std::vector<std::span<const std::byte>> fatbins;
  if (!SplitFatbins(image, &fatbins, error)) return false;
  for (size_t i = 0; i < fatbins.size(); ++i) {
    FatbinHeader header;
    std::memcpy(&header, fatbins[i].data(), sizeof(header));
    if (!ParseEntries(fatbins[i].subspan(header.header_bytes), i, entries, error)) return false;
  }
  return true;
}

bool RunsOn(const FatbinEntry& entry, uint32_t device_sm) {
  if (entry.flags & kEntryArchitectureSpecific) return entry.sm == device_sm;
  const bool same_major = entry.sm / 10 == device_sm / 10;
  if (entry.kind == EntryKind::kElf || (entry.flags & kEntryFamilySpecific))
    return same_major && entry.sm <= device_sm;
  return entry.sm <= device_sm;
}

bool DecodeEntry(const FatbinEntry& entry, uint64_t limit, std::string* out, std::string* error) {
  if ((entry.flags & (kEntryLz4 | kEntryZstd)) == 0) {
    if (entry.payload.size() > limit) return Fail(error, "a fatbin entry is too large");
    out->assign(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());
    return true;
  }
  if (entry.uncompressed_bytes > limit) return Fail(error, "a fatbin entry is too large");
  return entry.flags & kEntryZstd
             ? DecompressZstd(entry.payload, entry.uncompressed_bytes, out, error)
             : DecompressLz4Block(entry.payload, entry.uncompressed_bytes, out, error);
}

std::string WritePtxFatbin(std::span<const std::string> texts, uint32_t sm) {
  std::string entries;
  for (const std::string& text : texts) {
    EntryHeader header{};
    header.kind = static_cast<uint16_t>(EntryKind::kPtx);
    header.version = kEntryVersion;
    header.header_bytes = sizeof(header);
    header.payload_bytes = Padded(text.size() + 1);  // the text and its terminator
    header.sm = sm;
    entries.append(reinterpret_cast<const char*>(&header), sizeof(header));
    entries.append(text);
    entries.append(header.payload_bytes - text.size(), '\0');
  }
  const FatbinHeader header{kFatbinMagic, kFatbinVersion, sizeof(FatbinHeader), entries.size()};
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + entries;
}

}  // namespace detshare::images
