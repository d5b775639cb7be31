// Functions: their heads, and the statements and declarations of their bodies.
#include <algorithm>
#include <utility>

#include "server/backends/soft/ptx/parser_steps.h"

namespace detshare::soft::ptx {

void Parser::ParseFunction(bool is_entry, Linkage linkage) {
  if (module_.functions.size() >= ParseLimits::kFunctionsPerModule)
    return Fail(last_line_, "too many functions");
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

void Parser::ParseFormals(std::vector<Variable>* list, std::vector<int32_t>* regs) {
  Expect('(');
  if (Accept(')')) return;
  do {
    if (list->size() >= ParseLimits::kListLength) return Fail(token_.line, "too many parameters");
    if (AcceptDirective(".reg")) {
      const Type type = ExpectType();
      CountVariable(token_.line);
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
      ParseFormal(&one);
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

void Parser::ParseDims(std::array<uint32_t, 3>* dims) {
  *dims = {1, 1, 1};
  for (int i = 0; i < 3; ++i) {
    (*dims)[i] = ExpectU32();
    if (!Accept(',')) break;
  }
}

void Parser::ParsePerformanceDirectives(FunctionAst* f) {
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

void Parser::ParseBody() {
  Expect('{');
  uint32_t depth = 1;
  while (ok() && depth > 0) {
    if (token_.Is('{')) {
      Advance();
      if (++depth > ParseLimits::kScopeDepth) return Fail(token_.line, "blocks nested too deeply");
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

void Parser::ParseStatement() {
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
      return Fail(s.line, "the guard is not a predicate register");
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
  s.opcode = JoinOpcode(word);
  in_call_ = word == "call" || word.starts_with("call.");
  if (++statement_count_ > ParseLimits::kStatementsPerModule)
    return Fail(s.line, "too many instructions and labels");
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

std::string_view Parser::JoinOpcode(std::string_view first) {
  if (token_.kind != TokenKind::kDirective) [[likely]]
    return first;
  std::string& opcode = module_.joined_opcodes.emplace_back(first);
  for (; token_.kind == TokenKind::kDirective; Advance()) opcode += token_.text;
  return opcode;
}

void Parser::ParseLabel(std::string_view name, uint32_t line) {
  if (++statement_count_ > ParseLimits::kStatementsPerModule)
    return Fail(line, "too many instructions and labels");
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
      if (targets.size() >= (1u << 16) ||
          ++branch_target_count_ > ParseLimits::kBranchTargetsPerModule)
        return Fail(line, "too many branch targets");
      targets.push_back(ExpectName());
    } while (ok() && Accept(','));
    Expect(';');
    return;
  }
  if (name.find('.') != std::string_view::npos) return Fail(line, "bad label " + Quote(name));
  if (!function_->labels.emplace(key, static_cast<uint32_t>(function_->statements.size())).second) {
    Fail(line, "label " + Quote(name) + " is defined twice");
  }
}

void Parser::ParseBodyDirective() {
  const std::string_view d = token_.text;
  if (d == ".reg") {
    Advance();
    ParseRegisters();
  } else if (d == ".local" || d == ".shared" || d == ".param" || d == ".global" || d == ".const") {
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

void Parser::ParseRegisters() {
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

void Parser::PushScope() {
  Scope scope;
  scope.id = static_cast<uint32_t>(function_->scope_parent.size());
  function_->scope_parent.push_back(scopes_.empty() ? 0 : scopes_.back().id);
  if (!scopes_.empty()) scope.param_top = scopes_.back().param_top;
  scopes_.push_back(std::move(scope));
}

int32_t Parser::NewVreg(Type type, uint8_t vector) {
  if (function_->vregs.size() + vector > ParseLimits::kVregsPerFunction) {
    Fail(token_.line, "too many registers");
    return 0;
  }
  const int32_t index = static_cast<int32_t>(function_->vregs.size());
  for (int i = 0; i < vector; ++i) function_->vregs.push_back({type, i == 0 ? vector : uint8_t{1}});
  return index;
}

void Parser::PlaceParam(Variable* v) {
  uint32_t& top = scopes_.back().param_top;
  top = (top + v->align - 1) / v->align * v->align;
  v->area_offset = top;
  top += static_cast<uint32_t>(v->size);
  if (top > ParseLimits::kParamAreaBytes) return Fail(v->line, "too many parameter variables");
  function_->param_area_bytes = std::max(function_->param_area_bytes, top);
}

void Parser::DeclareVariable(Variable v) {
  if (v.space == Space::kParam) PlaceParam(&v);
  scopes_.back().names[v.name] = {LocalName::Kind::kVariable,
                                  static_cast<int32_t>(function_->vars.size())};
  function_->vars.push_back(std::move(v));
}

}  // namespace detshare::soft::ptx
