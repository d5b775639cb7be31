#include "server/backends/images/elf_view.h"

#include <algorithm>

namespace detshare::images {

std::optional<std::string_view> Slice(std::string_view image, uint64_t offset, uint64_t bytes) {
  if (offset > image.size() || image.size() - offset < bytes) return std::nullopt;
  return image.substr(offset, bytes);
}

std::optional<std::string_view> StringAt(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return std::nullopt;
  const size_t end = table.find('\0', offset);
  if (end == std::string_view::npos) return std::nullopt;
  return table.substr(offset, end - offset);
}

std::optional<std::vector<ElfSection>> ElfSections(std::string_view elf) {
  const std::optional<Elf64_Ehdr> header = ReadRecord<Elf64_Ehdr>(elf, 0);
  if (!header || header->e_shentsize != sizeof(Elf64_Shdr)) return std::nullopt;
  std::vector<ElfSection> sections;
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const uint64_t offset = header->e_shoff + i * sizeof(Elf64_Shdr);
    const auto section = ReadRecord<Elf64_Shdr>(elf, offset);
    if (!section) return std::nullopt;
    sections.push_back({*section, offset, {}});
  }
  if (header->e_shstrndx >= sections.size()) return std::nullopt;
  const Elf64_Shdr& names = sections[header->e_shstrndx].header;
  const auto table = Slice(elf, names.sh_offset, names.sh_size);
  if (!table) return std::nullopt;
  for (ElfSection& section : sections) {
    const auto name = StringAt(*table, section.header.sh_name);
    if (!name) return std::nullopt;
    section.name = *name;
  }
  return sections;
}

std::optional<ElfSymbols> ElfSymbols::Of(std::string_view elf,
                                         const std::vector<ElfSection>& sections) {
  const auto found = std::find_if(sections.begin(), sections.end(), [](const ElfSection& section) {
    return section.header.sh_type == SHT_SYMTAB;
  });
  if (found == sections.end() || found->header.sh_link >= sections.size()) return std::nullopt;
  const Elf64_Shdr& strings = sections[found->header.sh_link].header;
  const auto table = Slice(elf, found->header.sh_offset, found->header.sh_size);
  const auto names = Slice(elf, strings.sh_offset, strings.sh_size);
  if (!table || !names) return std::nullopt;
  return ElfSymbols(*table, *names);
}

std::optional<ElfSymbols::Symbol> ElfSymbols::At(uint64_t number) const {
  if (number >= table_.size() / sizeof(Elf64_Sym)) return std::nullopt;
  const auto entry = ReadRecord<Elf64_Sym>(table_, number * sizeof(Elf64_Sym));
  const auto name = entry ? StringAt(names_, entry->st_name) : std::nullopt;
  if (!name) return std::nullopt;
  return Symbol{*entry, *name};
}

}  // namespace detshare::images
