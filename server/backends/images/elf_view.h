// Reads ELF images that may be hostile. A read outside the image returns nothing.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace detshare::images {

// Reads a record of fixed size.
template <typename T>
std::optional<T> ReadRecord(std::string_view image, uint64_t offset) {
  if (offset > image.size() || image.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, image.data() + offset, sizeof value);
  return value;
}

std::optional<std::string_view> Slice(std::string_view image, uint64_t offset, uint64_t bytes);

// Returns the text that begins at `offset` and ends before a 0 byte.
std::optional<std::string_view> StringAt(std::string_view table, uint64_t offset);

struct ElfSection {
  Elf64_Shdr header;
  uint64_t header_offset;  // offset in the image
  std::string_view name;
};

// Returns the sections of a 64-bit ELF image in their order; nothing if the table or a name is not
// whole.
std::optional<std::vector<ElfSection>> ElfSections(std::string_view elf);

// The symbols of an image, by their numbers. Refers to the image.
class ElfSymbols {
 public:
  struct Symbol {
    Elf64_Sym entry;
    std::string_view name;
  };

  // `sections` are those of `elf`. Returns nothing if there is no whole table with names.
  static std::optional<ElfSymbols> Of(std::string_view elf,
                                      const std::vector<ElfSection>& sections);
  // Returns nothing if there is no such symbol, or if its name is not whole.
  std::optional<Symbol> At(uint64_t number) const;

 private:
  ElfSymbols(std::string_view table, std::string_view names) : table_(table), names_(names) {}

  std::string_view table_, names_;
};

}  // namespace detshare::images
