// Declarations of variables and their initialisers.
#include <algorithm>
#include <bit>

#include "server/backends/soft/ptx/parser_steps.h"

namespace detshare::soft::ptx {
namespace {

bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

// The bits of a numeric literal as a value of `type`.
uint64_t LiteralBits(const Token& token, bool negative, Type type) {
  if (token.kind == TokenKind::kInteger) {
    const uint64_t value = negative ? -token.value : token.value;
    if (type == Type::kF32)
      return std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(value)));
    if (type == Type::kF64)
      return std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(value)));
    return value;
  }
  if (token.kind == TokenKind::kFloat32) {
    const uint32_t bits = static_cast<uint32_t>(token.value) ^ (negative ? 0x80000000u : 0);
    if (type == Type::kF64)
      return std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(bits)));
    return bits;
  }
  const uint64_t bits = token.value ^ (negative ? uint64_t{1} << 63 : 0);
  if (type == Type::kF32)
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
  return bits;
}

}  // namespace

void Parser::ParseVariables(Linkage linkage, std::vector<Variable>* out) {
  Variable proto;
  proto.is_extern = linkage.is_extern;
  proto.visible = linkage.visible || linkage.is_extern;
  proto.weak = linkage.weak;
  proto.line = token_.line;
  const std::string_view space = token_.text;
  if (space == ".global") {
    proto.space = Space::kGlobal;
  } else if (space == ".const") {
    proto.space = Space::kConst;
  } else if (space == ".shared") {
    proto.space = Space::kShared;
  } else if (space == ".local") {
    proto.space = Space::kLocal;
  } else if (space == ".param") {
    proto.space = Space::kParam;
  } else {
    return Fail(token_.line, "unknown directive " + Describe(token_));
  }
  Advance();
  const VariableType type = ParseVariableType();
  if (!ok()) return;
  proto.type = type.type;
  proto.managed = type.managed;
  do {
    ParseVariable(proto, type, out);
  } while (ok() && Accept(','));
}

uint32_t Parser::ParseAlignment() {
  const uint32_t align = ExpectU32();
  if (ok() && (!IsPowerOfTwo(align) || align > 4096)) Fail(last_line_, "bad alignment");
  return ok() ? align : 0;
}

// As in: .param .u64 .ptr .global .align 4 name
void Parser::SkipPointerAttributes() {
  if (token_.IsDirective(".global") || token_.IsDirective(".const") ||
      token_.IsDirective(".local") || token_.IsDirective(".shared")) {
    Advance();
  }
  if (AcceptDirective(".align")) ExpectU32();
}

Parser::VariableType Parser::ParseVariableType() {
  VariableType result;
  while (ok() && token_.kind == TokenKind::kDirective) {
    const std::string_view d = token_.text;
    if (AcceptDirective(".align")) {
      result.align = ParseAlignment();
    } else if (AcceptDirective(".attribute")) {
      Expect('(');
      while (ok() && !token_.Is(')')) {
        if (token_.IsDirective(".managed")) result.managed = true;
        if (token_.kind == TokenKind::kEnd) {
          Unexpected("')'");
          return result;
        }
        Advance();
      }
      Expect(')');
    } else if (d == ".v2" || d == ".v4" || d == ".v8") {
      result.vector = static_cast<uint32_t>(d[2] - '0');
      Advance();
    } else if (AcceptDirective(".ptr")) {
      SkipPointerAttributes();
    } else if (d == ".texref" || d == ".samplerref" || d == ".surfref") {
      Fail(token_.line, "texture references are not supported: " + Describe(token_));
    } else {
      const Type type = TypeFromName(d.substr(1));
      if (type == Type::kNone || result.type != Type::kNone) {
        Fail(token_.line, "unknown directive " + Describe(token_));
        return result;
      }
      result.type = type;
      Advance();
    }
  }
  if (result.type == Type::kNone) {
    Unexpected("a type");
  } else if (result.element_bytes() == 0) {
    Fail(last_line_, "a variable cannot have this type");
  }
  return result;
}

void Parser::CountVariable(uint32_t line) {
  if (++variable_count_ > ParseLimits::kVariablesPerModule)
    Fail(line, "too many variables and parameters");
}

void Parser::ParseVariable(const Variable& proto, const VariableType& type,
                           std::vector<Variable>* out) {
  CountVariable(token_.line);
  Variable v = proto;
  v.line = token_.line;
  v.name = ExpectName();
  uint64_t count = 1;
  while (ok() && Accept('[')) {
    if (Accept(']')) {
      v.unsized = true;
      continue;
    }
    const int64_t n = ExpectInteger();
    Expect(']');
    if (!ok()) return;
    if (n < 0 || (n != 0 && count > ParseLimits::kGlobalBytes / static_cast<uint64_t>(n))) {
      return Fail(v.line, "array too large");
    }
    count *= static_cast<uint64_t>(n);
  }
  v.align = type.alignment();
  v.size = v.unsized ? 0 : count * type.element_bytes();
  if (Accept('=')) ParseInitializer(&v, SizeOf(v.type));
  if (!ok()) return;
  const uint64_t limit = v.space == Space::kShared  ? ParseLimits::kSharedBytes
                         : v.space == Space::kLocal ? ParseLimits::kLocalBytes
                         : v.space == Space::kParam ? ParseLimits::kParamBytes
                                                    : ParseLimits::kGlobalBytes;
  if (v.size > limit) return Fail(v.line, "variable " + Quote(v.name) + " is too large");
  out->push_back(std::move(v));
}

void Parser::ParseInitializer(Variable* v, uint32_t element) {
  uint32_t depth = 0;
  uint64_t count = 0;
  const uint64_t limit = v->unsized ? (uint64_t{1} << 28) : v->size / element;
  v->has_initializer = true;
  // Nested braces flatten: rows must be complete, as compilers write them.
  do {
    while (ok() && Accept('{')) {
      if (++depth > 8) return Fail(token_.line, "initialiser nested too deeply");
    }
    if (!ok()) return;
    if (!token_.Is('}')) {
      if (count++ >= limit) return Fail(token_.line, "too many initialisers");
      ParseInitializerValue(v);
    }
    while (ok() && depth > 0 && Accept('}')) --depth;
  } while (ok() && depth > 0 && Accept(','));
  if (ok() && depth != 0) return Unexpected("'}'");
  if (v->unsized) {
    v->size = v->image.size();
    v->unsized = false;
  }
}

void Parser::ParseInitializerValue(Variable* v) {
  const uint32_t element = SizeOf(v->type);
  const uint64_t offset = v->image.size();
  const bool negative = Accept('-');
  uint64_t bits = 0;
  if (token_.kind == TokenKind::kInteger) {
    const uint64_t value = token_.value;
    bits = LiteralBits(token_, negative, v->type);
    Advance();
    if (Accept('(')) {  // 0xFF00(symbol)
      if (value == 0) return Fail(last_line_, "bad mask");
      bits = 0;
      ParseInitializerSymbol(v, offset, static_cast<uint8_t>(std::countr_zero(value) & ~7));
      Expect(')');
    }
  } else if (token_.kind == TokenKind::kFloat32 || token_.kind == TokenKind::kFloat64) {
    bits = LiteralBits(token_, negative, v->type);
    Advance();
  } else {
    ParseInitializerSymbol(v, offset, 0);
  }
  if (!ok()) return;
  for (uint32_t i = 0; i < element; ++i)
    v->image.push_back(i < 8 ? static_cast<uint8_t>(bits >> (8 * i)) : 0);
}

void Parser::ParseInitializerSymbol(Variable* v, uint64_t offset, uint8_t shift) {
  Relocation r;
  r.offset = offset;
  r.shift = shift;
  r.line = token_.line;
  r.size = static_cast<uint8_t>(std::min<uint32_t>(SizeOf(v->type), 8));
  r.symbol = ExpectName();
  if (r.symbol == "generic" && Accept('(')) {
    r.symbol = ExpectName();
    if (Accept('+')) r.addend += ExpectInteger();
    Expect(')');
  }
  if (Accept('+')) r.addend += ExpectInteger();
  if (token_.Is('-')) r.addend += ExpectInteger();
  v->relocations.push_back(r);
}

void Parser::ParseFormal(std::vector<Variable>* out) {
  CountVariable(token_.line);
  Advance();
  VariableType type;
  while (ok() && token_.kind == TokenKind::kDirective) {
    const std::string_view d = token_.text;
    if (AcceptDirective(".align")) {
      type.align = ParseAlignment();
    } else if (AcceptDirective(".ptr")) {
      SkipPointerAttributes();
    } else if (d == ".v2" || d == ".v4") {
      type.vector = static_cast<uint32_t>(d[2] - '0');
      Advance();
    } else {
      type.type = TypeFromName(d.substr(1));
      if (SizeOf(type.type) == 0) return Fail(token_.line, "unknown directive " + Describe(token_));
      Advance();
    }
  }
  if (!ok()) return;
  if (type.type == Type::kNone) return Unexpected("a type");
  Variable formal;
  formal.space = Space::kParam;
  formal.type = type.type;
  formal.line = token_.line;
  formal.name = ExpectName();
  uint64_t count = 1;
  if (Accept('[')) {
    if (token_.Is(']')) return Fail(token_.line, "variadic parameters are not supported");
    count = static_cast<uint64_t>(ExpectInteger());
    Expect(']');
  }
  const uint64_t element = type.element_bytes();
  if (count > ParseLimits::kParamBytes || count * element > ParseLimits::kParamBytes) {
    return Fail(formal.line, "parameter " + Quote(formal.name) + " is too large");
  }
  formal.size = count * element;
  formal.align = type.alignment();
  out->push_back(formal);
}

}  // namespace detshare::soft::ptx
