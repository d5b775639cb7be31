#include "server/backends/soft/ptx/parser.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "server/backends/soft/ptx/parser_steps.h"

namespace detshare::soft::ptx {

absl::Status PtxError(uint32_t line, const std::string& message) {
  return absl::InvalidArgumentError("PTX line " + std::to_string(line) + ": " + message);
}

absl::StatusOr<ModuleAst> ParsePtx(std::string_view text) {
  if (text.size() > ParseLimits::kTextBytes)
    return absl::InvalidArgumentError("PTX text too large");
  return Parser(text).Run();
}

std::string Quote(std::string_view text) {
  std::string out = "'";
  for (char c : text.substr(0, 80)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out + "'";
}

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "end of text";
    case TokenKind::kError:
      return "malformed token " + Quote(token.text);
    default:
      return Quote(token.text);
  }
}

absl::StatusOr<ModuleAst> Parser::Run() {
  while (ok() && token_.kind != TokenKind::kEnd) ParseTopLevel();
  if (!ok()) return status_;
  return std::move(module_);
}

// --- tokens ---

void Parser::Fail(uint32_t line, const std::string& message) {
  if (ok()) status_ = PtxError(line, message);
  token_ = Token{};
}

void Parser::Unexpected(const char* wanted) {
  Fail(token_.line, std::string("expected ") + wanted + ", found " + Describe(token_));
}

void Parser::Advance() {
  last_line_ = token_.line;
  token_ = ok() ? lexer_.Next() : Token{};
}

void Parser::Expect(char c) {
  if (!Accept(c)) Unexpected(Quote(std::string_view(&c, 1)).c_str());
}

std::string_view Parser::ExpectName() {
  if (token_.kind != TokenKind::kWord) {
    Unexpected("a name");
    return {};
  }
  const std::string_view name = token_.text;
  Advance();
  return name;
}

int64_t Parser::ExpectInteger() {
  const bool negative = Accept('-');
  if (token_.kind != TokenKind::kInteger) {
    Unexpected("an integer");
    return 0;
  }
  const int64_t value = static_cast<int64_t>(token_.value);
  Advance();
  return negative ? static_cast<int64_t>(-static_cast<uint64_t>(value)) : value;
}

uint32_t Parser::ExpectU32() {
  const uint32_t line = token_.line;
  const int64_t value = ExpectInteger();
  if (value < 0 || value > 0xffffffffll) Fail(line, "number out of range");
  return static_cast<uint32_t>(value);
}

Type Parser::ExpectType() {
  if (token_.kind != TokenKind::kDirective) {
    Unexpected("a type");
    return Type::kNone;
  }
  const Type type = TypeFromName(token_.text.substr(1));
  if (type == Type::kNone) Fail(token_.line, "unknown directive " + Describe(token_));
  Advance();
  return type;
}

// --- module level ---

void Parser::ParseTopLevel() {
  if (token_.Is('@')) {  // @@DWARF
    lexer_.SkipLine();
    Advance();
    return;
  }
  if (Accept(';')) return;
  if (token_.kind != TokenKind::kDirective) return Unexpected("a directive");
  const std::string_view d = token_.text;
  const uint32_t line = token_.line;
  if (d == ".version") {
    Advance();
    // "9.0" reads as a decimal fraction.
    const std::string text(token_.text);
    const size_t dot = text.find('.');
    if (token_.kind != TokenKind::kFloat64 || dot == std::string::npos || text.size() > 8) {
      return Unexpected("a version");
    }
    module_.version =
        static_cast<uint32_t>(std::atoi(text.c_str()) * 10 + std::atoi(text.c_str() + dot + 1));
    Advance();
  } else if (d == ".target") {
    Advance();
    do {
      const std::string_view name = ExpectName();
      if (name.substr(0, 3) == "sm_") {
        uint32_t number = 0;
        for (char c : name.substr(3)) {
          if (c >= '0' && c <= '9' && number < 100000) number = number * 10 + (c - '0');
        }
        module_.target = number;
      }
    } while (ok() && Accept(','));
  } else if (d == ".address_size") {
    Advance();
    const int64_t bits = ExpectInteger();
    if (ok() && bits != 64) Fail(line, "only .address_size 64 is supported");
  } else if (d == ".file") {
    ParseFile();
  } else if (d == ".section") {
    ParseSection();
  } else if (d == ".pragma") {
    ParsePragma();
  } else if (d == ".loc") {
    ParseLoc();
  } else if (d == ".alias") {
    Advance();
    const std::string_view alias = ExpectName();
    Expect(',');
    const std::string_view target = ExpectName();
    Expect(';');
    if (module_.aliases.size() >= ParseLimits::kFunctionsPerModule)
      return Fail(line, "too many aliases");
    module_.aliases.emplace_back(alias, target);
  } else {
    ParseDeclaration();
  }
}

void Parser::ParseFile() {
  Advance();
  ExpectInteger();
  if (token_.kind != TokenKind::kString) return Unexpected("a string");
  Advance();
  while (ok() && Accept(',')) ExpectInteger();
}

void Parser::ParsePragma() {
  Advance();
  do {
    if (token_.kind != TokenKind::kString) return Unexpected("a string");
    Advance();
  } while (ok() && Accept(','));
  Expect(';');
}

void Parser::ParseSection() {
  Advance();
  while (ok() && !token_.Is('{')) {
    if (token_.kind == TokenKind::kEnd) return Unexpected("'{'");
    Advance();
  }
  Advance();
  while (ok() && !token_.Is('}')) {
    if (token_.kind == TokenKind::kEnd) return Unexpected("'}'");
    Advance();
  }
  Expect('}');
}

void Parser::ParseLoc() {
  Advance();
  ExpectInteger();
  ExpectInteger();
  ExpectInteger();
  while (ok() && Accept(',')) {
    const std::string_view what = ExpectName();
    if (what == "function_name") {
      ExpectName();
      if (Accept('+')) ExpectInteger();
    } else if (what == "inlined_at") {
      ExpectInteger();
      ExpectInteger();
      ExpectInteger();
    } else if (ok()) {
      Fail(last_line_, "unknown .loc attribute " + Quote(what));
    }
  }
}

void Parser::ParseDeclaration() {
  Linkage linkage;
  for (;;) {
    if (AcceptDirective(".extern")) {
      linkage.is_extern = true;
    } else if (AcceptDirective(".visible")) {
      linkage.visible = true;
    } else if (AcceptDirective(".weak")) {
      linkage.weak = linkage.visible = true;
    } else if (AcceptDirective(".common")) {
      linkage.weak = linkage.visible = true;
    } else {
      break;
    }
  }
  if (AcceptDirective(".entry")) return ParseFunction(true, linkage);
  if (AcceptDirective(".func")) return ParseFunction(false, linkage);
  if (token_.IsDirective(".global") || token_.IsDirective(".const") ||
      token_.IsDirective(".shared")) {
    std::vector<Variable> list;
    ParseVariables(linkage, &list);
    Expect(';');
    for (Variable& v : list) module_.variables.push_back(std::move(v));
    return;
  }
  if (token_.kind == TokenKind::kDirective)
    return Fail(token_.line, "unknown directive " + Describe(token_));
  Unexpected("a declaration");
}

}  // namespace detshare::soft::ptx
