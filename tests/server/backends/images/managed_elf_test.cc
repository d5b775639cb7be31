#include "server/backends/images/managed_elf.h"

#include <elf.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <map>

#include "server/backends/images/elf_view.h"
#include "tests/test_file.h"

namespace detshare::images {
namespace {

std::string ReadImage(const std::string& name) {
  return ReadTestFile("tests/server/backends/images/" + name);
}

struct Relocation {
  std::string symbol;
  uint64_t entry = 0;  // offset of the relocation in the image
  uint64_t offset = 0, type = 0;
  Elf64_Shdr section{};  // in which `offset` is
};

std::vector<Relocation> AllRelocationsOf(const std::string& elf) {
  std::vector<Relocation> found;
  const auto sections = ElfSections(elf);
  REQUIRE(sections.has_value());
  for (const ElfSection& section : *sections) {
    const Elf64_Shdr& table = section.header;
    if (table.sh_type != SHT_REL && table.sh_type != SHT_RELA) continue;
    const Elf64_Shdr& symbols = (*sections)[table.sh_link].header;
    const Elf64_Shdr& names = (*sections)[symbols.sh_link].header;
    const size_t entry = table.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
    for (uint64_t at = 0; at < table.sh_size; at += entry) {
      const auto relocation = *ReadRecord<Elf64_Rel>(elf, table.sh_offset + at);
      const auto symbol = *ReadRecord<Elf64_Sym>(
          elf, symbols.sh_offset + ELF64_R_SYM(relocation.r_info) * sizeof(Elf64_Sym));
      found.push_back({std::string(*StringAt(elf, names.sh_offset + symbol.st_name)),
                       table.sh_offset + at, relocation.r_offset, ELF64_R_TYPE(relocation.r_info),
                       (*sections)[table.sh_info].header});
    }
  }
  return found;
}

// The types of the image's relocations, by the names of their symbols.
std::multimap<std::string, uint32_t> RelocationsOf(const std::string& elf) {
  std::multimap<std::string, uint32_t> found;
  for (const Relocation& one : AllRelocationsOf(elf))
    found.emplace(one.symbol, static_cast<uint32_t>(one.type));
  return found;
}

std::string SectionOf(const std::string& elf, std::string_view name) {
  const auto sections = ElfSections(elf);
  REQUIRE(sections.has_value());
  for (const ElfSection& section : *sections) {
    if (section.name == name) return elf.substr(section.header.sh_offset, section.header.sh_size);
  }
  return {};
}

// Addresses whose halves are all different.
std::vector<uint64_t> SomeAddresses(size_t count) {
  std::vector<uint64_t> addresses;
  for (size_t i = 0; i < count; ++i) addresses.push_back(0x0000100020003000 + 0x1000000010 * i);
  return addresses;
}

const char* const kImages[] = {"managed_sm_75.cubin", "managed_sm_90.cubin", "managed_sm_100.cubin",
                               "managed_debug.cubin"};

TEST_CASE("Managed variables are found with their sizes") {
  for (const char* name : kImages) {
    INFO(name);
    const std::string elf = ReadImage(name);
    CHECK(HasManagedVariables(elf));
    std::vector<ManagedElfVariable> variables;
    std::string error;
    REQUIRE(FindManagedVariables(elf, &variables, &error));
    std::map<std::string, uint64_t> sizes;
    for (const ManagedElfVariable& variable : variables) {
      sizes[variable.name] = variable.bytes;
      CHECK(variable.alignment >= 4);
    }
    CHECK(sizes.size() == 3);
    CHECK(sizes["counter"] == 4);
    CHECK(sizes["table"] == 4000);
  }
}

TEST_CASE("Code gets the addresses of its managed variables, and keeps all other relocations") {
  for (const char* name : kImages) {
    INFO(name);
    const std::string before = ReadImage(name);
    std::string elf = before;
    std::vector<ManagedElfVariable> variables;
    std::vector<std::string> contents;
    std::string error;
    REQUIRE(FindManagedVariables(elf, &variables, &error));
    const std::vector<uint64_t> addresses = SomeAddresses(variables.size());
    const bool placed = PlaceManagedVariables(&elf, addresses, &contents, &error);
    INFO(error);
    REQUIRE(placed);
    CHECK(elf.size() == before.size());
    CHECK_FALSE(HasManagedVariables(elf));

    const auto old = RelocationsOf(before), now = RelocationsOf(elf);
    size_t gone = 0;
    for (const ManagedElfVariable& variable : variables) {
      CHECK(old.count(variable.name) != 0);
      CHECK(now.count(variable.name) == 0);
      gone += old.count(variable.name);
    }
    CHECK(old.size() - now.size() == gone);
    CHECK(now.count("ordinary") == old.count("ordinary"));

    // Each address is where the code looks for it, in one piece or in halves.
    const std::string cells = SectionOf(elf, ".nv.constant4"), text = SectionOf(elf, ".text.Use");
    const auto holds = [](const std::string& where, const void* value, size_t bytes) {
      return where.find(std::string_view(static_cast<const char*>(value), bytes)) !=
             std::string::npos;
    };
    for (const uint64_t address : addresses) {
      const uint32_t low = static_cast<uint32_t>(address), high = address >> 32;
      CHECK((holds(cells, &address, 8) || (holds(text, &low, 4) && holds(text, &high, 4))));
    }
    for (size_t i = 0; i < variables.size(); ++i) {
      CHECK((contents[i].empty() || contents[i].size() == variables[i].bytes));
      if (variables[i].name == "counter") CHECK(contents[i] == std::string("\7\0\0\0", 4));
      if (variables[i].name == "table") CHECK(contents[i].empty());  // zero
    }
    // The code of kernels that keep addresses in cells has not changed.
    if (std::string(name) != "managed_debug.cubin") CHECK(text == SectionOf(before, ".text.Use"));
  }
}

// The image's managed variables by name, and their addresses in the order of the variables.
struct Placed {
  explicit Placed(const std::string& elf) {
    std::string error;
    REQUIRE(FindManagedVariables(elf, &variables, &error));
    in_order = SomeAddresses(variables.size());
    for (size_t i = 0; i < variables.size(); ++i) addresses[variables[i].name] = in_order[i];
  }
  bool Place(std::string* elf, std::string* error) const {
    std::vector<std::string> contents;
    return PlaceManagedVariables(elf, in_order, &contents, error);
  }
  std::vector<ManagedElfVariable> variables;
  std::vector<uint64_t> in_order;
  std::map<std::string, uint64_t> addresses;
};

template <typename T>
T At(const std::string& elf, uint64_t offset) {
  T value;
  REQUIRE(offset + sizeof(value) <= elf.size());
  std::memcpy(&value, elf.data() + offset, sizeof(value));
  return value;
}

TEST_CASE("Instructions get the low and the high half of an address, each its own") {
  constexpr uint64_t kLow = 56, kHigh = 57, kImmediate = 4;
  std::string elf = ReadImage("managed_debug.cubin"), error;
  const std::vector<Relocation> relocations = AllRelocationsOf(elf);
  const Placed placed(elf);
  REQUIRE(placed.Place(&elf, &error));
  int halves[2] = {};
  for (const Relocation& one : relocations) {
    const auto known = placed.addresses.find(one.symbol);
    if (known == placed.addresses.end() || (one.type != kLow && one.type != kHigh)) continue;
    const uint64_t half = one.type == kLow ? known->second & 0xffffffff : known->second >> 32;
    CHECK(At<uint32_t>(elf, one.section.sh_offset + one.offset + kImmediate) == half);
    ++halves[one.type == kHigh];
  }
  CHECK(halves[0] != 0);
  CHECK(halves[1] != 0);
}

TEST_CASE("An address is that of the place in the variable that the relocation names") {
  std::string elf = ReadImage("managed_sm_90.cubin"), error;
  const Placed placed(elf);
  std::vector<Relocation> relocations;
  for (const Relocation& one : AllRelocationsOf(elf)) {
    if (placed.addresses.count(one.symbol) != 0) relocations.push_back(one);
  }
  REQUIRE_FALSE(relocations.empty());
  for (size_t i = 0; i < relocations.size(); ++i) {
    const uint64_t addend = 8 * i + 8;
    std::memcpy(elf.data() + relocations[i].entry + offsetof(Elf64_Rela, r_addend), &addend,
                sizeof(addend));
  }
  REQUIRE(placed.Place(&elf, &error));
  for (size_t i = 0; i < relocations.size(); ++i) {
    const Relocation& one = relocations[i];
    CHECK(At<uint64_t>(elf, one.section.sh_offset + one.offset) ==
          placed.addresses.at(one.symbol) + 8 * i + 8);
  }
}

TEST_CASE("A relocation that reaches past the end of its section is refused") {
  const std::string elf = ReadImage("managed_sm_90.cubin");
  const Placed placed(elf);
  for (const Relocation& one : AllRelocationsOf(elf)) {
    if (placed.addresses.count(one.symbol) == 0) continue;
    for (const uint64_t before_end : {uint64_t{7}, uint64_t{0}}) {
      std::string changed = elf, error;
      const uint64_t offset = one.section.sh_size - before_end;
      std::memcpy(changed.data() + one.entry, &offset, sizeof(offset));
      CHECK_FALSE(placed.Place(&changed, &error));
      CHECK_THAT(error, Catch::Contains("outside of its section"));
    }
  }
}

TEST_CASE("An image without managed variables has none") {
  std::string elf = ReadImage("managed_sm_90.cubin");
  std::vector<ManagedElfVariable> variables;
  std::vector<std::string> contents;
  std::string error;
  REQUIRE(FindManagedVariables(elf, &variables, &error));
  REQUIRE(PlaceManagedVariables(&elf, SomeAddresses(variables.size()), &contents, &error));
  REQUIRE(FindManagedVariables(elf, &variables, &error));
  CHECK(variables.empty());
  CHECK_FALSE(HasManagedVariables("no ELF"));
  CHECK_FALSE(HasManagedVariables(""));
}

TEST_CASE("A relocation of an unknown type is refused by its number") {
  std::string elf = ReadImage("managed_sm_90.cubin");
  const auto sections = ElfSections(elf);
  for (const ElfSection& section : *sections) {
    if (section.name != ".rela.nv.constant4") continue;
    for (uint64_t at = 0; at < section.header.sh_size; at += sizeof(Elf64_Rela))
      elf[section.header.sh_offset + at + 8] = 99;
  }
  std::vector<ManagedElfVariable> variables;
  std::vector<std::string> contents;
  std::string error;
  REQUIRE(FindManagedVariables(elf, &variables, &error));
  CHECK_FALSE(PlaceManagedVariables(&elf, SomeAddresses(variables.size()), &contents, &error));
  CHECK_THAT(error, Catch::Contains("99"));
  CHECK_FALSE(PlaceManagedVariables(&elf, {}, &contents, &error));
}

// An image of some hundred bytes with `count` managed variables, each at the beginning of a section of
// `bytes` bytes of the given type.
std::string ImageOf(uint32_t section_type, size_t count, uint64_t bytes) {
  enum { kNames = 1, kVariables, kSymbols, kSections };
  constexpr char kText[] = "\0names\0variables\0symbols\0x";
  const std::string names(kText, sizeof(kText));
  const auto name = [&](const char* text) { return static_cast<uint32_t>(names.find(text)); };
  std::vector<Elf64_Sym> symbols(1 + count);
  for (size_t i = 1; i <= count; ++i) {
    symbols[i].st_name = name("x");
    symbols[i].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
    symbols[i].st_other = 4;
    symbols[i].st_shndx = kVariables;
    symbols[i].st_size = bytes;
  }
  Elf64_Shdr sections[kSections] = {};
  std::string elf(sizeof(Elf64_Ehdr), '\0');
  const auto append = [&](int section, uint32_t type, const void* data, size_t size) {
    sections[section].sh_type = type;
    sections[section].sh_offset = elf.size();
    sections[section].sh_size = size;
    sections[section].sh_addralign = 8;
    elf.append(static_cast<const char*>(data), size);
  };
  append(kNames, SHT_STRTAB, names.data(), names.size());
  append(kVariables, section_type, nullptr, 0);
  if (section_type != SHT_NOBITS) elf.append(bytes, 'v');
  sections[kVariables].sh_size = bytes;
  append(kSymbols, SHT_SYMTAB, symbols.data(), symbols.size() * sizeof(Elf64_Sym));
  sections[kNames].sh_name = name("names");
  sections[kVariables].sh_name = name("variables");
  sections[kSymbols].sh_name = name("symbols");
  sections[kSymbols].sh_link = kNames;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = 190;
  header.e_shoff = elf.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = kSections;
  header.e_shstrndx = kNames;
  std::memcpy(elf.data(), &header, sizeof(header));
  elf.append(reinterpret_cast<const char*>(sections), sizeof(sections));
  return elf;
}

TEST_CASE("A small image with a huge variable that is zero takes no memory for its contents") {
  constexpr uint64_t kHuge = uint64_t{1} << 50;
  std::string elf = ImageOf(SHT_NOBITS, 1, kHuge), error;
  REQUIRE(elf.size() < 500);
  const Placed placed(elf);
  REQUIRE(placed.variables.size() == 1);
  CHECK(placed.variables[0].bytes == kHuge);
  std::vector<std::string> contents;
  REQUIRE(PlaceManagedVariables(&elf, placed.in_order, &contents, &error));
  CHECK(contents == std::vector<std::string>{""});
}

TEST_CASE("Variables that overlap so that they are larger than their image are refused") {
  std::vector<ManagedElfVariable> variables;
  std::vector<std::string> contents;
  std::string error;
  std::string one = ImageOf(SHT_PROGBITS, 1, 2000);
  REQUIRE(FindManagedVariables(one, &variables, &error));
  REQUIRE(PlaceManagedVariables(&one, SomeAddresses(1), &contents, &error));
  CHECK(contents == std::vector{std::string(2000, 'v')});

  std::string many = ImageOf(SHT_PROGBITS, 10, 2000);
  CHECK(HasManagedVariables(many));
  CHECK_FALSE(FindManagedVariables(many, &variables, &error));
  CHECK_THAT(error, Catch::Contains("overlap"));
  error.clear();
  CHECK_FALSE(PlaceManagedVariables(&many, SomeAddresses(10), &contents, &error));
  CHECK_THAT(error, Catch::Contains("overlap"));
}

TEST_CASE("An image that is cut anywhere is only read and written within its bounds") {
  // Copies of exactly their size, so that the sanitizers see every access past the end.
  const std::string whole = ReadImage("managed_sm_90.cubin");
  const auto attempt = [](std::string elf) {
    elf.shrink_to_fit();
    std::vector<ManagedElfVariable> variables;
    std::vector<std::string> contents;
    std::string error;
    if (!FindManagedVariables(elf, &variables, &error)) return;
    PlaceManagedVariables(&elf, SomeAddresses(variables.size()), &contents, &error);
  };
  for (size_t bytes = 0; bytes < whole.size(); bytes += 7) attempt(whole.substr(0, bytes));
  SUCCEED();
}

}  // namespace
}  // namespace detshare::images
