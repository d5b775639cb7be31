#include "server/backends/soft/ptx/lexer.h"

#include <bit>
#include <cstdlib>
#include <string>

namespace detshare::soft::ptx {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsWordStart(char c) { return IsAlpha(c) || c == '_' || c == '$' || c == '%'; }
bool IsWordPart(char c) { return IsAlpha(c) || IsDigit(c) || c == '_' || c == '$'; }

int DigitValue(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

}  // namespace

bool Lexer::AtLineStart() const {
  size_t i = pos_;
  while (i > 0 && (text_[i - 1] == ' ' || text_[i - 1] == '\t')) --i;
  return i == 0 || text_[i - 1] == '\n';
}

void Lexer::SkipLine() {
  while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
}

void Lexer::SkipSpace() {
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (c == '\n') {
      ++line_;
      ++pos_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
      ++pos_;
    } else if ((c == '/' && At(1) == '/') || (c == '#' && AtLineStart())) {
      // Lines such as `#line 5 "x.cu"` are left by preprocessors.
      SkipLine();
    } else if (c == '/' && At(1) == '*') {
      pos_ += 2;
      while (pos_ < text_.size() && !(text_[pos_] == '*' && At(1) == '/')) {
        if (text_[pos_] == '\n') ++line_;
        ++pos_;
      }
      pos_ = pos_ + 2 < text_.size() ? pos_ + 2 : text_.size();
    } else {
      return;
    }
  }
}

Token Lexer::Number(Token token) {
  const size_t begin = pos_;
  auto finish = [&](TokenKind kind, uint64_t value) {
    token.kind = kind;
    token.value = value;
    token.text = text_.substr(begin, pos_ - begin);
    // "0x12zz" is an error, not a number and a name.
    if (pos_ < text_.size() && IsWordPart(text_[pos_])) token.kind = TokenKind::kError;
    return token;
  };
  auto digits = [&](int base, int max_count, int* count) {
    uint64_t value = 0;
    *count = 0;
    while (*count < max_count && DigitValue(At(0)) < base) {
      value = value * base + DigitValue(At(0));
      ++pos_;
      ++*count;
    }
    return value;
  };
  int count = 0;
  if (At(0) == '0' && (At(1) == 'f' || At(1) == 'F' || At(1) == 'd' || At(1) == 'D')) {
    const bool wide = At(1) == 'd' || At(1) == 'D';
    pos_ += 2;
    const uint64_t bits = digits(16, wide ? 16 : 8, &count);
    if (count != (wide ? 16 : 8)) return finish(TokenKind::kError, 0);
    return finish(wide ? TokenKind::kFloat64 : TokenKind::kFloat32, bits);
  }
  uint64_t value = 0;
  if (At(0) == '0' && (At(1) == 'x' || At(1) == 'X')) {
    pos_ += 2;
    value = digits(16, 64, &count);
    if (count == 0) return finish(TokenKind::kError, 0);
  } else if (At(0) == '0' && (At(1) == 'b' || At(1) == 'B')) {
    pos_ += 2;
    value = digits(2, 64, &count);
    if (count == 0) return finish(TokenKind::kError, 0);
  } else {
    size_t end = pos_;
    while (end < text_.size() && IsDigit(text_[end])) ++end;
    const bool fraction =
        end < text_.size() && (text_[end] == '.' || text_[end] == 'e' || text_[end] == 'E');
    if (fraction) {
      if (text_[end] == '.') {
        ++end;
        while (end < text_.size() && IsDigit(text_[end])) ++end;
      }
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        ++end;
        if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
        while (end < text_.size() && IsDigit(text_[end])) ++end;
      }
      if (end - pos_ > 512) {
        pos_ = end;
        return finish(TokenKind::kError, 0);
      }
      const std::string copy(text_.substr(pos_, end - pos_));
      pos_ = end;
      return finish(TokenKind::kFloat64,
                    std::bit_cast<uint64_t>(std::strtod(copy.c_str(), nullptr)));
    }
    value = digits(At(0) == '0' ? 8 : 10, 64, &count);
  }
  if (At(0) == 'U') ++pos_;
  return finish(TokenKind::kInteger, value);
}

Token Lexer::Word(Token token) {
  const size_t begin = pos_;
  const bool directive = text_[pos_] == '.';
  ++pos_;
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (IsWordPart(c)) {
      ++pos_;
    } else if (c == '.' && !directive && (IsAlpha(At(1)) || IsDigit(At(1)) || At(1) == '_')) {
      ++pos_;
    } else if (c == ':' && At(1) == ':' && IsWordPart(At(2))) {
      pos_ += 2;
    } else {
      break;
    }
  }
  token.kind = directive ? TokenKind::kDirective : TokenKind::kWord;
  token.text = text_.substr(begin, pos_ - begin);
  if (directive && token.text.size() == 1) token.kind = TokenKind::kError;
  return token;
}

Token Lexer::Next() {
  SkipSpace();
  Token token;
  token.line = line_;
  if (pos_ >= text_.size() || text_[pos_] == '\0') {
    pos_ = text_.size();
    return token;
  }
  const char c = text_[pos_];
  if (IsDigit(c)) return Number(token);
  if (IsWordStart(c) || (c == '.' && (IsAlpha(At(1)) || At(1) == '_'))) return Word(token);
  if (c == '"') {
    const size_t begin = ++pos_;
    while (pos_ < text_.size() && text_[pos_] != '"' && text_[pos_] != '\n') {
      pos_ += text_[pos_] == '\\' && pos_ + 1 < text_.size() && text_[pos_ + 1] != '\n' ? 2 : 1;
    }
    if (pos_ > text_.size()) pos_ = text_.size();
    token.text = text_.substr(begin, pos_ - begin);
    token.kind = At(0) == '"' ? TokenKind::kString : TokenKind::kError;
    if (pos_ < text_.size() && text_[pos_] == '"') ++pos_;
    return token;
  }
  token.kind = TokenKind::kPunct;
  token.punct = c;
  token.text = text_.substr(pos_, 1);
  ++pos_;
  return token;
}

}  // namespace detshare::soft::ptx
