#include "server/backends/images/register_counts.h"

#include <optional>
#include <vector>

#include "server/backends/images/elf_view.h"

namespace detshare::images {
namespace {

// Section .nv.info is a list of attributes:
//   u8 format, u8 attribute, u16 value, or bytes that follow if the format is kSizedFormat
constexpr uint8_t kSizedFormat = 4;
constexpr uint8_t kRegisterCount = 0x2f;  // the bytes are a RegisterCount

struct AttributeHeader {
  uint8_t format;
  uint8_t attribute;
  uint16_t value;
};

struct RegisterCount {
  uint32_t symbol;
  uint32_t registers;
};

}  // namespace

std::map<std::string, uint32_t> RegisterCounts(std::string_view elf) {
  std::map<std::string, uint32_t> counts;
  const std::optional<std::vector<ElfSection>> sections = ElfSections(elf);
  if (!sections) return counts;
  const std::optional<ElfSymbols> symbols = ElfSymbols::Of(elf, *sections);
  if (!symbols) return counts;
  for (const ElfSection& section : *sections) {
    if (section.name != ".nv.info") continue;
    const auto list = Slice(elf, section.header.sh_offset, section.header.sh_size);
    if (!list) continue;
    uint64_t at = 0;
    while (const auto header = ReadRecord<AttributeHeader>(*list, at)) {
      at += sizeof(AttributeHeader);
      if (header->format != kSizedFormat) continue;
      const auto count = ReadRecord<RegisterCount>(*list, at);
      at += header->value;
      if (header->attribute != kRegisterCount || header->value != sizeof(RegisterCount) || !count)
        continue;
      if (const auto symbol = symbols->At(count->symbol))
        counts.emplace(symbol->name, count->registers);
    }
  }
  return counts;
}

}  // namespace detshare::images
