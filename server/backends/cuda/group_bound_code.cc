#include "server/backends/cuda/group_bound_code.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "server/backends/images/elf_view.h"
#include "server/backends/images/ptx_tokens.h"

namespace detshare::cuda {
namespace {

using images::ElfSection;
using images::ElfSymbols;
using images::PtxTokens;
using images::ReadRecord;
using images::Slice;

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// The compilers name format strings and names of functions like this, and tables of virtual
// functions (Itanium C++ ABI). Nothing writes them.
bool IsReadOnly(std::string_view variable) {
  constexpr std::array<std::string_view, 4> kPrefixes = {"$str", "__unnamed_", "_ZTV", ".str"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return StartsWith(variable, prefix); });
}

// Functions of the device's heap, and those by which kernels launch kernels.
bool UsesGroupMemory(std::string_view function) {
  return function == "malloc" || function == "free" || StartsWith(function, "cudaLaunchDevice") ||
         StartsWith(function, "cudaGetParameterBuffer") || StartsWith(function, "__cudaCDP2");
}

// Calls `visit` with the symbol number of each relocation. Returns false if a table is not whole.
template <typename Entry, typename Visit>
bool ForEachRelocation(std::string_view elf, const Elf64_Shdr& header, const Visit& visit) {
  const auto table = Slice(elf, header.sh_offset, header.sh_size);
  if (!table) return false;
  for (uint64_t at = 0; at + sizeof(Entry) <= table->size(); at += sizeof(Entry))
    visit(ELF64_R_SYM(ReadRecord<Entry>(*table, at)->r_info));
  return true;
}

bool IsElfBound(std::string_view elf) {
  const std::optional<std::vector<ElfSection>> sections = images::ElfSections(elf);
  if (!sections) return true;
  const std::optional<ElfSymbols> symbols = ElfSymbols::Of(elf, *sections);
  if (!symbols) return true;
  bool bound = false;
  const auto look = [&](uint64_t number) {
    const std::optional<ElfSymbols::Symbol> symbol = symbols->At(number);
    if (!symbol) {
      bound = true;
      return;
    }
    const uint16_t section = symbol->entry.st_shndx;
    if (section < sections->size() && StartsWith((*sections)[section].name, ".nv.global")) {
      bound = bound || !IsReadOnly(symbol->name);
    } else {
      bound = bound || UsesGroupMemory(symbol->name);
    }
  };
  for (const ElfSection& section : *sections) {
    const uint32_t type = section.header.sh_type;
    if (section.name.find(".debug") != std::string_view::npos) continue;
    const bool whole = type == SHT_RELA  ? ForEachRelocation<Elf64_Rela>(elf, section.header, look)
                       : type == SHT_REL ? ForEachRelocation<Elf64_Rel>(elf, section.header, look)
                                         : true;
    if (!whole || bound) return true;
  }
  return false;
}

// A declaration `.global ... name` outside of functions declares a variable. Instructions contain
// the word only as a part, as in `ld.global.u32`, and parameters that point to global memory are
// declared within parentheses.
bool IsPtxBound(std::string_view ptx) {
  int braces = 0, parentheses = 0;
  bool variable = false;  // in a declaration of a variable, before its name ends
  std::string_view name;  // the last word of that declaration
  const auto end_of_declaration = [&] {
    const bool bound = variable && !IsReadOnly(name);
    variable = false;
    name = {};
    return bound;
  };
  PtxTokens tokens(ptx);
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) {
    if (PtxTokens::IsWord(token)) {
      if (UsesGroupMemory(token)) return true;
      if (braces == 0 && parentheses == 0 && token == ".global") {
        variable = true;
      } else if (variable) {
        name = token;
      }
      continue;
    }
    const char c = token.front();
    if ((c == '[' || c == '=' || c == ';') && end_of_declaration()) return true;
    if (c == '{') ++braces;
    if (c == '}' && --braces < 0) return true;
    if (c == '(') ++parentheses;
    if (c == ')' && --parentheses < 0) return true;
  }
  return tokens.torn() || end_of_declaration() || braces != 0 || parentheses != 0;
}

}  // namespace

bool IsBoundToGroup(const images::DeviceCode& code) {
  return code.kind == images::EntryKind::kElf ? IsElfBound(code.bytes) : IsPtxBound(code.bytes);
}

}  // namespace detshare::cuda
