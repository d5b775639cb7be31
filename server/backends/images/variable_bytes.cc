#include "server/backends/images/variable_bytes.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "server/backends/images/device_code.h"
#include "server/backends/images/elf_view.h"
#include "server/backends/images/ptx_tokens.h"

namespace detshare::images {
namespace {

uint64_t Sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
uint64_t Product(uint64_t a, uint64_t b) {
  return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

// Accepts ".nv.global", ".nv.global.init" and ".nv.constant3". Rejects ".nv.constant0.<kernel>",
// which holds a kernel's parameters.
bool HoldsVariables(std::string_view section) {
  return section == ".nv.global" || section == ".nv.global.init" || section == ".nv.constant3";
}

// None: the file is not understood.
std::optional<uint64_t> OfElf(std::string_view elf) {
  const std::optional<std::vector<ElfSection>> sections = ElfSections(elf);
  if (!sections.has_value()) return std::nullopt;
  uint64_t bytes = 0;
  for (const ElfSection& section : *sections) {
    if (HoldsVariables(section.name)) bytes = Sum(bytes, section.header.sh_size);
  }
  return bytes;
}

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kEndOfWord = " \t\r\n;=[{(,)}]";

// Takes the next word of a declaration from the front of *text.
std::string_view NextWord(std::string_view* text) {
  text->remove_prefix(std::min(text->find_first_not_of(kBlanks), text->size()));
  const size_t end = std::max<size_t>(std::min(text->find_first_of(kEndOfWord), text->size()), 1);
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(word.size());
  return word;
}

// Returns 1 for ".b8", 8 for ".f64", 16 for ".b128", and 0 for a word that is not a type.
uint64_t BytesOfType(std::string_view word) {
  if (word.size() < 3 || word[0] != '.' || std::string_view("busf").find(word[1]) == word.npos)
    return 0;
  unsigned bits = 0;
  const auto parsed = std::from_chars(word.data() + 2, word.data() + word.size(), bits);
  return parsed.ptr == word.data() + word.size() && bits % 8 == 0 && bits <= 128 ? bits / 8 : 0;
}

// Returns the bytes of a declaration. `rest` follows ".global" or ".const":
//   .align 16 .b8 table[1024];      .v4 .f32 corner = {...};     .attribute(.managed) .u32 counter;
uint64_t OfDeclaration(std::string_view rest) {
  rest = rest.substr(0, rest.find_first_of(";={"));
  uint64_t type = 0, vector = 1;
  while (type == 0 && !rest.empty()) {
    const std::string_view word = NextWord(&rest);
    if (word == ".managed" || word == ".extern") return 0;
    if (word == ".v2") vector = 2;
    if (word == ".v4") vector = 4;
    type = BytesOfType(word);
  }
  if (type == 0) return 0;
  uint64_t elements = 1;
  for (size_t open = rest.find('['); open != rest.npos; open = rest.find('[', open + 1)) {
    const size_t first = std::min(rest.find_first_not_of(kBlanks, open + 1), rest.size());
    uint64_t count = 0;
    // A dimension without a number follows from the initial value, which is text of that length.
    if (std::from_chars(rest.data() + first, rest.data() + rest.size(), count).ec == std::errc())
      elements = Product(elements, count);
  }
  return Product(Product(type, vector), elements);
}

uint64_t OfPtx(std::string_view text) {
  uint64_t bytes = 0;
  for (const std::string_view space : {std::string_view(".global"), std::string_view(".const")}) {
    for (size_t at = text.find(space); at != text.npos; at = text.find(space, at + 1)) {
      // Skips the end of "ld.global" and the beginning of ".global.u32".
      const bool begins = at == 0 || kBlanks.find(text[at - 1]) != kBlanks.npos;
      const size_t end = at + space.size();
      if (begins && end < text.size() && kBlanks.find(text[end]) != kBlanks.npos)
        bytes = Sum(bytes, OfDeclaration(text.substr(end)));
    }
  }
  return bytes;
}

// Whether the text declares no variable. False for text that is not whole. Within parentheses the
// words tell where a parameter points.
bool DeclaresNothing(std::string_view text) {
  PtxTokens tokens(text);
  int parentheses = 0;
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) {
    if (token == "(") ++parentheses;
    if (token == ")") --parentheses;
    if (parentheses == 0 && (token == ".global" || token == ".const")) return false;
  }
  return !tokens.torn() && parentheses == 0;
}

}  // namespace

uint64_t VariableBytes(std::span<const std::byte> image, int device_sm) {
  uint64_t bytes = 0;
  ForEachDeviceCode(image, device_sm, [&](const DeviceCode& code) {
    const uint64_t one =
        code.kind == EntryKind::kElf ? OfElf(code.bytes).value_or(0) : OfPtx(code.bytes);
    // The device runs one of its codes.
    bytes = std::max(bytes, one);
  });
  return bytes;
}

bool HasNoVariables(std::span<const std::byte> image, int device_sm) {
  bool none = true;
  const bool read = ForEachDeviceCode(image, device_sm, [&](const DeviceCode& code) {
    none = none &&
           (code.kind == EntryKind::kElf ? OfElf(code.bytes) == 0 : DeclaresNothing(code.bytes));
  });
  return read && none;
}

}  // namespace detshare::images
