#include "server/backends/images/managed_elf.h"

#include <elf.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>

#include "server/backends/images/elf_view.h"
#include "tests/test_file.h"

namespace detshare::images {
namespace {

std::string ReadImage(const std::string& name) {
  return ReadTestFile("tests/server/backends/images/" + name);
}

// The relocations of the image, by the names of their symbols.
std::multimap<std::string, uint32_t> RelocationsOf(const std::string& elf) {
  std::multimap<std::string, uint32_t> found;
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
      found.emplace(*StringAt(elf, names.sh_offset + symbol.st_name),
                    static_cast<uint32_t>(ELF64_R_TYPE(relocation.r_info)));
    }
  }
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
      REQUIRE(contents[i].size() == variables[i].bytes);
      if (variables[i].name == "counter") CHECK(contents[i] == std::string("\7\0\0\0", 4));
      if (variables[i].name == "table") CHECK(contents[i] == std::string(4000, '\0'));
    }
    // The code of kernels that keep addresses in cells has not changed.
    if (std::string(name) != "managed_debug.cubin") CHECK(text == SectionOf(before, ".text.Use"));
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
