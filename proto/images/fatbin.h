// Fatbins: the container in which nvcc puts the code of one program for several architectures.
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
//    16  u32  compressed bytes; 0 when the payload is stored as it is
//    20  u32  offset of the ptxas options in the header, 0 when there are none
//    24  u16  minor, u16 major version of the code's format (PTX 9.0: 0, 9)
//    28  u32  SM version (75 for sm_75)
//    32  u32  offset, 36 u32 bytes of the identifier
//    40  u64  flags
//    48  u64  (zero)
//    56  u64  uncompressed bytes; 0 when the payload is stored as it is
//
// Everything in an image may be hostile: nothing outside it is read, and nothing is believed before
// it is checked.
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
  std::span<const std::byte>
      payload;  // in the image, as stored, without what the header says is padding
  uint64_t uncompressed_bytes = 0;  // 0: the payload is not compressed
  size_t fatbin = 0;                // which fatbin of the image it is in
};

// The fatbins that `image` holds one after the other, each with its header. False, with *error set,
// when the image is not well formed.
bool SplitFatbins(std::span<const std::byte> image,
                  std::vector<std::span<const std::byte>>* fatbins, std::string* error);

// The entries of all fatbins of `image` in their order; entries of unknown kinds are left out.
// False, with *error set, when the image is not well formed.
bool ParseFatbins(std::span<const std::byte> image, std::vector<FatbinEntry>* entries,
                  std::string* error);

// Whether code of this entry can run on (PTX: be compiled for) compute capability `device_sm` (90
// for 9.0).
bool RunsOn(const FatbinEntry& entry, uint32_t device_sm);

// Writes `payload` (decompressed where it is compressed) to *out. Refuses, with *error set, an
// entry whose contents are not what its header says or would be larger than `limit` bytes.
bool DecodeEntry(const FatbinEntry& entry, uint64_t limit, std::string* out, std::string* error);

// A fatbin with the given PTX texts as uncompressed entries for `sm`.
std::string WritePtxFatbin(std::span<const std::string> texts, uint32_t sm);

}  // namespace detshare::images
