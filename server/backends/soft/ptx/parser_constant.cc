// Constant expressions.
#include <optional>
#include <string_view>

#include "server/backends/soft/ptx/instr.h"
#include "server/backends/soft/ptx/parser_steps.h"

namespace detshare::soft::ptx {
namespace {

struct BinaryOperator {
  std::string_view text;
  int precedence;           // the larger one binds first
  bool is_boolean = false;  // its result is 0 or 1
};
// Operators of two characters come before those of one.
constexpr BinaryOperator kOperators[] = {{"||", 1, true},
                                         {"&&", 2, true},
                                         {"==", 6, true},
                                         {"!=", 6, true},
                                         {"<=", 7, true},
                                         {">=", 7, true},
                                         {"<<", 8},
                                         {">>", 8},
                                         {"|", 3},
                                         {"^", 4},
                                         {"&", 5},
                                         {"<", 7, true},
                                         {">", 7, true},
                                         {"+", kSumPrecedence},
                                         {"-", kSumPrecedence},
                                         {"*", 10},
                                         {"/", 10},
                                         {"%", 10}};

// Returns the operator that begins with `token`; `next` is the character behind it. Null for other
// tokens. A '%' in front of a blank is a word.
const BinaryOperator* FindOperator(const Token& token, char next) {
  if (token.kind != TokenKind::kPunct && token.text != "%") return nullptr;
  for (const BinaryOperator& op : kOperators) {
    if (token.text[0] != op.text[0]) continue;
    if (op.text.size() == 1 || next == op.text[1]) return &op;
  }
  return nullptr;
}

// Calculates as ptxas does: shifts take their count modulo 64, and remainders have no sign.
// `is_unsigned` says how the operands compare, divide and shift. Null for a division by zero.
std::optional<uint64_t> Calculate(std::string_view op, uint64_t a, uint64_t b, bool is_unsigned) {
  const int64_t x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
  if (op == "||") return a != 0 || b != 0;
  if (op == "&&") return a != 0 && b != 0;
  if (op == "|") return a | b;
  if (op == "^") return a ^ b;
  if (op == "&") return a & b;
  if (op == "==") return a == b;
  if (op == "!=") return a != b;
  if (op == "<") return is_unsigned ? a < b : x < y;
  if (op == ">") return is_unsigned ? a > b : x > y;
  if (op == "<=") return is_unsigned ? a <= b : x <= y;
  if (op == ">=") return is_unsigned ? a >= b : x >= y;
  if (op == "<<") return a << (b & 63);
  if (op == ">>") return is_unsigned ? a >> (b & 63) : static_cast<uint64_t>(x >> (b & 63));
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (b == 0) return std::nullopt;
  if (op == "%") return a % b;
  if (is_unsigned) return a / b;
  // The quotient of the least number and -1 overflows.
  return y == -1 ? -a : static_cast<uint64_t>(x / y);
}

}  // namespace

bool IsWarpSize(const Token& token) {
  return token.kind == TokenKind::kWord && token.text == "WARP_SZ";
}

Token Parser::Peek() const {
  Lexer copy = lexer_;
  return copy.Next();
}

Parser::Constant Parser::ParseConstantPrimary(int depth) {
  if (depth > ParseLimits::kExpressionDepth) {
    Fail(token_.line, "expression nested too deeply");
    return {};
  }
  if (Accept('+')) return ParseConstantPrimary(depth + 1);
  if (Accept('-')) {
    const Constant value = ParseConstantPrimary(depth + 1);
    return {-value.bits, value.is_unsigned};
  }
  if (Accept('~')) {
    const Constant value = ParseConstantPrimary(depth + 1);
    return {~value.bits, value.is_unsigned};
  }
  if (Accept('!')) return {ParseConstantPrimary(depth + 1).bits == 0, false};
  if (Accept('(')) {
    if (token_.IsDirective(".s64") || token_.IsDirective(".u64")) {
      const bool is_unsigned = token_.IsDirective(".u64");
      Advance();
      Expect(')');
      return {ParseConstantPrimary(depth + 1).bits, is_unsigned};
    }
    const Constant value = ParseConstant(0, depth + 1);
    Expect(')');
    return value;
  }
  if (IsWarpSize(token_)) {
    Advance();
    return {kLanes, false};
  }
  if (token_.kind != TokenKind::kInteger) {
    Unexpected("an operand");
    return {};
  }
  const Constant value{token_.value, token_.text.back() == 'U' || token_.value >> 63 != 0};
  Advance();
  return value;
}

Parser::Constant Parser::ParseConstant(int least, int depth) {
  Constant left = ParseConstantPrimary(depth);
  while (ok()) {
    const BinaryOperator* const op = FindOperator(token_, lexer_.following());
    if (op == nullptr || op->precedence <= least) break;
    const uint32_t line = token_.line;
    for (size_t i = 0; i < op->text.size(); ++i) Advance();
    const Constant right = ParseConstant(op->precedence, depth + 1);
    if (!ok()) break;
    const bool is_shift = op->text == "<<" || op->text == ">>";
    const bool is_unsigned =
        left.is_unsigned || (right.is_unsigned && !is_shift) || op->text == "%";
    const std::optional<uint64_t> value = Calculate(op->text, left.bits, right.bits, is_unsigned);
    if (!value.has_value()) {
      Fail(line, "division by zero");
      break;
    }
    left = {*value, is_unsigned && !op->is_boolean};
  }
  if (least == 0 && Accept('?')) {
    const Constant yes = ParseConstant(0, depth + 1);
    Expect(':');
    const Constant no = ParseConstant(0, depth + 1);
    left = left.bits != 0 ? yes : no;
  }
  return left;
}

}  // namespace detshare::soft::ptx
