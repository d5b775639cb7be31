#include "server/backends/soft/ptx/parser.h"

#include <algorithm>
#include <bit>
#include <string>

#include "server/backends/soft/ptx/lexer.h"

namespace detshare::soft::ptx {

absl::Status PtxError(uint32_t line, const std::string& message) {
  return absl::InvalidArgumentError("PTX line " + std::to_string(line) + ": " + message);
}

namespace {

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

bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

// Recursive descent with one token of look-ahead. The first error is kept in status_ and turns
// every later step into a no-op that meets the end of the text, so that no step has to be checked
// for progress.
class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { Advance(); }

  absl::StatusOr<ModuleAst> Run() {
    while (ok() && token_.kind != TokenKind::kEnd) ParseTopLevel();
    if (!ok()) return status_;
    return std::move(module_);
  }

 private:
  struct Linkage {
    bool is_extern = false, visible = false, weak = false;
  };
  struct RegisterRange {
    Type type;
    uint8_t vector;
    uint32_t count;
  };
  struct LocalName {
    enum class Kind { kRegister, kVariable } kind;
    int32_t index;
  };
  struct Scope {
    uint32_t id;
    std::unordered_map<std::string_view, LocalName> names;
    std::unordered_map<std::string_view, RegisterRange> ranges;
    uint32_t param_top =
        0;  // of the frame's parameter area: variables of sibling scopes share places
  };

  bool ok() const { return status_.ok(); }

  void Fail(uint32_t line, const std::string& message) {
    if (ok()) status_ = PtxError(line, message);
    token_ = Token{};
  }
  void Unexpected(const char* wanted) {
    Fail(token_.line, std::string("expected ") + wanted + ", found " + Describe(token_));
  }

  void Advance() {
    last_line_ = token_.line;
    token_ = ok() ? lexer_.Next() : Token{};
  }
  bool Accept(char c) {
    if (!token_.Is(c)) return false;
    Advance();
    return true;
  }
  void Expect(char c) {
    if (!Accept(c)) Unexpected(Quote(std::string_view(&c, 1)).c_str());
  }
  bool AcceptDirective(std::string_view name) {
    if (!token_.IsDirective(name)) return false;
    Advance();
    return true;
  }
  std::string_view ExpectName() {
    if (token_.kind != TokenKind::kWord) {
      Unexpected("a name");
      return {};
    }
    const std::string_view name = token_.text;
    Advance();
    return name;
  }
  int64_t ExpectInteger() {
    const bool negative = Accept('-');
    if (token_.kind != TokenKind::kInteger) {
      Unexpected("an integer");
      return 0;
    }
    const int64_t value = static_cast<int64_t>(token_.value);
    Advance();
    return negative ? static_cast<int64_t>(-static_cast<uint64_t>(value)) : value;
  }
  uint32_t ExpectU32() {
    const uint32_t line = token_.line;
    const int64_t value = ExpectInteger();
    if (value < 0 || value > 0xffffffffll) Fail(line, "number out of range");
    return static_cast<uint32_t>(value);
  }

  // --- module level ---

  void ParseTopLevel() {
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
      module_.aliases.emplace_back(alias, target);
    } else {
      ParseDeclaration();
    }
  }

  void ParseFile() {
    Advance();
    ExpectInteger();
    if (token_.kind != TokenKind::kString) return Unexpected("a string");
    Advance();
    while (ok() && Accept(',')) ExpectInteger();
  }

  void ParsePragma() {
    Advance();
    do {
      if (token_.kind != TokenKind::kString) return Unexpected("a string");
      Advance();
    } while (ok() && Accept(','));
    Expect(';');
  }

  void ParseSection() {
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

  // .loc file line column [, function_name label [+ n], inlined_at file line column]
  void ParseLoc() {
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

  void ParseDeclaration() {
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

  // .space [.align n] [.attribute(...)] [.vN] .type name[dims] [= init] {, name...}
  void ParseVariables(Linkage linkage, std::vector<Variable>* out) {
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
    ParseVariableTail(proto, out);
  }

  void ParseVariableTail(Variable proto, std::vector<Variable>* out) {
    uint32_t vector = 1;
    uint32_t align = 0;
    bool have_type = false;
    while (ok() && token_.kind == TokenKind::kDirective) {
      const std::string_view d = token_.text;
      if (d == ".align") {
        Advance();
        align = ExpectU32();
        if (ok() && (!IsPowerOfTwo(align) || align > 4096)) Fail(last_line_, "bad alignment");
      } else if (d == ".attribute") {
        Advance();
        Expect('(');
        while (ok() && !token_.Is(')')) {
          if (token_.IsDirective(".managed")) proto.managed = true;
          if (token_.kind == TokenKind::kEnd) return Unexpected("')'");
          Advance();
        }
        Expect(')');
      } else if (d == ".v2" || d == ".v4" || d == ".v8") {
        vector = static_cast<uint32_t>(d[2] - '0');
        Advance();
      } else if (d == ".ptr") {  // .param .u64 .ptr .global .align 4 name
        Advance();
        if (token_.IsDirective(".global") || token_.IsDirective(".const") ||
            token_.IsDirective(".local") || token_.IsDirective(".shared")) {
          Advance();
        }
        if (AcceptDirective(".align")) ExpectU32();
      } else if (d == ".texref" || d == ".samplerref" || d == ".surfref") {
        return Fail(token_.line, "texture references are not supported: " + Describe(token_));
      } else {
        const Type type = TypeFromName(d.substr(1));
        if (type == Type::kNone || have_type)
          return Fail(token_.line, "unknown directive " + Describe(token_));
        proto.type = type;
        have_type = true;
        Advance();
      }
    }
    if (!have_type) return Unexpected("a type");
    const uint64_t element = uint64_t{SizeOf(proto.type)} * vector;
    if (element == 0) return Fail(last_line_, "a variable cannot have this type");
    do {
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
      v.align = align != 0 ? align
                           : static_cast<uint32_t>(std::min<uint64_t>(std::bit_ceil(element), 16));
      v.size = v.unsized ? 0 : count * element;
      if (Accept('=')) ParseInitializer(&v, SizeOf(v.type));
      if (!ok()) return;
      const uint64_t limit = v.space == Space::kShared  ? ParseLimits::kSharedBytes
                             : v.space == Space::kLocal ? ParseLimits::kLocalBytes
                             : v.space == Space::kParam ? ParseLimits::kParamBytes
                                                        : ParseLimits::kGlobalBytes;
      if (v.size > limit) return Fail(v.line, "variable " + Quote(v.name) + " is too large");
      out->push_back(std::move(v));
    } while (ok() && Accept(','));
  }

  void ParseInitializer(Variable* v, uint32_t element) {
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

  // The bits of a numeric literal as a value of `type`.
  static uint64_t LiteralBits(const Token& token, bool negative, Type type) {
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

  void ParseInitializerValue(Variable* v) {
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

  void ParseInitializerSymbol(Variable* v, uint64_t offset, uint8_t shift) {
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

  // --- functions ---

  void ParseFunction(bool is_entry, Linkage linkage) {
    FunctionAst f;
    f.is_entry = is_entry;
    f.is_extern = linkage.is_extern;
    f.visible = linkage.visible || linkage.is_extern;
    f.weak = linkage.weak;
    f.line = last_line_;
    function_ = &f;
    scopes_.clear();
    PushScope();
    if (AcceptDirective(".attribute")) {
      Expect('(');
      while (ok() && !token_.Is(')') && token_.kind != TokenKind::kEnd) Advance();
      Expect(')');
    }
    if (!is_entry && token_.Is('(')) ParseFormals(&f.returns, &f.return_regs);
    f.name = ExpectName();
    if (token_.Is('(')) ParseFormals(&f.params, &f.param_regs);
    ParsePerformanceDirectives(&f);
    if (Accept(';')) {
      // A declaration.
    } else {
      f.has_body = true;
      f.is_extern = false;
      ParseBody();
    }
    function_ = nullptr;
    if (ok()) module_.functions.push_back(std::move(f));
  }

  void ParseFormals(std::vector<Variable>* list, std::vector<int32_t>* regs) {
    Expect('(');
    if (Accept(')')) return;
    do {
      if (list->size() >= ParseLimits::kListLength) return Fail(token_.line, "too many parameters");
      if (AcceptDirective(".reg")) {
        const Type type = ExpectType();
        Variable v;
        v.space = Space::kReg;
        v.type = type;
        v.line = token_.line;
        v.name = ExpectName();
        v.size = v.align = SizeOf(type) == 0 ? 4 : SizeOf(type);
        const int32_t reg = NewVreg(type, 1);
        scopes_.back().names[v.name] = {LocalName::Kind::kRegister, reg};
        list->push_back(v);
        regs->push_back(reg);
      } else if (token_.IsDirective(".param")) {
        std::vector<Variable> one;
        ParseOneFormal(&one);
        for (Variable& v : one) {
          if (v.name != "_") {
            const int32_t index = static_cast<int32_t>(function_->vars.size());
            scopes_.back().names[v.name] = {LocalName::Kind::kVariable, index};
          }
          if (!function_->is_entry) PlaceParam(&v);
          function_->vars.push_back(v);
          list->push_back(std::move(v));
          regs->push_back(-1);
        }
      } else {
        return Unexpected("'.param'");
      }
    } while (ok() && Accept(','));
    Expect(')');
  }

  void ParseOneFormal(std::vector<Variable>* out) {
    Advance();
    Variable proto;
    proto.space = Space::kParam;

    uint32_t vector = 1, align = 0;
    Type type = Type::kNone;
    while (ok() && token_.kind == TokenKind::kDirective) {
      const std::string_view d = token_.text;
      if (d == ".align") {
        Advance();
        align = ExpectU32();
        if (ok() && (!IsPowerOfTwo(align) || align > 4096))
          return Fail(last_line_, "bad alignment");
      } else if (d == ".ptr") {
        Advance();
        if (token_.IsDirective(".global") || token_.IsDirective(".const") ||
            token_.IsDirective(".local") || token_.IsDirective(".shared")) {
          Advance();
        }
        if (AcceptDirective(".align")) ExpectU32();
      } else if (d == ".v2" || d == ".v4") {
        vector = static_cast<uint32_t>(d[2] - '0');
        Advance();
      } else {
        type = TypeFromName(d.substr(1));
        if (SizeOf(type) == 0) return Fail(token_.line, "unknown directive " + Describe(token_));
        Advance();
      }
    }
    if (type == Type::kNone) return Unexpected("a type");
    proto.type = type;
    proto.line = token_.line;
    proto.name = ExpectName();
    uint64_t count = 1;
    if (Accept('[')) {
      if (token_.Is(']')) return Fail(token_.line, "variadic parameters are not supported");
      count = static_cast<uint64_t>(ExpectInteger());
      Expect(']');
    }
    const uint64_t element = uint64_t{SizeOf(type)} * vector;
    if (count > ParseLimits::kParamBytes || count * element > ParseLimits::kParamBytes) {
      return Fail(proto.line, "parameter " + Quote(proto.name) + " is too large");
    }
    proto.size = count * element;
    proto.align =
        align != 0 ? align : static_cast<uint32_t>(std::min<uint64_t>(std::bit_ceil(element), 16));
    out->push_back(proto);
  }

  Type ExpectType() {
    if (token_.kind != TokenKind::kDirective) {
      Unexpected("a type");
      return Type::kNone;
    }
    const Type type = TypeFromName(token_.text.substr(1));
    if (type == Type::kNone) Fail(token_.line, "unknown directive " + Describe(token_));
    Advance();
    return type;
  }

  void ParseDims(std::array<uint32_t, 3>* dims) {
    *dims = {1, 1, 1};
    for (int i = 0; i < 3; ++i) {
      (*dims)[i] = ExpectU32();
      if (!Accept(',')) break;
    }
  }

  void ParsePerformanceDirectives(FunctionAst* f) {
    while (ok() && token_.kind == TokenKind::kDirective) {
      const std::string_view d = token_.text;
      if (d == ".maxntid") {
        Advance();
        ParseDims(&f->maxntid);
      } else if (d == ".reqntid") {
        Advance();
        ParseDims(&f->reqntid);
      } else if (d == ".reqnctapercluster") {
        Advance();
        ParseDims(&f->reqcluster);
      } else if (d == ".explicitcluster") {
        Advance();
        f->explicit_cluster = true;
      } else if (d == ".maxclusterrank") {
        Advance();
        f->maxclusterrank = ExpectU32();
      } else if (d == ".minnctapersm" || d == ".maxnctapersm") {
        Advance();
        f->minnctapersm = ExpectU32();
      } else if (d == ".maxnreg") {
        Advance();
        f->maxnreg = ExpectU32();
      } else if (d == ".noreturn") {
        Advance();
        f->noreturn = true;
      } else if (d == ".abi_preserve" || d == ".abi_preserve_control") {
        Advance();
        ExpectInteger();
      } else if (d == ".pragma") {
        ParsePragma();
      } else if (d == ".blocksareclusters") {
        Advance();
      } else {
        Fail(token_.line, "unknown directive " + Describe(token_));
      }
    }
  }

  void PushScope() {
    Scope scope;
    scope.id = static_cast<uint32_t>(function_->scope_parent.size());
    function_->scope_parent.push_back(scopes_.empty() ? 0 : scopes_.back().id);
    if (!scopes_.empty()) scope.param_top = scopes_.back().param_top;
    scopes_.push_back(std::move(scope));
  }

  int32_t NewVreg(Type type, uint8_t vector) {
    if (function_->vregs.size() + vector > ParseLimits::kVregsPerFunction) {
      Fail(token_.line, "too many registers");
      return 0;
    }
    const int32_t index = static_cast<int32_t>(function_->vregs.size());
    for (int i = 0; i < vector; ++i)
      function_->vregs.push_back({type, i == 0 ? vector : uint8_t{1}});
    return index;
  }

  void ParseBody() {
    Expect('{');
    uint32_t depth = 1;
    while (ok() && depth > 0) {
      if (token_.Is('{')) {
        Advance();
        if (++depth > ParseLimits::kScopeDepth)
          return Fail(token_.line, "blocks nested too deeply");
        PushScope();
      } else if (token_.Is('}')) {
        Advance();
        --depth;
        scopes_.pop_back();
      } else if (token_.kind == TokenKind::kEnd) {
        return Unexpected("'}'");
      } else {
        ParseStatement();
      }
    }
  }

  void ParseStatement() {
    if (Accept(';')) return;
    if (token_.kind == TokenKind::kDirective) return ParseBodyDirective();
    Statement s;
    s.line = token_.line;
    s.scope = scopes_.back().id;
    if (Accept('@')) {
      if (token_.Is('@')) {
        lexer_.SkipLine();
        return Advance();
      }
      s.guard_negated = Accept('!');
      const Operand guard = ParseName();
      if (!ok()) return;
      if (guard.kind != Operand::Kind::kRegister ||
          function_->vregs[guard.vreg].type != Type::kPred) {
        return Fail(s.line, "the guard is no predicate register");
      }
      s.guard = guard.vreg;
    }
    if (token_.kind != TokenKind::kWord) return Unexpected("an instruction");
    const std::string_view word = token_.text;
    Advance();
    if (s.guard < 0 && token_.Is(':')) {
      Advance();
      return ParseLabel(word, s.line);
    }
    s.opcode = word;
    if (++statement_count_ > ParseLimits::kStatementsPerModule)
      return Fail(s.line, "too many instructions");
    std::vector<Operand> operands;
    if (!token_.Is(';')) {
      do {
        if (operands.size() >= ParseLimits::kListLength) return Fail(s.line, "too many operands");
        operands.push_back(ParseOperand());
      } while (ok() && Accept(','));
    }
    Expect(';');
    if (!ok()) return;
    operand_count_ += operands.size();
    if (operand_count_ > ParseLimits::kOperandsPerModule) return Fail(s.line, "too many operands");
    s.first_operand = static_cast<uint32_t>(function_->operands.size());
    s.operand_count = static_cast<uint32_t>(operands.size());
    function_->operands.insert(function_->operands.end(), operands.begin(), operands.end());
    function_->statements.push_back(s);
  }

  void ParseLabel(std::string_view name, uint32_t line) {
    const auto key = std::make_pair(scopes_.back().id, name);
    if (AcceptDirective(".callprototype")) {
      // [(.param ... )] _ [(.param ..., ...)] [.noreturn];
      uint32_t count = 0;
      while (ok() && !token_.Is(';')) {
        if (token_.kind == TokenKind::kEnd) return Unexpected("';'");
        if (token_.IsDirective(".param") || token_.IsDirective(".reg")) ++count;
        Advance();
      }
      Expect(';');
      function_->prototypes[key] = count;
      return;
    }
    if (AcceptDirective(".branchtargets") || AcceptDirective(".calltargets")) {
      std::vector<std::string_view>& targets = function_->branch_targets[key];
      do {
        if (targets.size() >= (1u << 16)) return Fail(line, "too many branch targets");
        targets.push_back(ExpectName());
      } while (ok() && Accept(','));
      Expect(';');
      return;
    }
    if (name.find('.') != std::string_view::npos) return Fail(line, "bad label " + Quote(name));
    if (!function_->labels.emplace(key, static_cast<uint32_t>(function_->statements.size()))
             .second) {
      Fail(line, "label " + Quote(name) + " is defined twice");
    }
  }

  void ParseBodyDirective() {
    const std::string_view d = token_.text;
    if (d == ".reg") {
      Advance();
      ParseRegisters();
    } else if (d == ".local" || d == ".shared" || d == ".param" || d == ".global" ||
               d == ".const") {
      std::vector<Variable> list;
      ParseVariables({}, &list);
      Expect(';');
      for (Variable& v : list) DeclareVariable(std::move(v));
    } else if (d == ".extern") {
      Advance();
      if (!token_.IsDirective(".shared")) return Unexpected("'.shared'");
      std::vector<Variable> list;
      Linkage linkage;
      linkage.is_extern = true;
      ParseVariables(linkage, &list);
      Expect(';');
      for (Variable& v : list) DeclareVariable(std::move(v));
    } else if (d == ".loc") {
      ParseLoc();
    } else if (d == ".pragma") {
      ParsePragma();
    } else if (d == ".file") {
      ParseFile();
    } else if (d == ".section") {
      ParseSection();
    } else {
      Fail(token_.line, "unknown directive " + Describe(token_));
    }
  }

  void PlaceParam(Variable* v) {
    uint32_t& top = scopes_.back().param_top;
    top = (top + v->align - 1) / v->align * v->align;
    v->area_offset = top;
    top += static_cast<uint32_t>(v->size);
    if (top > ParseLimits::kParamAreaBytes) return Fail(v->line, "too many parameter variables");
    function_->param_area_bytes = std::max(function_->param_area_bytes, top);
  }

  void DeclareVariable(Variable v) {
    if (v.space == Space::kParam) PlaceParam(&v);
    if (function_->vars.size() >= (1u << 20)) return Fail(v.line, "too many variables");
    scopes_.back().names[v.name] = {LocalName::Kind::kVariable,
                                    static_cast<int32_t>(function_->vars.size())};
    function_->vars.push_back(std::move(v));
  }

  void ParseRegisters() {
    uint8_t vector = 1;
    Type type = Type::kNone;
    while (ok() && token_.kind == TokenKind::kDirective) {
      if (token_.IsDirective(".v2") || token_.IsDirective(".v4")) {
        vector = static_cast<uint8_t>(token_.text[2] - '0');
        Advance();
      } else {
        type = ExpectType();
      }
    }
    if (!ok()) return;
    if (type == Type::kNone) return Unexpected("a type");
    do {
      const std::string_view name = ExpectName();
      if (Accept('<')) {
        const uint32_t count = ExpectU32();
        Expect('>');
        scopes_.back().ranges[name] = {type, vector, count};
      } else if (ok()) {
        scopes_.back().names[name] = {LocalName::Kind::kRegister, NewVreg(type, vector)};
      }
    } while (ok() && Accept(','));
    Expect(';');
  }

  // --- operands ---

  bool LookUp(std::string_view name, LocalName* out) {
    // The prefix and number of "%r12" for ".reg .b32 %r<20>".
    size_t digits = name.size();
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
    for (size_t i = scopes_.size(); i-- > 0;) {
      Scope& scope = scopes_[i];
      if (auto it = scope.names.find(name); it != scope.names.end()) {
        *out = it->second;
        return true;
      }
      if (scope.ranges.empty()) continue;
      // "%r<20>" may also be declared with a prefix that itself ends in digits: try each split.
      for (size_t split = name.size() - 1; split >= digits && split > 0; --split) {
        auto range = scope.ranges.find(name.substr(0, split));
        if (range == scope.ranges.end()) continue;
        const std::string_view number = name.substr(split);
        if (number.size() > 9 || (number.size() > 1 && number[0] == '0')) continue;
        uint32_t value = 0;
        for (char c : number) value = value * 10 + static_cast<uint32_t>(c - '0');
        if (value >= range->second.count) continue;
        *out = {LocalName::Kind::kRegister, NewVreg(range->second.type, range->second.vector)};
        scope.names[name] = *out;
        return true;
      }
    }
    return false;
  }

  // A register, a local variable or some other symbol.
  Operand ParseName() {
    Operand o;
    const uint32_t line = token_.line;
    std::string_view name = ExpectName();
    if (!ok()) return o;
    if (name == "_") return o;
    LocalName local{};
    if (LookUp(name, &local)) {
      o.kind = local.kind == LocalName::Kind::kRegister ? Operand::Kind::kRegister
                                                        : Operand::Kind::kVariable;
    } else if (const size_t dot = name.rfind('.'); dot != std::string_view::npos && dot > 0 &&
                                                   LookUp(name.substr(0, dot), &local) &&
                                                   local.kind == LocalName::Kind::kRegister) {
      const std::string_view component = name.substr(dot + 1);
      const size_t index =
          component.size() == 1 ? std::string_view("xyzwrgba").find(component[0]) : 8;
      const uint32_t lane = static_cast<uint32_t>(index % 4);
      if (index >= 8 || lane >= function_->vregs[local.index].vector) {
        Fail(line, "bad vector component " + Quote(name));
        return o;
      }
      local.index += static_cast<int32_t>(lane);
      o.kind = Operand::Kind::kRegister;
      o.component = static_cast<uint8_t>(lane + 1);
    } else {
      o.kind = Operand::Kind::kSymbol;
      o.name = name;
      return o;
    }
    if (o.kind == Operand::Kind::kRegister) {
      o.vreg = local.index;
    } else {
      o.var = local.index;
      o.name = name;
    }
    return o;
  }

  Operand ParseLiteral(bool negative) {
    Operand o;
    switch (token_.kind) {
      case TokenKind::kInteger:
        o.kind = Operand::Kind::kInteger;
        o.value = static_cast<int64_t>(negative ? -token_.value : token_.value);
        break;
      case TokenKind::kFloat32:
        o.kind = Operand::Kind::kFloat32;
        o.value = static_cast<int64_t>(token_.value ^ (negative ? 0x80000000u : 0));
        break;
      case TokenKind::kFloat64:
        o.kind = Operand::Kind::kFloat64;
        o.value = static_cast<int64_t>(token_.value ^ (negative ? uint64_t{1} << 63 : 0));
        break;
      default:
        Unexpected("an operand");
        return o;
    }
    Advance();
    return o;
  }

  int64_t ParseOffset() {
    uint64_t offset = 0;
    while (ok() && (token_.Is('+') || token_.Is('-'))) {
      const bool negative = token_.Is('-');
      Advance();
      const uint64_t value = static_cast<uint64_t>(ExpectInteger());
      offset += negative ? -value : value;
    }
    return static_cast<int64_t>(offset);
  }

  Operand ParseOperand(int depth = 0) {
    Operand o;
    if (depth > 3) {
      Fail(token_.line, "operand nested too deeply");
      return o;
    }
    const uint32_t line = token_.line;
    if (Accept('[')) {
      o.kind = Operand::Kind::kAddress;
      if (token_.kind == TokenKind::kWord) {
        const Operand base = ParseName();
        if (base.kind == Operand::Kind::kSink) Fail(line, "bad address");
        o.base_kind = base.kind;
        o.vreg = base.vreg;
        o.var = base.var;
        o.name = base.name;
        if (Accept(',')) {
          const Operand coordinates = ParseOperand(depth + 1);
          if (!ok()) return o;
          if (coordinates.kind == Operand::Kind::kList) {
            o.first_child = coordinates.first_child;
            o.child_count = coordinates.child_count;
          } else {
            o.first_child = static_cast<uint32_t>(function_->children.size());
            o.child_count = 1;
            function_->children.push_back(coordinates);
          }
          if (o.child_count == 0) Fail(line, "no coordinates");
        } else {
          o.value = ParseOffset();
        }
      } else {
        o.base_kind = Operand::Kind::kInteger;
        o.value = ExpectInteger();
        o.value = static_cast<int64_t>(static_cast<uint64_t>(o.value) +
                                       static_cast<uint64_t>(ParseOffset()));
      }
      Expect(']');
      return o;
    }
    if (token_.Is('{') || token_.Is('(')) {
      const char close = token_.Is('{') ? '}' : ')';
      Advance();
      std::vector<Operand> list;
      if (!Accept(close)) {
        do {
          if (list.size() >= ParseLimits::kListLength) {
            Fail(line, "list too long");
            return o;
          }
          list.push_back(ParseOperand(depth + 1));
        } while (ok() && Accept(','));
        Expect(close);
      }
      operand_count_ += list.size();
      if (operand_count_ > ParseLimits::kOperandsPerModule) Fail(line, "too many operands");
      o.kind = Operand::Kind::kList;
      o.first_child = static_cast<uint32_t>(function_->children.size());
      o.child_count = static_cast<uint32_t>(list.size());
      function_->children.insert(function_->children.end(), list.begin(), list.end());
      return o;
    }
    if (Accept('!')) {
      o = ParseName();
      if (ok() && o.kind != Operand::Kind::kRegister) Fail(line, "'!' needs a predicate register");
      o.negated = true;
      return o;
    }
    const bool negative = Accept('-');
    if (token_.kind == TokenKind::kWord) {
      o = ParseName();
      o.negated = negative;
      if (Accept('|')) {
        if (token_.kind == TokenKind::kWord && token_.text == "_") {
          Advance();
          o.pair = -2;
        } else {
          const Operand second = ParseName();
          if (ok() && second.kind != Operand::Kind::kRegister) Fail(line, "'|' needs a register");
          o.pair = second.vreg;
        }
      } else if (o.kind == Operand::Kind::kSymbol || o.kind == Operand::Kind::kVariable) {
        o.value = ParseOffset();
      }
      return o;
    }
    return ParseLiteral(negative);
  }

  Lexer lexer_;
  Token token_;
  uint32_t last_line_ = 0;
  absl::Status status_;
  ModuleAst module_;
  FunctionAst* function_ = nullptr;
  std::vector<Scope> scopes_;
  size_t statement_count_ = 0;
  size_t operand_count_ = 0;
};

}  // namespace

absl::StatusOr<ModuleAst> ParsePtx(std::string_view text) {
  if (text.size() > ParseLimits::kTextBytes)
    return absl::InvalidArgumentError("PTX text too large");
  return Parser(text).Run();
}

}  // namespace detshare::soft::ptx
