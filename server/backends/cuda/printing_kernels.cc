#include "server/backends/cuda/printing_kernels.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
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

// The function that device printf() calls.
constexpr std::string_view kPrintFunction = "vprintf";

// Returns `reached` and all functions from which they are called, by edges from callee to caller.
template <typename Name>
std::set<Name> CallersOf(std::set<Name> reached, const std::multimap<Name, Name>& callers) {
  std::vector<Name> open(reached.begin(), reached.end());
  while (!open.empty()) {
    const Name callee = open.back();
    open.pop_back();
    const auto [begin, end] = callers.equal_range(callee);
    for (auto edge = begin; edge != end; ++edge) {
      if (reached.insert(edge->second).second) open.push_back(edge->second);
    }
  }
  return reached;
}

}  // namespace

// The section .nv.callgraph holds pairs of symbol numbers: caller and callee. A pair whose first
// number is 0 begins a group: -1 direct calls, -2 prototypes, -3 functions that call through
// pointers, -4 functions whose address is taken.
PrintingKernels FindPrintingKernelsInElf(std::string_view elf) {
  if (elf.find(kPrintFunction) == std::string_view::npos) return PrintingKernels::None();
  const std::optional<std::vector<ElfSection>> sections = images::ElfSections(elf);
  if (!sections) return PrintingKernels::All();
  const auto graph =
      std::find_if(sections->begin(), sections->end(),
                   [](const ElfSection& section) { return section.name == ".nv.callgraph"; });
  const std::optional<ElfSymbols> symbols = ElfSymbols::Of(elf, *sections);
  if (graph == sections->end() || !symbols) return PrintingKernels::All();
  const auto pairs = Slice(elf, graph->header.sh_offset, graph->header.sh_size);
  if (!pairs) return PrintingKernels::All();

  std::multimap<uint32_t, uint32_t> callers;
  std::set<uint32_t> printing;
  std::set<uint32_t> indirect;
  int32_t group = 0;
  for (uint64_t at = 0; at + 8 <= pairs->size(); at += 8) {
    const uint32_t caller = *ReadRecord<uint32_t>(*pairs, at),
                   callee = *ReadRecord<uint32_t>(*pairs, at + 4);
    if (caller == 0) {
      group = static_cast<int32_t>(callee);
    } else if (group == -1 || group == -4) {
      const std::optional<ElfSymbols::Symbol> symbol = symbols->At(callee);
      if (!symbol) return PrintingKernels::All();
      if (symbol->name == kPrintFunction) printing.insert(callee);
      callers.emplace(callee, caller);
    } else if (group == -3) {
      indirect.insert(caller);
    }
  }
  // A call through a pointer may reach a function that prints.
  printing.insert(indirect.begin(), indirect.end());
  std::set<std::string, std::less<>> result;
  for (const uint32_t number : CallersOf(std::move(printing), callers)) {
    const std::optional<ElfSymbols::Symbol> symbol = symbols->At(number);
    if (!symbol) return PrintingKernels::All();
    result.emplace(symbol->name);
  }
  return PrintingKernels::These(std::move(result));
}

// Splits the text into functions at the words `.entry` and `.func`. A function mentions the
// functions that it calls by name.
PrintingKernels FindPrintingKernelsInPtx(std::string_view ptx) {
  if (ptx.find(kPrintFunction) == std::string_view::npos) return PrintingKernels::None();
  struct Function {
    bool kernel = false;
    std::set<std::string_view> words;
    bool indirect = false;
  };
  std::map<std::string_view, Function> functions;
  Function* current = nullptr;  // the function whose body this is
  std::string_view pending;     // declared; its body may follow
  bool pending_kernel = false;
  bool wants_name = false;
  bool call = false;  // in a call, before its target
  int braces = 0, parentheses = 0;
  PtxTokens tokens(ptx);
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) {
    const char c = token.front();
    if (PtxTokens::IsWord(token)) {
      if (braces == 0 && (token == ".entry" || token == ".func")) {
        wants_name = true;
        pending_kernel = token == ".entry";
        pending = {};
      } else if (wants_name && parentheses == 0 && c != '.') {
        pending = token;
        wants_name = false;
      } else if (current != nullptr) {
        if (token == "call" || token.substr(0, 5) == "call.") {
          call = true;
        } else if (call && parentheses == 0 && c != '.') {
          current->indirect |= c == '%';
          call = false;
        }
        current->words.insert(token);
      }
      continue;
    }
    if (c == '(') ++parentheses;
    if (c == ')') --parentheses;
    if (c == '{' && braces++ == 0 && !pending.empty()) {
      current = &functions[pending];
      current->kernel = pending_kernel;
    }
    if (c == '}' && --braces == 0) {
      current = nullptr;
      pending = {};
    }
    if (c == ';') {
      call = false;
      if (braces == 0) pending = {};  // was only a declaration
    }
    if (braces < 0 || parentheses < 0) return PrintingKernels::All();
  }
  if (tokens.torn()) return PrintingKernels::All();

  std::multimap<std::string_view, std::string_view> callers;
  std::set<std::string_view> printing = {kPrintFunction};
  for (const auto& [name, function] : functions) {
    if (function.words.contains(kPrintFunction)) callers.emplace(kPrintFunction, name);
    for (const std::string_view word : function.words) {
      if (word != name && functions.contains(word)) callers.emplace(word, name);
    }
    // A call through a pointer may reach a function that prints.
    if (function.indirect) printing.insert(name);
  }
  std::set<std::string, std::less<>> result;
  for (const std::string_view name : CallersOf(std::move(printing), callers)) {
    const auto function = functions.find(name);
    if (function != functions.end() && function->second.kernel) result.emplace(name);
  }
  return PrintingKernels::These(std::move(result));
}

void PrintingScan::Add(const images::DeviceCode& code) {
  PrintingKernels found = code.kind == images::EntryKind::kElf
                              ? FindPrintingKernelsInElf(code.bytes)
                              : FindPrintingKernelsInPtx(code.bytes);
  if (found.empty()) return;
  // If two images can print, the driver's choice between them is unknown.
  found_ = found_.has_value() ? PrintingKernels::All() : std::move(found);
}

PrintingKernels FindPrintingKernels(std::span<const std::byte> image, int device_sm) {
  PrintingScan scan;
  const bool read = images::ForEachDeviceCode(
      image, device_sm, [&](const images::DeviceCode& code) { scan.Add(code); });
  return read ? scan.kernels() : PrintingKernels::All();
}

}  // namespace detshare::cuda
