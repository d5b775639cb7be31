// Fatbins: nvcc's container for a program's code for several architectures.
//
//   image := fatbin { padding to 8 bytes, fatbin }
//   fatbin (little endian):
//     0  u32  magic 0xBA55ED50
//     4  u16  version (1)
//     6  u16  header bytes (16)
//     8  u64  bytes of the entries that follow
//   entry:
//     0  u16  kind: 1 PTX text, 2 ELF
//     2  u16  version (0x0101)
//     4  u32  header bytes (64 or more)
//     8  u64  payload bytes, padded to 8
//    16  u32  compressed bytes; 0 when the payload is not compressed
//    20  u32  offset in the header of the ptxas options, 0 when there are none: u32 offset in the
//             header, u32 bytes of their text
//    24  u16  minor, u16 major version of the code's format (PTX 9.0: 0, 9)
//    28  u32  SM version (75 for sm_75)
//    32  u32  offset in the header, 36 u32 bytes of the identifier
//    40  u64  flags
//    48  u64  (zero)
//    56  u64  uncompressed bytes; 0 when the payload is not compressed
//
// An image may be hostile. These functions read nothing outside it and check every field before
// they use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace detshare::images {

inline constexpr uint32_t kFatbinMagic = 0xBA55ED50;
inline constexpr size_t kFatbinHeaderBytes = 16;

enum class EntryKind : uint16_t { kPtx = 1, kElf = 2 };

inline constexpr uint64_t kEntryLz4 = 0x2000;
inline constexpr uint64_t kEntryZstd = 0x8000;
inline constexpr uint64_t kEntryArchitectureSpecific =
    0x100000;  // sm_90a: runs on exactly this architecture
inline constexpr uint64_t kEntryFamilySpecific = 0x200000;  // sm_100f: runs on this major version

struct FatbinEntry {
  EntryKind kind = EntryKind::kPtx;
  uint32_t sm = 0;
  uint64_t flags = 0;
  uint32_t format_major = 0, format_minor = 0;
  std::span<const std::byte> payload;  // in the image, as stored; compressed code without padding
  uint64_t uncompressed_bytes = 0;     // 0: the payload is not compressed
  size_t fatbin = 0;                   // the index of its fatbin in the image
};

// Splits `image` into its fatbins, each with its header. Returns false and sets *error when the
// image is malformed.
bool SplitFatbins(std::span<const std::byte> image,
                  std::vector<std::span<const std::byte>>* fatbins, std::string* error);

// Lists the entries of all fatbins of `image` in their order, without entries of unknown kinds.
// Returns false and sets *error when the image is malformed.
bool ParseFatbins(std::span<const std::byte> image, std::vector<FatbinEntry>* entries,
                  std::string* error);

// Whether this entry's code can run on compute capability `device_sm` (90 for 9.0). For PTX:
// whether it can be compiled for it.
bool RunsOn(const FatbinEntry& entry, uint32_t device_sm);

// Writes the entry's code to *out, decompressed. Returns false and sets *error when the code does
// not agree with its header or has more than `limit` bytes.
bool DecodeEntry(const FatbinEntry& entry, uint64_t limit, std::string* out, std::string* error);

// Makes a fatbin with the given PTX texts as uncompressed entries for `sm`.
std::string WritePtxFatbin(std::span<const std::string> texts, uint32_t sm);

}  // namespace detshare::images
