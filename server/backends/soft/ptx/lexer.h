// Splits PTX text into tokens. It never fails: text that it cannot read becomes a kError token.
#pragma once

#include <cstdint>
#include <string_view>

namespace detshare::soft::ptx {

enum class TokenKind : uint8_t {
  kEnd,
  kWord,  // name, opcode with its dotted modifiers, or register with component: "ld.global.f32",
          // "%tid.x"
  kDirective,  // from a dot to the next dot, for example ".reg", ".b32"
  kInteger,
  kFloat32,  // 0f and eight hexadecimal digits; value holds the bits
  kFloat64,  // 0d and sixteen digits, or a decimal fraction; value holds the bits
  kString,   // text without the quotes
  kPunct,    // one character
  kError,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  char punct = 0;
  uint32_t line = 0;
  uint64_t value = 0;
  std::string_view text;  // into the source

  bool Is(char c) const { return kind == TokenKind::kPunct && punct == c; }
  bool IsDirective(std::string_view name) const {
    return kind == TokenKind::kDirective && text == name;
  }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token Next();
  // The character behind the last token; 0 at the end of the text.
  char following() const { return At(0); }
  // Skips the rest of the current line.
  bool AtLineStart() const;  // behind blanks
  void SkipLine();

 private:
  char At(size_t offset) const {
    return pos_ + offset < text_.size() ? text_[pos_ + offset] : '\0';
  }
  void SkipSpace();
  Token Number(Token token);
  Token Word(Token token);

  std::string_view text_;
  size_t pos_ = 0;
  uint32_t line_ = 1;
};

}  // namespace detshare::soft::ptx
