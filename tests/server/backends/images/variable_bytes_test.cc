// The memory that the variables of code take, according to the code's image.
#include "server/backends/images/variable_bytes.h"

#include <elf.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "proto/images/fatbin.h"

namespace detshare::images {
namespace {

uint64_t Of(const std::string& image) {
  return VariableBytes({reinterpret_cast<const std::byte*>(image.data()), image.size()}, 90);
}

// An ELF image with empty sections of these names and sizes.
std::string Elf(const std::vector<std::pair<std::string, uint64_t>>& sections) {
  std::string names(1, '\0');
  std::vector<Elf64_Shdr> headers(1);
  for (const auto& [name, bytes] : sections) {
    Elf64_Shdr header{};
    header.sh_name = static_cast<uint32_t>(names.size());
    header.sh_type = SHT_NOBITS;
    header.sh_size = bytes;
    headers.push_back(header);
    names += name + '\0';
  }
  Elf64_Shdr table{};
  table.sh_name = static_cast<uint32_t>(names.size());
  names += std::string(".shstrtab") + '\0';
  table.sh_type = SHT_STRTAB;
  table.sh_offset = sizeof(Elf64_Ehdr);
  table.sh_size = names.size();
  headers.push_back(table);
  Elf64_Ehdr elf{};
  std::memcpy(elf.e_ident, ELFMAG, SELFMAG);
  elf.e_ident[EI_CLASS] = ELFCLASS64;
  elf.e_ident[EI_DATA] = ELFDATA2LSB;
  elf.e_shentsize = sizeof(Elf64_Shdr);
  elf.e_shnum = static_cast<uint16_t>(headers.size());
  elf.e_shstrndx = static_cast<uint16_t>(headers.size() - 1);
  elf.e_shoff = sizeof(elf) + names.size();
  std::string image(reinterpret_cast<const char*>(&elf), sizeof(elf));
  image += names;
  image.append(reinterpret_cast<const char*>(headers.data()), headers.size() * sizeof(Elf64_Shdr));
  return image;
}

template <typename T>
std::string BytesOf(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A fatbin with this PTX for each architecture.
std::string Fatbin(const std::vector<std::pair<uint32_t, std::string>>& texts) {
  std::string entries;
  for (const auto& [sm, text] : texts) {
    entries += BytesOf(static_cast<uint16_t>(EntryKind::kPtx)) + BytesOf(uint16_t{0x0101});
    entries += BytesOf(uint32_t{64}) + BytesOf(uint64_t{text.size()}) + std::string(12, '\0');
    entries += BytesOf(sm) + std::string(32, '\0') + text;
  }
  return BytesOf(kFatbinMagic) + BytesOf(uint16_t{1}) + BytesOf(uint16_t{16}) +
         BytesOf(uint64_t{entries.size()}) + entries;
}

TEST_CASE("Of several codes for the device the one with the most variables counts") {
  const std::string few = "\n.global .align 8 .b8 few[8];", many = "\n.global .b8 many[4000];";
  CHECK(Of(Fatbin({{80, many}, {90, few}})) == 4000);
  CHECK(Of(Fatbin({{80, few}, {90, many}})) == 4000);
  CHECK(Of(Fatbin({{80, few}, {100, many}})) == 8);  // the last is not for the device
}

TEST_CASE("The variables of PTX count with their declared sizes") {
  CHECK(Of(".version 8.0\n.global .align 4 .b8 big[4000];\n") == 4000);
  CHECK(Of("\n.const .align 4 .b8 c[256];\n.global .align 8 .f64 v = 0d4008000000000000;") == 264);
  CHECK(Of("\n.visible .global .v4 .f32 corner[2][ 3 ];") == 96);
  CHECK(Of("\n.global .u16 few[] = {1, 2, 3};") == 2);
  CHECK(Of("\n.global .attribute(.managed) .align 4 .u32 m;") == 0);
}

TEST_CASE("Accesses to variables are no variables") {
  CHECK(Of("ld.global.u32 %r1, [big+12]; cvta.to.global.u64 %rd2, %rd1; ld.const.f32 %f2, [c];") ==
        0);
}

TEST_CASE("The variables of machine code count by their sections") {
  CHECK(Of(Elf({{".text.k", 500},
                {".nv.global", 4020},
                {".nv.global.init", 8},
                {".nv.constant3", 256},
                {".nv.constant0.k", 536}})) == 4284);
}

TEST_CASE("An image is known to have no variables only if it is understood") {
  const auto none = [](const std::string& image) {
    return HasNoVariables({reinterpret_cast<const std::byte*>(image.data()), image.size()}, 90);
  };
  const std::string kernel =
      ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 .ptr .global "
      ".align "
      "4 p) {\n.shared .b8 s[4];\nld.global.u32 %r0, [%d0];\nld.const.u32 %r0, [c];\nret;\n}\n";
  CHECK(none(kernel));
  CHECK_FALSE(none(kernel + ".global .u32 x;"));
  CHECK_FALSE(none(kernel + "/* */.global .u32 x;"));
  CHECK_FALSE(none(kernel + ".visible .const .align 4 .u32 c = 3;"));
  CHECK_FALSE(none(kernel + ".global .attribute(.managed) .u32 m;"));
  CHECK_FALSE(none(kernel + "/* open"));
  CHECK_FALSE(none(kernel + "("));
  CHECK(none(Elf({{".text.k", 128}, {".nv.constant0.k", 360}})));
  CHECK_FALSE(none(Elf({{".text.k", 128}, {".nv.global", 4}})));
  CHECK_FALSE(none(Elf({{".nv.constant3", 4}})));
  CHECK_FALSE(none(std::string(ELFMAG, SELFMAG) + "garbage"));
}

TEST_CASE("Invalid images have no variables, or an impossible number of bytes") {
  CHECK(Of("") == 0);
  CHECK(Of(".global") == 0);
  CHECK(Of(" .global ") == 0);
  CHECK(Of(" .global .b8") == 1);
  CHECK(Of(" .global .b999999 x[7];") == 0);
  CHECK(Of(" .global .b8 x[99999999999999999999999];") == 1);
  CHECK(Of(" .global .b64 x[18446744073709551615][18446744073709551615];") == UINT64_MAX);
  CHECK(Of(Elf({{".nv.global", UINT64_MAX}, {".nv.global.init", 10}})) == UINT64_MAX);
  std::string cut = Elf({{".nv.global", 100}});
  cut.resize(cut.size() - 10);
  CHECK(Of(cut) == 0);
}

}  // namespace
}  // namespace detshare::images
