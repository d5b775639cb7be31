#include "server/backends/soft/ptx/native_meaning.h"

#include <initializer_list>
#include <unordered_map>

#include "server/backends/soft/ptx/control_ops.h"

namespace detshare::soft::ptx {
namespace {

using Kind = Meaning::Kind;
using Table = std::unordered_map<ExecFn, Meaning>;

void Add(Table* table, ExecFn fn, const Meaning& meaning) {
  if (fn != nullptr) table->emplace(fn, meaning);
}

void AddVector(Table* table, std::initializer_list<VectorOp> ops, std::initializer_list<Type> types,
               VectorFlags flags = {}, Compare compare = Compare::kEq) {
  for (VectorOp op : ops) {
    for (Type type : types) {
      Meaning meaning;
      meaning.op = op;
      meaning.type = type;
      meaning.flags = flags;
      meaning.compare = compare;
      Add(table, SelectVectorOp(op, type, flags, compare), meaning);
    }
  }
}

void AddIntegers(Table* table) {
  using enum VectorOp;
  using enum Type;
  AddVector(table, {kMov, kAnd, kOr, kXor, kNot, kShl, kSelp}, {kB32, kB64});
  AddVector(table, {kAdd, kSub, kMulLo, kMadLo}, {kU32, kU64});
  AddVector(table, {kShr, kMin, kMax}, {kU32, kS32, kU64, kS64});
  AddVector(table, {kNeg, kAbs}, {kS32, kS64});
  AddVector(table, {kMulWide, kMadWide, kMulHi}, {kU32, kS32});
  AddVector(table, {kShfL, kShfR, kLop3}, {kB32});
  AddVector(table, {kPredMov, kPredAnd, kPredOr, kPredXor, kPredNot, kSelp}, {kPred});
  AddVector(table, {kZext32To64, kSext32To64, kTrunc64To32, kPack2x32, kUnpack2x32}, {kB64});
}

void AddFloats(Table* table) {
  using enum VectorOp;
  using enum Type;
  for (const bool ftz : {false, true}) {
    for (const bool sat : {false, true})
      AddVector(table, {kAdd, kSub, kMulLo, kFma}, {kF32}, {.ftz = ftz, .sat = sat});
    for (const bool nan : {false, true})
      AddVector(table, {kMin, kMax}, {kF32}, {.ftz = ftz, .nan = nan});
    AddVector(table, {kDiv, kDivApprox, kSqrt, kRcp, kRsqrt, kNeg, kAbs}, {kF32}, {.ftz = ftz});
  }
  AddVector(table, {kAdd, kSub, kMulLo, kFma, kDiv, kSqrt, kRcp, kNeg, kAbs}, {kF64});
  AddVector(table, {kFromS32, kFromU32, kFromF64}, {kF32});
  AddVector(table, {kFromS32, kFromU32, kFromF32}, {kF64});
  AddVector(table, {kToNearest, kToZero, kToLower, kToHigher}, {kS32});
}

void AddComparisons(Table* table) {
  using enum Type;
  for (int i = 0; i <= static_cast<int>(Compare::kNan); ++i) {
    const Compare compare = static_cast<Compare>(i);
    AddVector(table, {VectorOp::kSetp}, {kF32, kF64}, {}, compare);
    AddVector(table, {VectorOp::kSetp}, {kF32}, {.ftz = true}, compare);
    if (compare <= Compare::kGe)
      AddVector(table, {VectorOp::kSetp}, {kU32, kS32, kU64, kS64}, {}, compare);
  }
}

void AddMemory(Table* table) {
  using enum Type;
  for (const Space space : {Space::kGlobal, Space::kGeneric, Space::kShared}) {
    for (const bool address64 : {false, true}) {
      for (const Type type : {kU8, kS8, kU16, kS16, kB32, kB64}) {
        for (const uint32_t vector : {1u, 2u}) {
          if (vector != 1 && SizeOf(type) < 4) continue;
          Meaning meaning;
          meaning.type = type;
          meaning.memory = {space, type, address64, vector};
          meaning.kind = Kind::kLoad;
          Add(table, SelectLoad(meaning.memory), meaning);
          meaning.kind = Kind::kStore;
          if (!IsSigned(type)) Add(table, SelectStore(meaning.memory), meaning);
        }
      }
    }
  }
  for (const Type type : {kB32, kB64}) {
    Meaning meaning;
    meaning.kind = Kind::kKernelParam;
    meaning.type = type;
    Add(table, SelectKernelParamLoad(type), meaning);
  }
}

Table MakeTable() {
  Table table;
  AddIntegers(&table);
  AddFloats(&table);
  AddComparisons(&table);
  AddMemory(&table);
  Meaning meaning;
  meaning.type = Type::kB64;
  meaning.kind = Kind::kVector;
  Add(&table, SelectCvta(Space::kGlobal, true, true), meaning);
  Add(&table, SelectCvta(Space::kGlobal, false, true), meaning);
  meaning.kind = Kind::kSpecialRegister;
  Add(&table, SregHandler(false), meaning);
  meaning.kind = Kind::kAddSharedWindow;
  Add(&table, SelectCvta(Space::kShared, false, true), meaning);
  meaning.kind = Kind::kSubSharedWindow;
  Add(&table, SelectCvta(Space::kShared, true, true), meaning);
  meaning.kind = Kind::kBranch;
  Add(&table, ExecBranch, meaning);
  meaning.kind = Kind::kBranchCond;
  Add(&table, ExecBranchCond, meaning);
  return table;
}

}  // namespace

const Meaning* MeaningOf(ExecFn fn) {
  static const Table* const table = new Table(MakeTable());
  const auto found = table->find(fn);
  return found == table->end() ? nullptr : &found->second;
}

}  // namespace detshare::soft::ptx
