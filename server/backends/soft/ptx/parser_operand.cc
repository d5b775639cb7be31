// Operands of instructions.
#include <algorithm>
#include <iterator>

#include "server/backends/soft/ptx/parser_steps.h"

namespace detshare::soft::ptx {

bool Parser::LookUp(std::string_view name, LocalName* out) {
  // The prefix and number of "%r12" for ".reg .b32 %r<20>".
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  // No number has more digits. Without the bound a long name of digits would take hours.
  constexpr size_t kMaxDigits = 9;
  if (name.size() > kMaxDigits) digits = std::max(digits, name.size() - kMaxDigits);
  for (size_t i = scopes_.size(); i-- > 0;) {
    Scope& scope = scopes_[i];
    if (auto it = scope.names.find(name); it != scope.names.end()) {
      *out = it->second;
      return true;
    }
    if (scope.ranges.empty()) continue;
    // The prefix of a declaration like "%r<20>" may itself end in digits, so each split is tried.
    for (size_t split = name.size() - 1; split >= digits && split > 0; --split) {
      auto range = scope.ranges.find(name.substr(0, split));
      if (range == scope.ranges.end()) continue;
      const std::string_view number = name.substr(split);
      if (number.size() > 1 && number[0] == '0') continue;
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

Operand Parser::ParseName() {
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
    constexpr std::string_view kSelectors[] = {"b0", "b1", "b2", "b3", "h0", "h1"};
    const auto selector = std::find(std::begin(kSelectors), std::end(kSelectors), component);
    if (selector != std::end(kSelectors)) {
      o.kind = Operand::Kind::kRegister;
      o.vreg = local.index;
      o.selector = static_cast<uint8_t>(selector - std::begin(kSelectors) + 1);
      return o;
    }
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

Operand Parser::ParseFloat(bool negative) {
  Operand o;
  const bool wide = token_.kind == TokenKind::kFloat64;
  o.kind = wide ? Operand::Kind::kFloat64 : Operand::Kind::kFloat32;
  const uint64_t sign = wide ? uint64_t{1} << 63 : uint64_t{1} << 31;
  o.value = static_cast<int64_t>(token_.value ^ (negative ? sign : 0));
  Advance();
  return o;
}

int64_t Parser::ParseOffset() {
  uint64_t offset = 0;
  while (ok() && (token_.Is('+') || token_.Is('-'))) {
    const bool negative = token_.Is('-');
    Advance();
    const uint64_t value = ParseConstant(kSumPrecedence).bits;
    offset += negative ? -value : value;
  }
  return static_cast<int64_t>(offset);
}

Operand Parser::ParseAddress(uint32_t line, int depth) {
  Operand o;
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
    o.value = static_cast<int64_t>(ParseConstant(0).bits);
  }
  Expect(']');
  return o;
}

Operand Parser::ParseList(uint32_t line, int depth) {
  Operand o;
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

Operand Parser::ComponentsOf(const Operand& vector) {
  const uint32_t count = function_->vregs[static_cast<size_t>(vector.vreg)].vector;
  Operand list;
  list.kind = Operand::Kind::kList;
  list.first_child = static_cast<uint32_t>(function_->children.size());
  list.child_count = count;
  for (uint32_t i = 0; i < count; ++i) {
    Operand o = vector;
    o.vreg += static_cast<int32_t>(i);
    o.component = static_cast<uint8_t>(i + 1);
    function_->children.push_back(o);
  }
  operand_count_ += count;
  if (operand_count_ > ParseLimits::kOperandsPerModule) Fail(token_.line, "too many operands");
  return list;
}

Operand Parser::ParseNamed(uint32_t line) {
  Operand o = ParseName();
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

Operand Parser::ParseOperand(int depth) {
  const uint32_t line = token_.line;
  if (depth > 3) {
    Fail(line, "operand nested too deeply");
    return {};
  }
  if (Accept('[')) return ParseAddress(line, depth);
  if (token_.Is('{') || (token_.Is('(') && in_call_ && depth == 0)) return ParseList(line, depth);
  const bool prefixed = token_.Is('!') || token_.Is('-');
  const Token first = prefixed ? Peek() : token_;
  if (first.kind == TokenKind::kWord && !IsWarpSize(first)) {
    const bool is_not = Accept('!');
    const bool negative = Accept('-');
    Operand o = is_not ? ParseName() : ParseNamed(line);
    if (is_not && ok() && o.kind != Operand::Kind::kRegister)
      Fail(line, "'!' needs a predicate register");
    if (ok() && !is_not && !negative && o.pair == -1 && o.kind == Operand::Kind::kRegister &&
        o.component == 0 && function_->vregs[static_cast<size_t>(o.vreg)].vector > 1)
      return ComponentsOf(o);
    o.negated = is_not || negative;
    return o;
  }
  const bool is_float = first.kind == TokenKind::kFloat32 || first.kind == TokenKind::kFloat64;
  if (is_float && !token_.Is('!')) return ParseFloat(Accept('-'));
  Operand o;
  o.kind = Operand::Kind::kInteger;
  o.value = static_cast<int64_t>(ParseConstant(0).bits);
  return o;
}

}  // namespace detshare::soft::ptx
