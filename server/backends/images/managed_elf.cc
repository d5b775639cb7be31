#include "server/backends/images/managed_elf.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "server/backends/images/elf_view.h"

namespace detshare::images {
namespace {

constexpr uint8_t kManaged = 4;  // bit of st_other

// Types of relocations.
enum : uint32_t {
  kWord64 = 2,
  kGenericWord64 = 4,  // the same, in a variable's initial contents
  kImmediateLow = 56,  // the 32-bit immediate of an instruction gets the low half of the address
  kImmediateHigh = 57,
};
constexpr uint64_t kImmediateOffset = 4;  // offset of the immediate in the instruction

constexpr uint64_t kMaxAlignment = 4096;
constexpr size_t kMaxVariables = 4096;

bool Fail(std::string* error, std::string_view what) {
  *error = what;
  return false;
}

struct Variable {
  uint32_t symbol = 0;
  uint64_t symbol_offset = 0;  // offset of the symbol in the image
  std::string_view name;
  uint32_t section = 0;
  uint64_t begin = 0, bytes = 0;  // in the section
};

struct Parsed {
  std::vector<ElfSection> sections;
  uint32_t symbol_table = 0;
  std::vector<Variable> variables;
};

std::optional<Elf64_Sym> SymbolAt(std::string_view elf, const Elf64_Shdr& table, uint64_t index) {
  if (index >= table.sh_size / sizeof(Elf64_Sym)) return std::nullopt;
  return ReadRecord<Elf64_Sym>(elf, table.sh_offset + index * sizeof(Elf64_Sym));
}

bool IsManaged(const Elf64_Sym& symbol) {
  return ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && (symbol.st_other & kManaged) != 0;
}

bool Parse(std::string_view elf, Parsed* parsed, std::string* error) {
  const auto sections = ElfSections(elf);
  if (!sections) return Fail(error, "an incomplete table of sections");
  parsed->sections = *sections;
  const auto found =
      std::find_if(sections->begin(), sections->end(),
                   [](const ElfSection& section) { return section.header.sh_type == SHT_SYMTAB; });
  if (found == sections->end()) return true;
  parsed->symbol_table = static_cast<uint32_t>(found - sections->begin());
  const Elf64_Shdr& table = found->header;
  if (!Slice(elf, table.sh_offset, table.sh_size) || table.sh_link >= sections->size())
    return Fail(error, "an incomplete table of symbols");
  const Elf64_Shdr& strings = (*sections)[table.sh_link].header;
  const auto names = Slice(elf, strings.sh_offset, strings.sh_size);
  if (!names) return Fail(error, "the names of symbols are missing");
  for (uint32_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
    const Elf64_Sym symbol = *SymbolAt(elf, table, i);
    if (!IsManaged(symbol) || symbol.st_shndx == SHN_UNDEF) continue;
    const auto name = StringAt(*names, symbol.st_name);
    if (!name || name->empty()) return Fail(error, "a managed variable without a name");
    if (symbol.st_shndx >= sections->size()) return Fail(error, "a managed variable in no section");
    const Elf64_Shdr& home = (*sections)[symbol.st_shndx].header;
    const uint64_t begin = symbol.st_value - home.sh_addr;
    if (begin > home.sh_size || symbol.st_size > home.sh_size - begin || symbol.st_size == 0)
      return Fail(error, "a managed variable outside of its section");
    if (home.sh_type != SHT_NOBITS && !Slice(elf, home.sh_offset, home.sh_size))
      return Fail(error, "an incomplete section of variables");
    if (parsed->variables.size() == kMaxVariables) return Fail(error, "too many managed variables");
    parsed->variables.push_back({i, table.sh_offset + i * sizeof(Elf64_Sym), *name, symbol.st_shndx,
                                 begin, symbol.st_size});
  }
  return true;
}

// Whether the image holds the variable's initial bytes. The others are zero.
bool IsStored(const Parsed& parsed, const Variable& variable) {
  return parsed.sections[variable.section].header.sh_type != SHT_NOBITS;
}

// Variables that do not overlap have less bytes in the image than the image. Others could have any
// number.
bool CheckStored(std::string_view elf, const Parsed& parsed, std::string* error) {
  uint64_t left = elf.size();
  for (const Variable& variable : parsed.variables) {
    if (!IsStored(parsed, variable)) continue;
    if (variable.bytes > left)
      return Fail(error, "managed variables that overlap: together they are larger than the image");
    left -= variable.bytes;
  }
  return true;
}

// One relocation, from either kind of table.
struct Relocation {
  uint64_t offset = 0;  // in its section
  uint32_t type = 0, symbol = 0;
  std::optional<int64_t> addend;  // empty: the addend is in place
};

std::optional<Relocation> RelocationAt(std::string_view elf, const Elf64_Shdr& table,
                                       uint64_t index) {
  if (table.sh_type == SHT_RELA) {
    const auto entry = ReadRecord<Elf64_Rela>(elf, table.sh_offset + index * sizeof(Elf64_Rela));
    if (!entry) return std::nullopt;
    return Relocation{entry->r_offset, static_cast<uint32_t>(ELF64_R_TYPE(entry->r_info)),
                      static_cast<uint32_t>(ELF64_R_SYM(entry->r_info)), entry->r_addend};
  }
  const auto entry = ReadRecord<Elf64_Rel>(elf, table.sh_offset + index * sizeof(Elf64_Rel));
  if (!entry) return std::nullopt;
  return Relocation{entry->r_offset, static_cast<uint32_t>(ELF64_R_TYPE(entry->r_info)),
                    static_cast<uint32_t>(ELF64_R_SYM(entry->r_info)), std::nullopt};
}

// Returns the bytes of the image that a relocation changes; null if they are outside the image.
template <typename T>
char* Target(std::string* elf, const Elf64_Shdr& section, uint64_t offset) {
  if (section.sh_type == SHT_NOBITS || offset > section.sh_size ||
      section.sh_size - offset < sizeof(T) || !Slice(*elf, section.sh_offset, section.sh_size)) {
    return nullptr;
  }
  return elf->data() + section.sh_offset + offset;
}

bool Apply(std::string* elf, const Elf64_Shdr& section, const Relocation& relocation,
           uint64_t address, std::string* error) {
  switch (relocation.type) {
    case kWord64:
    case kGenericWord64: {
      char* const word = Target<uint64_t>(elf, section, relocation.offset);
      if (word == nullptr) break;
      uint64_t addend = 0;
      std::memcpy(&addend, word, sizeof(addend));
      if (relocation.addend) addend = static_cast<uint64_t>(*relocation.addend);
      const uint64_t value = address + addend;
      std::memcpy(word, &value, sizeof(value));
      return true;
    }
    case kImmediateLow:
    case kImmediateHigh: {
      char* const immediate = Target<uint32_t>(elf, section, relocation.offset + kImmediateOffset);
      if (immediate == nullptr) break;
      uint32_t half = 0;
      std::memcpy(&half, immediate, sizeof(half));
      if (!relocation.addend && half != 0)
        return Fail(error, "an instruction that names a place inside of a managed variable");
      const uint64_t value = address + static_cast<uint64_t>(relocation.addend.value_or(0));
      half = static_cast<uint32_t>(relocation.type == kImmediateLow ? value : value >> 32);
      std::memcpy(immediate, &half, sizeof(half));
      return true;
    }
    default:
      return Fail(error, "code refers to a managed variable in an unknown way (relocation " +
                             std::to_string(relocation.type) + ")");
  }
  return Fail(error, "a relocation outside of its section");
}

}  // namespace

bool HasManagedVariables(std::string_view elf) {
  Parsed parsed;
  std::string error;
  return Parse(elf, &parsed, &error) && !parsed.variables.empty();
}

bool FindManagedVariables(std::string_view elf, std::vector<ManagedElfVariable>* variables,
                          std::string* error) {
  Parsed parsed;
  if (!Parse(elf, &parsed, error) || !CheckStored(elf, parsed, error)) return false;
  variables->clear();
  for (const Variable& variable : parsed.variables) {
    uint64_t alignment = parsed.sections[variable.section].header.sh_addralign;
    if ((alignment & (alignment - 1)) != 0 || alignment > kMaxAlignment)
      return Fail(error, "a section with an impossible alignment");
    alignment = std::max<uint64_t>(alignment, 1);
    variables->push_back({std::string(variable.name), variable.bytes, alignment});
  }
  return true;
}

bool PlaceManagedVariables(std::string* elf, std::span<const uint64_t> addresses,
                           std::vector<std::string>* contents, std::string* error) {
  Parsed parsed;
  if (!Parse(*elf, &parsed, error) || !CheckStored(*elf, parsed, error)) return false;
  if (addresses.size() != parsed.variables.size())
    return Fail(error, "not one address for each managed variable");
  const Elf64_Shdr symbols = parsed.sections[parsed.symbol_table].header;
  std::map<uint32_t, uint64_t> address_of;
  for (size_t i = 0; i < addresses.size(); ++i)
    address_of.emplace(parsed.variables[i].symbol, addresses[i]);
  const auto holds_variables = [&](uint32_t section) {
    return std::any_of(parsed.variables.begin(), parsed.variables.end(),
                       [&](const Variable& variable) { return variable.section == section; });
  };

  for (const ElfSection& section : parsed.sections) {
    Elf64_Shdr table = section.header;
    if (table.sh_type != SHT_REL && table.sh_type != SHT_RELA) continue;
    if (table.sh_link != parsed.symbol_table || table.sh_info >= parsed.sections.size() ||
        !Slice(*elf, table.sh_offset, table.sh_size)) {
      return Fail(error, "an incomplete table of relocations");
    }
    const Elf64_Shdr& target = parsed.sections[table.sh_info].header;
    const size_t entry = table.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
    const uint64_t count = table.sh_size / entry;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const Relocation relocation = *RelocationAt(*elf, table, i);
      if (const auto own = address_of.find(relocation.symbol); own != address_of.end()) {
        if (!Apply(elf, target, relocation, own->second, error)) return false;
        continue;
      }
      const auto symbol = SymbolAt(*elf, symbols, relocation.symbol);
      if (symbol && ELF64_ST_TYPE(symbol->st_info) == STT_SECTION &&
          holds_variables(symbol->st_shndx)) {
        return Fail(error, "a relocation that names the section of a managed variable");
      }
      for (const Variable& variable : parsed.variables) {
        if (variable.section == table.sh_info &&
            relocation.offset + sizeof(uint64_t) > variable.begin &&
            relocation.offset < variable.begin + variable.bytes) {
          return Fail(error, "a managed variable that begins with the address of another variable");
        }
      }
      std::memmove(elf->data() + table.sh_offset + kept++ * entry,
                   elf->data() + table.sh_offset + i * entry, entry);
    }
    if (kept == count) continue;
    table.sh_size = kept * entry;
    if (kept == 0) table.sh_type = SHT_NULL;  // a loader may not expect an empty table
    std::memcpy(elf->data() + section.header_offset, &table, sizeof(table));
  }

  contents->clear();
  for (const Variable& variable : parsed.variables) {
    const Elf64_Shdr& home = parsed.sections[variable.section].header;
    contents->push_back(IsStored(parsed, variable)
                            ? elf->substr(home.sh_offset + variable.begin, variable.bytes)
                            : std::string());
    Elf64_Sym symbol = *ReadRecord<Elf64_Sym>(*elf, variable.symbol_offset);
    symbol.st_other &= static_cast<uint8_t>(~kManaged);
    std::memcpy(elf->data() + variable.symbol_offset, &symbol, sizeof(symbol));
  }
  return true;
}

}  // namespace detshare::images
