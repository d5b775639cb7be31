// The syntax tree of a PTX text: declarations and, for each function body, a list of statements
// with resolved register names. Names are views into the text, which must outlive the tree, or into
// the tree itself.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/backends/soft/ptx/types.h"

namespace detshare::soft::ptx {

struct Operand {
  enum class Kind : uint8_t {
    kRegister,  // vreg
    kVariable,  // var: a variable declared inside the function; offset in value
    kSymbol,    // name: a module variable, function, label or special register; offset in value
    kInteger,   // value
    kFloat32,   // value holds the bits
    kFloat64,
    // [base + value]: base_kind says whether the base is vreg, var or name. kInteger: no base, an
    // absolute address. For textures and surfaces [base, coordinates]; the coordinates are children
    // as in kList.
    kAddress,
    kList,  // {...} or (...): child_count operands from first_child
    kSink,  // _
  };
  Kind kind = Kind::kSink;
  Kind base_kind = Kind::kInteger;
  bool negated = false;   // !p or, on a register, -x
  uint8_t component = 0;  // 1..4 for .x .y .z .w of a vector register
  uint8_t selector = 0;   // 1..4 for .b0 to .b3, 5 and 6 for .h0 and .h1 of a video instruction
  int32_t vreg = -1;
  int32_t pair = -1;  // vreg of the predicate in d|p; -1: none, -2: sink
  int32_t var = -1;
  uint32_t first_child = 0;
  uint32_t child_count = 0;
  int64_t value = 0;
  std::string_view name;
};

struct Statement {
  std::string_view opcode;  // with modifiers: "add.rn.f32"
  uint32_t line = 0;
  uint32_t scope = 0;
  int32_t guard = -1;  // vreg of @p
  bool guard_negated = false;
  uint32_t first_operand = 0;
  uint32_t operand_count = 0;
};

// An address inside an initialiser. It is written when the addresses are known.
struct Relocation {
  uint64_t offset = 0;      // bytes into the variable
  std::string_view symbol;  // generic(symbol) equals symbol: all addresses are generic
  int64_t addend = 0;
  uint8_t size = 8;   // bytes to write
  uint8_t shift = 0;  // right shift before the write; 0xFF00(symbol) selects a byte
  uint32_t line = 0;
};

struct Variable {
  std::string_view name;
  Space space = Space::kGlobal;
  Type type = Type::kB8;
  uint32_t align = 1;
  uint64_t size = 0;  // bytes; 0 for unsized extern arrays
  bool is_extern = false;
  bool visible = false;
  bool weak = false;
  bool managed = false;
  bool unsized = false;
  uint32_t line = 0;
  std::vector<uint8_t> image;  // initial bytes; zeros follow when shorter than size
  std::vector<Relocation> relocations;
  bool has_initializer = false;
  uint32_t area_offset =
      0;  // param space, except a kernel's formals: place in the frame's parameter area
};

struct Vreg {
  Type type;
  uint8_t vector;  // components, 1 for scalars; a vector takes one vreg for each, in sequence
};

struct FunctionAst {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;
  bool is_extern = false;
  bool weak = false;
  bool visible = false;
  bool noreturn = false;
  uint32_t line = 0;
  std::vector<Variable> returns;  // param space, or reg space with `name`
  std::vector<Variable> params;
  std::vector<int32_t> return_regs;  // vreg of a .reg formal, or -1
  std::vector<int32_t> param_regs;
  std::array<uint32_t, 3> maxntid{};
  std::array<uint32_t, 3> reqntid{};
  std::array<uint32_t, 3> reqcluster{};
  uint32_t maxclusterrank = 0;
  uint32_t minnctapersm = 0;
  uint32_t maxnreg = 0;
  bool explicit_cluster = false;

  uint32_t param_area_bytes = 0;
  std::vector<Variable>
      vars;  // declared inside: param (for calls), local, shared, also global and const
  std::vector<Vreg> vregs;
  std::vector<Statement> statements;
  std::vector<Operand> operands;  // of all statements; the elements of lists are in children
  std::vector<Operand> children;
  std::vector<uint32_t> scope_parent;  // scope 0 is the body
  std::map<std::pair<uint32_t, std::string_view>, uint32_t>
      labels;  // (scope, name) to statement index
  std::map<std::pair<uint32_t, std::string_view>, std::vector<std::string_view>> branch_targets;
  // The number of parameters that a .callprototype declares. Their sizes come from the variables of
  // the call.
  std::map<std::pair<uint32_t, std::string_view>, uint32_t> prototypes;
};

struct ModuleAst {
  uint32_t version = 0;  // 90 for 9.0
  uint32_t target = 0;   // 75 for sm_75
  bool address64 = true;
  std::vector<Variable> variables;
  std::vector<FunctionAst> functions;
  std::vector<std::pair<std::string_view, std::string_view>> aliases;  // alias, aliasee
  std::deque<std::string> joined_opcodes;  // of statements with blanks between the modifiers
};

}  // namespace detshare::soft::ptx
