// Turns the parser's statements into decoded instructions: selects handlers and checks operands.
// code_layout then computes the control flow, the places of registers and the final form.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "server/backends/soft/ptx/ast.h"
#include "server/backends/soft/ptx/control_ops.h"
#include "server/backends/soft/ptx/float_ops.h"
#include "server/backends/soft/ptx/ir.h"
#include "server/backends/soft/ptx/memory_ops.h"
#include "server/backends/soft/ptx/texture.h"
#include "server/backends/soft/ptx/vector_ops.h"

namespace detshare::soft::ptx {

struct MatrixShape;

// Module-level names after linking. Keys are views into the linked texts.
struct SymbolTable {
  struct Symbol {
    enum class Kind : uint8_t {
      kGlobal,
      kShared,
      kDynamicShared,
      kFunction,
      kKernel,
      kBuiltin
    } kind;
    uint32_t index = 0;  // of the global or function; Builtin
    uint64_t value =
        0;  // shared: offset in the module's shared variables; dynamic shared: alignment
  };
  std::unordered_map<std::string_view, Symbol> symbols;
};

// An instruction before registers have places. An operand is the number of a register, or -1 - the
// number of a constant.
struct LowInstr {
  // kReturn ends the function; in a kernel it ends the threads. kExit always ends the threads.
  enum class Flow : uint8_t { kNext, kBranch, kBranchCond, kBranchIndex, kReturn, kExit };
  Instr in;
  Flow flow = Flow::kNext;
  uint8_t extra_defs = 0;  // number of extras, from the first, that are destinations
  uint32_t target = 0;     // label number; kBranchIndex: index of a target list
};

struct LowFunction {
  const FunctionAst* ast = nullptr;
  FunctionCode* code = nullptr;
  std::vector<LowInstr> instrs;
  std::vector<int32_t> extras;
  std::vector<RegClass> vregs;
  std::vector<uint32_t> labels;                     // label number to instruction index
  std::vector<std::vector<uint32_t>> target_lists;  // label numbers; instructions share a list
  // The targets of all kBranchIndex of the module so far, each instruction with its whole list.
  size_t branch_target_count = 0;
};

// Fills `low` from the statements. The caller has set low->ast, low->code and the count of branch
// targets.
absl::Status LowerFunction(const SymbolTable& symbols, LowFunction* low);

// Splits an opcode such as "ld.global.v2.f32" at its dots. Returns an empty list for too many
// parts.
std::vector<std::string_view> SplitOpcode(std::string_view opcode);

// Lowers one function. Each lower_*.cc file has the members for a family of instructions.
class Lowering {
 public:
  Lowering(const SymbolTable& symbols, LowFunction* low);
  absl::Status Run();

 private:
  using Handler = void (Lowering::*)();
  static const std::unordered_map<std::string_view, Handler>& Handlers();

  // --- the current statement ---
  bool ok() const { return status_.ok(); }
  void Fail(const std::string& message);
  void FailUnknown();  // "unknown instruction 'x.y.z'"
  const Operand& Op(size_t i) const { return ast_.operands[statement_->first_operand + i]; }
  size_t OpCount() const { return statement_->operand_count; }
  const Operand& Child(const Operand& list, size_t i) const {
    return ast_.children[list.first_child + i];
  }
  bool NeedOperands(size_t low, size_t high);

  // Consume the modifiers one by one. AllUsed fails when modifiers are left over.
  bool Take(std::string_view modifier);
  Type TakeType();
  Rounding TakeRounding();
  VectorFlags TakeArithmeticFlags();
  bool TakeCompare(Compare* compare, bool is_unsigned_names_allowed);
  void TakeCacheHints();
  Space TakeSpace(Space fallback);
  // The spaces of the destination and of the source, in this order; kGeneric for a missing one.
  std::pair<Space, Space> TakeDirection();
  bool TakeAtomOp(AtomOp* op);
  uint32_t TakeMemoryOrder();  // MemoryAux bits
  uint32_t TakeVector();
  bool AllUsed();

  // --- operands ---
  int32_t Source(const Operand& o, Type type);
  int32_t SourceClass(const Operand& o, RegClass wanted, Type type);
  int32_t PredSource(const Operand& o, bool* negated);
  // A predicate, or a new one with the inverse of `!p`.
  int32_t PredValue(const Operand& o);
  int32_t Destination(const Operand& o, Type type);
  int32_t PredDestination(int32_t vreg);
  int32_t Address(const Operand& o, bool* address64, int64_t* offset);
  int32_t SymbolAddress(const Operand& o, RegClass wanted);
  int32_t NewTemp(RegClass c);
  int32_t Constant(RegClass c, uint64_t value, uint64_t high = 0);
  int32_t ConstantEntry(ConstEntry entry);
  int32_t CarryFlag();

  // --- emission ---
  LowInstr& Emit(ExecFn fn, CostCounters::Class cost);  // with the statement's guard
  LowInstr& EmitUnguarded(ExecFn fn, CostCounters::Class cost);
  void FlushPending();  // widening of results into wider registers
  uint32_t NewLabel();
  void PlaceLabel(uint32_t label);
  bool FindLabel(std::string_view name, uint32_t* label);
  // For instructions whose guard becomes a branch around them. EndGuard places the label.
  void BeginGuard();
  void EndGuard();

  // --- families (lower_alu.cc) ---
  void LowerMov();
  bool LowerMovVector(Type type);
  // mov.v2 and mov.v4 between vectors; the source may be a special register.
  void LowerMovComponents(uint32_t count, Type type);
  void LowerAddSub();
  void LowerMul();
  void LowerMad();
  void LowerMul24();
  void LowerDivRem();
  void LowerUnary();
  void LowerMinMax();
  void LowerLogic();
  void LowerShift();
  void LowerFunnelShift();
  void LowerBitField();
  void LowerBitCount();
  void LowerLop3();
  void LowerPrmt();
  void LowerDot();
  void LowerVideo();
  void LowerScalarVideo();
  void LowerVideoMad();
  void LowerPair16(uint32_t op, Type type, bool relu);
  void LowerSad();
  void LowerSetp();
  void LowerSet();
  void LowerSelp();
  void LowerSlct();
  void LowerFma();
  void LowerRoot();
  void LowerSpecial();
  void LowerCopysign();
  void LowerTestp();
  void LowerCvtPack();
  void LowerCvt();
  void LowerCarry();
  // Emits `fn`. Operand 0 is the destination; the other operands are sources of the given types.
  LowInstr* EmitSimple(ExecFn fn, CostCounters::Class cost, Type result,
                       std::initializer_list<Type> sources, uint32_t aux = 0);
  void LowerRounded(FloatOp op, Type type, Rounding rounding, VectorFlags flags, uint32_t sources,
                    CostCounters::Class cost);
  void LowerHalf(FloatOp op, Type type, Rounding rounding, VectorFlags flags, uint32_t sources,
                 uint32_t more_aux = 0);
  bool TakeCombination(BoolOp* op);

  // --- families (lower_memory.cc) ---
  void LowerLoad();
  void LowerStore();
  void LowerParamLoad(Type type, uint32_t vector);
  void LowerParamStore(Type type, uint32_t vector);
  void LowerArrival(const Operand& barrier, uint32_t bytes);
  void LowerAtom();
  void LowerCvta();
  void LowerIsSpace();
  void LowerPrefetch();
  void LowerMapa();
  void LowerGetCtaRank();
  void LowerCp();
  void LowerAlloca();
  void LowerStack();
  void LowerMbarrier();
  void LowerMembar();
  void LowerCreatePolicy();

  // --- bulk copies and tensor maps (lower_bulk.cc) ---
  void LowerBulk(bool reduce);
  void LowerBulkTensor(bool reduce);
  void LowerTensorMap();

  // --- families (lower_control.cc) ---
  void LowerBra();
  void LowerBrx();
  // Finds the target list of a name that is visible in the statement's scope.
  bool FindTargetList(std::string_view name, uint32_t* list);
  void LowerCall();
  int32_t CallTarget(const Operand& target, CallSite* call);
  void PassArguments(const Operand& args, CallSite* call);
  std::vector<std::pair<int32_t, ParamPlace>> ReturnPlaces(const Operand& returns, CallSite* call);
  ParamPlace NewParamPlace(uint32_t size);
  ParamPlace VariablePlace(const Operand& o);
  void LowerRet();
  void LowerExit();
  void LowerTrap();
  void LowerUnsupported();
  void LowerBar();
  void LowerBarrierCluster();
  void LowerWarpSync();
  void LowerShfl();
  void LowerVote();
  void LowerMatch();
  void LowerRedux();
  void LowerElect();
  void LowerActiveMask();
  void LowerNanosleep();
  void LowerNop();
  bool EmitSreg(std::string_view name, int32_t d, bool wide);
  bool IsSreg(std::string_view name) const;
  void PassRegisterFormals();

  // --- matrices (lower_matrix.cc) ---
  void LowerMatrix();
  void LowerMatrixRows(bool store);
  void LowerMovmatrix();
  void LowerWmmaMemory(const MatrixShape& shape, bool load);
  void LowerMma(MatrixShape shape, bool wmma, bool sparse);
  bool TakeBitMma(MatrixShape* shape, ExecFn* fn);
  // Appends the registers of an operand and returns their number.
  uint32_t AddFragment(const Operand& o, Type type, bool destination,
                       std::vector<int32_t>* registers);
  // The first `results` registers are destinations.
  LowInstr& EmitMatrix(ExecFn fn, const std::vector<int32_t>& registers, uint32_t results);
  // Emits the instructions that compute a 64-bit address without an offset.
  int32_t WideAddress(const Operand& o);

  // --- textures and surfaces (lower_texture.cc) ---
  void LowerTexture();
  void LowerSurface();
  void LowerImageQuery();
  bool TakeGeometry(Geometry* geometry);
  int32_t ImageHandle(const Operand& o);
  bool AddCoordinates(const Operand& o, Geometry geometry, Type type,
                      std::vector<int32_t>* registers);
  bool AddList(const Operand& o, uint32_t count, Type type, std::vector<int32_t>* registers);
  void EmitImage(ExecFn fn, int32_t handle, uint32_t aux, uint32_t results,
                 const std::vector<int32_t>& registers);

  const SymbolTable& symbols_;
  LowFunction& low_;
  const FunctionAst& ast_;
  absl::Status status_;
  const Statement* statement_ = nullptr;
  std::vector<std::string_view> parts_;  // of the opcode; consumed parts become empty
  struct PendingWiden {
    int32_t from, to;
    bool sign;
  };
  std::vector<PendingWiden> pending_;
  std::unordered_map<uint64_t, std::vector<std::pair<ConstEntry, int32_t>>> constants_;
  std::unordered_map<uint32_t, std::vector<uint32_t>>
      statement_labels_;  // statement index to label numbers
  std::map<std::pair<uint32_t, std::string_view>, uint32_t> label_numbers_;
  std::map<std::pair<uint32_t, std::string_view>, uint32_t> target_list_numbers_;
  std::vector<uint32_t> local_offset_;   // of ast vars in local space
  std::vector<uint32_t> shared_offset_;  // of ast vars in shared space, from shared_begin
  std::vector<uint32_t> kernel_param_offset_;
  int32_t carry_ = -1;
  uint32_t guard_label_ = 0;
  bool guard_open_ = false;
};

}  // namespace detshare::soft::ptx
