#include "server/backends/images/check_image.h"

#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "proto/images/fatbin.h"
#include "proto/images/image_kind.h"
#include "server/backends/images/elf_view.h"

namespace detshare::images {
namespace {

constexpr uint16_t kMachineCuda = 190;
constexpr std::string_view kArchiveMagic = "!<arch>\n";
constexpr uint64_t kFatbinAlignment = 8;

// The header of an archive's member (ar.h). The fields are text.
struct ArchiveMember {
  char name[16];
  char unused[32];
  char bytes[10];
  char magic[2];
};
static_assert(sizeof(ArchiveMember) == 60);

bool Fail(std::string* error, std::string_view what) {
  *error = what;
  return false;
}

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

bool IsElf(std::string_view image) { return image.starts_with(ELFMAG); }

bool CheckCubin(std::string_view elf, std::string* error) {
  const std::optional<CubinInfo> cubin = ReadCubinHeader(BytesOf(elf));
  return (cubin.has_value() && cubin->bytes <= elf.size()) ||
         Fail(error, "the image is not a complete CUDA ELF file");
}

// The driver itself finds code that is no ELF file at all.
bool CheckCode(EntryKind kind, std::string_view code, std::string* error) {
  return kind != EntryKind::kElf || !IsElf(code) || CheckCubin(code, error);
}

// Checks all codes of an image of fatbins. Subtracts their bytes from *left.
bool CheckFatbins(std::string_view image, uint64_t* left, std::string* error) {
  std::vector<FatbinEntry> entries;
  if (!ParseFatbins(BytesOf(image), &entries, error)) return false;
  for (const FatbinEntry& entry : entries) {
    if (std::max<uint64_t>(entry.payload.size(), entry.uncompressed_bytes) > *left)
      return Fail(error, "the input has too much code: divide it into several inputs");
    std::string code;
    if (!DecodeEntry(entry, *left, &code, error) || !CheckCode(entry.kind, code, error))
      return false;
    *left -= code.size();
  }
  return true;
}

// Checks a section that begins with a fatbin, which others may follow. Between them is padding.
bool CheckFatbinSection(std::string_view section, uint64_t* left, std::string* error) {
  while (const auto word = ReadRecord<uint64_t>(section, 0)) {
    if (*word == 0) {
      section.remove_prefix(sizeof(*word));
      continue;
    }
    if (static_cast<uint32_t>(*word) != kFatbinMagic) break;
    const auto header_bytes = ReadRecord<uint16_t>(section, 6);
    const auto entry_bytes = ReadRecord<uint64_t>(section, 8);
    if (!header_bytes || !entry_bytes || *header_bytes > section.size() ||
        *entry_bytes > section.size() - *header_bytes) {
      return Fail(error, "a fatbin is cut off");
    }
    const uint64_t bytes = *header_bytes + *entry_bytes;
    if (!CheckFatbins(section.substr(0, bytes), left, error)) return false;
    const uint64_t padded = (bytes + kFatbinAlignment - 1) / kFatbinAlignment * kFatbinAlignment;
    section.remove_prefix(std::min<uint64_t>(padded, section.size()));
  }
  return true;
}

// Checks an ELF file of the host.
bool CheckHostObject(std::string_view elf, uint64_t* left, std::string* error) {
  const auto header = ReadRecord<Elf64_Ehdr>(elf, 0);
  if (!header || header->e_ident[EI_CLASS] != ELFCLASS64)
    return Fail(error, "an object file is not a complete ELF file of 64 bits");
  if (header->e_shoff == 0) return true;
  const auto first = ReadRecord<Elf64_Shdr>(elf, header->e_shoff);
  if (!first || header->e_shentsize != sizeof(Elf64_Shdr))
    return Fail(error, "an object file has an incomplete table of sections");
  // The number of a file with very many sections is in the first one.
  const uint64_t count = header->e_shnum != 0 ? header->e_shnum : first->sh_size;
  if (count > (elf.size() - header->e_shoff) / sizeof(Elf64_Shdr))
    return Fail(error, "an object file has an incomplete table of sections");
  for (uint64_t i = 1; i < count; ++i) {
    const auto section = *ReadRecord<Elf64_Shdr>(elf, header->e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type == SHT_NULL || section.sh_type == SHT_NOBITS) continue;
    const auto bytes = Slice(elf, section.sh_offset, section.sh_size);
    if (!bytes) return Fail(error, "a section of an object file reaches beyond the file");
    if (ReadRecord<uint32_t>(*bytes, 0) == kFatbinMagic &&
        !CheckFatbinSection(*bytes, left, error)) {
      return false;
    }
  }
  return true;
}

// Checks an input that is no archive.
bool CheckObject(std::string_view image, uint64_t* left, std::string* error) {
  switch (SniffImage(BytesOf(image))) {
    case ImageKind::kFatbin:
      return CheckFatbins(image, left, error);
    case ImageKind::kElf: {
      const auto header = ReadRecord<Elf64_Ehdr>(image, 0);
      return header && header->e_machine == kMachineCuda ? CheckCubin(image, error)
                                                         : CheckHostObject(image, left, error);
    }
    case ImageKind::kWrapper:
      return Fail(error, "the image is a wrapper with pointers of another process");
    case ImageKind::kPtx:
    case ImageKind::kUnknown:
      break;
  }
  return true;
}

bool CheckArchive(std::string_view archive, uint64_t* left, std::string* error) {
  archive.remove_prefix(kArchiveMagic.size());
  // A rest that is shorter than a header is padding.
  while (const auto member = ReadRecord<ArchiveMember>(archive, 0)) {
    archive.remove_prefix(sizeof(*member));
    uint64_t bytes = 0;
    const auto number = std::from_chars(member->bytes, std::end(member->bytes), bytes);
    if (number.ec != std::errc() || member->magic[0] != '`' || member->magic[1] != '\n')
      return Fail(error, "a library has a member without a proper header");
    if (bytes > archive.size()) return Fail(error, "a member of a library is cut off");
    if (!CheckObject(archive.substr(0, bytes), left, error)) return false;
    archive.remove_prefix(std::min<uint64_t>(bytes + bytes % 2, archive.size()));
  }
  return true;
}

}  // namespace

bool CheckLoadedImage(std::span<const std::byte> image, int device_sm,
                      const std::function<void(const DeviceCode&)>& visit, std::string* error) {
  const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
  const ImageKind kind = SniffImage(image);
  if (kind == ImageKind::kWrapper)
    return Fail(error, "the image is a wrapper with pointers of another process");
  if (kind == ImageKind::kElf && !CheckCubin(bytes, error)) return false;
  bool sound = true;
  const auto check = [&](const DeviceCode& code) {
    sound = sound && CheckCode(code.kind, code.bytes, error);
    if (sound) visit(code);
  };
  return ForEachDeviceCode(image, device_sm, check, error) && sound;
}

bool CheckLinkInput(std::span<const std::byte> image, std::string* error) {
  const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
  uint64_t left = kLargestImageCode;
  return bytes.starts_with(kArchiveMagic) ? CheckArchive(bytes, &left, error)
                                          : CheckObject(bytes, &left, error);
}

}  // namespace detshare::images
