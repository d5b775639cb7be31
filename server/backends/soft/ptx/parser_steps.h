// The parser's steps. parser.cc has those of modules; parser_variable.cc, parser_function.cc,
// parser_operand.cc and parser_constant.cc have those of variables, functions, operands and constant
// expressions.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/backends/soft/ptx/ast.h"
#include "server/backends/soft/ptx/lexer.h"
#include "server/backends/soft/ptx/parser.h"

namespace detshare::soft::ptx {

// For messages: the start of `text` or the description of a token, printable and in quotes.
std::string Quote(std::string_view text);
std::string Describe(const Token& token);

// Whether it is WARP_SZ, the only constant with a name.
bool IsWarpSize(const Token& token);

constexpr int kSumPrecedence = 9;  // of + and - (parser_constant.cc)

// A recursive-descent parser with one token of look-ahead. It keeps the first error in status_.
// After an error every step finds the end of the text and does nothing, so no step must check for
// progress.
class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { Advance(); }

  // To be called once.
  absl::StatusOr<ModuleAst> Run();

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
        0;  // in the frame's parameter area; variables of sibling scopes share places
  };
  // The type of all names of one declaration.
  struct VariableType {
    Type type = Type::kNone;
    uint32_t vector = 1;
    uint32_t align = 0;  // 0: that of the type
    bool managed = false;

    uint64_t element_bytes() const { return uint64_t{SizeOf(type)} * vector; }
    uint32_t alignment() const {
      return align != 0
                 ? align
                 : static_cast<uint32_t>(std::min<uint64_t>(std::bit_ceil(element_bytes()), 16));
    }
  };

  // --- tokens ---
  bool ok() const { return status_.ok(); }
  void Fail(uint32_t line, const std::string& message);
  void Unexpected(const char* wanted);
  void Advance();
  bool Accept(char c) {
    if (!token_.Is(c)) return false;
    Advance();
    return true;
  }
  bool AcceptDirective(std::string_view name) {
    if (!token_.IsDirective(name)) return false;
    Advance();
    return true;
  }
  void Expect(char c);
  std::string_view ExpectName();
  int64_t ExpectInteger();
  uint32_t ExpectU32();
  Type ExpectType();

  // --- module level ---
  void ParseTopLevel();
  void ParseFile();
  void ParsePragma();
  void ParseSection();
  // .loc file line column [, function_name label [+ n], inlined_at file line column]
  void ParseLoc();
  void ParseDeclaration();

  // --- variables ---
  // .space [.align n] [.attribute(...)] [.vN] .type name[dims] [= init] {, name...}
  void ParseVariables(Linkage linkage, std::vector<Variable>* out);
  uint32_t ParseAlignment();  // 0 on an error
  void SkipPointerAttributes();
  // [.align n] [.attribute(...)] [.vN] .type
  VariableType ParseVariableType();
  void CountVariable(uint32_t line);  // fails when the module has too many
  void ParseVariable(const Variable& proto, const VariableType& type, std::vector<Variable>* out);
  void ParseInitializer(Variable* v, uint32_t element);
  void ParseInitializerValue(Variable* v);
  void ParseInitializerSymbol(Variable* v, uint64_t offset, uint8_t shift);
  // .param [.align n] [.ptr ...] [.vN] .type name[size]
  void ParseFormal(std::vector<Variable>* out);
  // --- functions ---
  void ParseFunction(bool is_entry, Linkage linkage);
  void ParseFormals(std::vector<Variable>* list, std::vector<int32_t>* regs);
  void ParseDims(std::array<uint32_t, 3>* dims);
  void ParsePerformanceDirectives(FunctionAst* f);
  void ParseBody();
  void ParseStatement();
  // The opcode that begins with `first`. Blanks and comments may be before its modifiers.
  std::string_view JoinOpcode(std::string_view first);
  void ParseLabel(std::string_view name, uint32_t line);
  void ParseBodyDirective();
  void ParseRegisters();
  void PushScope();
  int32_t NewVreg(Type type, uint8_t vector);
  void PlaceParam(Variable* v);
  void DeclareVariable(Variable v);

  // --- constant expressions ---
  // The result of an expression. PTX calculates with .s64 or .u64.
  struct Constant {
    uint64_t bits = 0;
    bool is_unsigned = false;
  };
  Token Peek() const;  // the token behind token_
  // An expression of operators that bind closer than those of precedence `least`. 0: any expression.
  Constant ParseConstant(int least, int depth = 0);
  // An integer, WARP_SZ or an expression in parentheses, perhaps behind unary operators.
  Constant ParseConstantPrimary(int depth);

  // --- operands ---
  bool LookUp(std::string_view name, LocalName* out);
  // A register, a local variable or another symbol.
  Operand ParseName();
  Operand ParseFloat(bool negative);
  int64_t ParseOffset();
  Operand ParseAddress(uint32_t line, int depth);
  Operand ParseList(uint32_t line, int depth);
  // A name, with an optional second register or offset.
  Operand ParseNamed(uint32_t line);
  // A vector register stands for the list of its components.
  Operand ComponentsOf(const Operand& vector);
  Operand ParseOperand(int depth = 0);
  Lexer lexer_;
  Token token_;
  uint32_t last_line_ = 0;
  absl::Status status_;
  ModuleAst module_;
  FunctionAst* function_ = nullptr;
  bool in_call_ = false;  // the statement's operands may be lists in parentheses
  std::vector<Scope> scopes_;
  size_t statement_count_ = 0;
  size_t operand_count_ = 0;
  size_t variable_count_ = 0;
  size_t branch_target_count_ = 0;
};

}  // namespace detshare::soft::ptx
