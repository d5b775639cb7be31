// Which code is bound to a time-slice group, by images that nvcc makes (group_code.cu).
#include "server/backends/cuda/group_bound_code.h"

#include <elf.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/backends/images/elf_view.h"
#include "tests/test_file.h"

namespace detshare::cuda {
namespace {

using images::EntryKind;

const char* const kFree[] = {"plain", "constant", "printf", "virtual", "assert"};
const char* const kBound[] = {"written", "static", "called", "table",
                              "pointer", "malloc", "free",   "new"};

std::string ReadImage(const std::string& name) {
  return ReadTestFile("tests/server/backends/cuda/" + name);
}

// The bytes are the whole of an allocation, so that the address sanitizer sees each byte beyond.
bool IsBound(EntryKind kind, const std::string& image) {
  const std::vector<char> bytes(image.begin(), image.end());
  images::DeviceCode code;
  code.kind = kind;
  code.bytes = {bytes.data(), bytes.size()};
  return IsBoundToGroup(code);
}
bool IsElfBound(const std::string& image) { return IsBound(EntryKind::kElf, image); }
bool IsPtxBound(const std::string& text) { return IsBound(EntryKind::kPtx, text); }

TEST_CASE("Code without variables is not bound, nor is code that only prints or asserts") {
  for (const std::string kind : kFree) {
    INFO(kind);
    CHECK_FALSE(IsPtxBound(ReadImage("group_" + kind + ".ptx")));
    for (const std::string machine : {"sm_75", "sm_90", "sm_100"})
      CHECK_FALSE(IsElfBound(ReadImage("group_" + kind + "_" + machine + ".cubin")));
  }
}

TEST_CASE("Code with variables, or with the device's heap, is bound") {
  for (const std::string kind : kBound) {
    INFO(kind);
    CHECK(IsPtxBound(ReadImage("group_" + kind + ".ptx")));
    for (const std::string machine : {"sm_75", "sm_90", "sm_100"})
      CHECK(IsElfBound(ReadImage("group_" + kind + "_" + machine + ".cubin")));
  }
}

// ---- PTX

constexpr char kHead[] = ".version 8.0\n.target sm_90\n.address_size 64\n";
constexpr char kKernel[] = ".visible .entry f(.param .u64 p) {\n ret;\n}\n";

bool IsBoundBeside(const std::string& line) {
  const bool before = IsPtxBound(kHead + line + "\n" + kKernel);
  CHECK(before == IsPtxBound(std::string(kHead) + kKernel + line + "\n"));
  return before;
}

TEST_CASE("Each declaration of a global variable in PTX is found") {
  CHECK(IsBoundBeside(".global .u32 counter;"));
  CHECK(IsBoundBeside(".visible .global .align 4 .u32 counter = 7;"));
  CHECK(IsBoundBeside(".extern .global .align 4 .b8 table[];"));
  CHECK(IsBoundBeside(".weak\t.global\n.align 8 .v4 .f32 table[4][3];"));
  CHECK(IsBoundBeside(".global .attribute(.managed) .align 4 .u32 counter;"));
  CHECK(IsBoundBeside(".visible .global .texref texture;"));
  CHECK(IsBoundBeside(".global .u32 a /* of */ , b;"));
  CHECK(IsBoundBeside(".global .u64 list[2] = {text, other};"));
  CHECK(IsBoundBeside("// comment\n.global .u32 counter; // comment"));
  // No end.
  CHECK(IsPtxBound(std::string(kHead) + kKernel + ".global .u32 counter"));
}

TEST_CASE("What only looks like a global variable in PTX is not one") {
  CHECK_FALSE(IsBoundBeside("// .global .u32 counter;"));
  CHECK_FALSE(IsBoundBeside("/* .global\n .u32 counter; */"));
  CHECK_FALSE(IsBoundBeside(".pragma \".global .u32 counter;\";"));
  CHECK_FALSE(IsBoundBeside(".const .align 4 .u32 scale = 3;"));
  CHECK_FALSE(IsBoundBeside(".global .align 1 .b8 $str[4] = {37, 100, 10};"));
  CHECK_FALSE(IsBoundBeside(".global .align 8 .u64 _ZTV6Square[3] = {0, 0, f};"));
  // A parameter that points to global memory.
  CHECK_FALSE(IsPtxBound(std::string(kHead) +
                         ".visible .entry g(.param .u64 .ptr .global .align 16 g_param_0,\n"
                         "  .param .u64 .ptr .global .align 1 g_param_1)\n{\n .reg .b32 %r<5>;\n"
                         " ld.param.u64 %rd1, [g_param_0];\n ld.global.u32 %r1, [%rd1];\n"
                         " st.global.u32 [%rd1+4], %r1;\n ret;\n}\n"));
}

TEST_CASE("Calls of the device's heap and of the device's launches in PTX are found") {
  for (const char* function : {"malloc", "free", "cudaLaunchDeviceV2", "cudaGetParameterBufferV2",
                               "__cudaCDP2LaunchDeviceV2", "__cudaCDP2GetParameterBufferV2"}) {
    INFO(function);
    CHECK(IsPtxBound(std::string(kHead) + ".visible .entry f() {\n call.uni (r), " + function +
                     ", (p);\n ret;\n}\n"));
  }
  CHECK_FALSE(IsPtxBound(std::string(kHead) +
                         ".visible .entry f() {\n call.uni (r), my_malloc, (p);\n ret;\n}\n"));
}

TEST_CASE("PTX that is not whole counts as bound") {
  const std::string whole = std::string(kHead) + kKernel;
  CHECK_FALSE(IsPtxBound(whole));
  CHECK_FALSE(IsPtxBound(whole + "// no end of the line"));
  for (const char* rest : {"/* no end", "\"no end", "}", ")", "{", "(", "}{"}) {
    INFO(rest);
    CHECK(IsPtxBound(whole + rest));
  }
  // Cut off within the parameters or within the function.
  const auto cut_between = [&](char begin, char end) {
    for (size_t length = whole.find(begin) + 1; length <= whole.find(end); ++length)
      CHECK(IsPtxBound(whole.substr(0, length)));
  };
  cut_between('(', ')');
  cut_between('{', '}');
}

// ---- machine code

TEST_CASE("Machine code that is cut off anywhere counts as bound") {
  for (const char* name : {"group_plain_sm_90.cubin", "group_written_sm_90.cubin",
                           "group_printf_sm_75.cubin", "group_virtual_sm_100.cubin"}) {
    INFO(name);
    const std::string image = ReadImage(name);
    bool all_bound = true;
    // The section headers are near the end, with the program headers behind them.
    const auto header = *images::ReadRecord<Elf64_Ehdr>(image, 0);
    const uint64_t end = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
    REQUIRE(end <= image.size());
    for (size_t length = 0; length < end; ++length)
      all_bound = all_bound && IsElfBound(image.substr(0, length));
    CHECK(all_bound);
  }
}

TEST_CASE("Machine code with any byte changed is read safely") {
  for (const char* name : {"group_written_sm_90.cubin", "group_printf_sm_75.cubin"}) {
    std::string image = ReadImage(name);
    int bound = 0;
    for (size_t at = 0; at < image.size(); ++at) {
      for (const int change : {0xff, 0x01}) {
        image[at] = static_cast<char>(image[at] ^ change);
        bound += IsElfBound(image);
        image[at] = static_cast<char>(image[at] ^ change);
      }
    }
    CHECK(bound > 0);
  }
}

TEST_CASE("PTX with any byte changed, or of any length, is read safely") {
  for (const char* name : {"group_written.ptx", "group_printf.ptx", "group_virtual.ptx"}) {
    std::string image = ReadImage(name);
    bool bound = false;
    for (size_t at = 0; at < image.size(); ++at) {
      for (const char other : {'"', '{', ')', '/', '\0', '\xff'}) {
        const char before = std::exchange(image[at], other);
        bound = IsPtxBound(image) || bound;
        image[at] = before;
      }
      bound = IsPtxBound(image.substr(0, at)) || bound;
    }
    CHECK(bound);
  }
}

// Changes the header of each section that `which` selects.
std::string Changed(std::string image, const std::function<bool(const images::ElfSection&)>& which,
                    const std::function<void(Elf64_Shdr&)>& change) {
  const auto sections = images::ElfSections(image);
  REQUIRE(sections.has_value());
  int changed = 0;
  std::vector<std::pair<uint64_t, Elf64_Shdr>> headers;
  for (const images::ElfSection& section : *sections) {
    if (which(section)) headers.emplace_back(section.header_offset, section.header);
  }
  for (auto& [offset, header] : headers) {
    change(header);
    std::memcpy(image.data() + offset, &header, sizeof(header));
    ++changed;
  }
  REQUIRE(changed > 0);
  return image;
}

TEST_CASE("Machine code whose tables are not understood counts as bound") {
  const std::string image = ReadImage("group_printf_sm_90.cubin");
  REQUIRE_FALSE(IsElfBound(image));
  CHECK(IsElfBound(""));
  CHECK(
      IsElfBound("\x7f"
                 "ELF"));
  const auto is_symbols = [](const images::ElfSection& section) {
    return section.header.sh_type == SHT_SYMTAB;
  };
  const auto is_relocations = [](const images::ElfSection& section) {
    return (section.header.sh_type == SHT_REL || section.header.sh_type == SHT_RELA) &&
           section.name.find(".debug") == std::string_view::npos;
  };
  CHECK(IsElfBound(
      Changed(image, is_symbols, [](Elf64_Shdr& header) { header.sh_type = SHT_PROGBITS; })));
  CHECK(IsElfBound(Changed(image, is_symbols, [](Elf64_Shdr& header) { header.sh_link = 9999; })));
  CHECK(IsElfBound(
      Changed(image, is_symbols, [&](Elf64_Shdr& header) { header.sh_offset = image.size(); })));
  CHECK(IsElfBound(
      Changed(image, is_symbols, [](Elf64_Shdr& header) { header.sh_size = UINT64_MAX; })));
  // The symbols that relocations name are missing.
  CHECK(IsElfBound(Changed(image, is_symbols, [](Elf64_Shdr& header) { header.sh_size = 24; })));
  for (const uint64_t size : {UINT64_MAX, UINT64_MAX - 100, uint64_t{1} << 40}) {
    CHECK(IsElfBound(
        Changed(image, is_relocations, [=](Elf64_Shdr& header) { header.sh_size = size; })));
  }
  CHECK(IsElfBound(
      Changed(image, is_relocations, [](Elf64_Shdr& header) { header.sh_offset = UINT64_MAX; })));
}

}  // namespace
}  // namespace detshare::cuda
