// Bulk asynchronous copies and tensor maps.
#include "server/backends/soft/ptx/bulk_ops.h"
#include "server/backends/soft/ptx/lower.h"

namespace detshare::soft::ptx {
namespace {

constexpr std::string_view kArrival = "mbarrier::complete_tx::bytes";

// Returns whether PTX has the reduction for the copies of bytes to this space.
bool HasReduction(AtomOp op, Type type, bool to_global) {
  if (SelectReduction(op, type) == nullptr) return false;
  const bool bits = op == AtomOp::kAnd || op == AtomOp::kOr || op == AtomOp::kXor;
  if (bits != IsBits(type)) return false;
  if (IsFloat(type) && (op == AtomOp::kInc || op == AtomOp::kDec)) return false;
  return to_global || !IsFloat(type);
}

}  // namespace

void Lowering::LowerBulk(bool reduce) {
  if (!reduce) {
    if (Take("commit_group")) {
      if (AllUsed() && NeedOperands(0, 0)) Emit(ExecNop, CostCounters::kControl);
      return;
    }
    if (Take("wait_group")) {
      Take("read");
      if (AllUsed() && NeedOperands(1, 1)) Emit(ExecNop, CostCounters::kControl);
      return;
    }
  }
  if (Take("tensor")) return LowerBulkTensor(reduce);
  TakeCacheHints();
  if (!reduce && Take("prefetch")) {
    if (!Take("L2") || !Take("global")) return FailUnknown();
    if (AllUsed() && NeedOperands(2, 3)) Emit(ExecNop, CostCounters::kControl);
    return;
  }
  const auto [to, from] = TakeDirection();
  const bool arrives = Take(kArrival);
  if (arrives == (to == Space::kGlobal) || (!arrives && !Take("bulk_group"))) return FailUnknown();
  uint32_t aux = BulkReduction::kNone;
  if (reduce) {
    AtomOp op;
    if (!TakeAtomOp(&op)) return FailUnknown();
    const bool noftz = Take("noftz");
    const Type type = TakeType();
    if (!HasReduction(op, type, to == Space::kGlobal) || (noftz && SizeOf(type) != 2) ||
        from != Space::kShared)
      return FailUnknown();
    aux = BulkReduction::Pack(op, type);
  }
  ExecFn fn = nullptr;
  if (to == Space::kShared && from == Space::kGlobal) fn = ExecBulkGlobalToShared;
  if (to == Space::kShared && from == Space::kShared) fn = ExecBulkSharedToShared;
  if (to == Space::kGlobal && from == Space::kShared) fn = ExecBulkSharedToGlobal;
  const bool multicast = fn == ExecBulkGlobalToShared && Take("multicast::cluster");
  const size_t operands = 3 + (arrives ? 1 : 0) + (multicast ? 1 : 0);
  if (fn == nullptr) return FailUnknown();
  if (!AllUsed() || !NeedOperands(operands, operands + 1)) return;  // the last: a cache policy
  const int32_t a = WideAddress(Op(0)), b = WideAddress(Op(1));
  const int32_t bytes = Source(Op(2), Type::kU32);
  const int32_t e = arrives ? WideAddress(Op(3)) : kNoOperand;
  const int32_t c = multicast ? Source(Op(4), Type::kU16) : kNoOperand;
  if (!ok()) return;
  LowInstr& low = Emit(fn, CostCounters::kGlobalMemory);
  low.in.a = a;
  low.in.b = b;
  low.in.c = c;
  low.in.e = e;
  low.in.aux = aux;
  low.in.count = 1;
  low.in.extra = static_cast<uint32_t>(low_.extras.size());
  low_.extras.push_back(bytes);
}

void Lowering::LowerBulkTensor(bool reduce) {
  static constexpr std::string_view kRanks[] = {"1d", "2d", "3d", "4d", "5d"};
  size_t rank = 0;
  for (size_t i = 0; i < std::size(kRanks); ++i) {
    if (Take(kRanks[i])) rank = i + 1;
  }
  if (rank == 0) return FailUnknown();
  TakeCacheHints();
  Take("tile");
  if (!reduce && Take("prefetch")) {
    if (!Take("L2") || !Take("global")) return FailUnknown();
    if (AllUsed() && NeedOperands(1, 2)) Emit(ExecNop, CostCounters::kControl);
    return;
  }
  const auto [to, from] = TakeDirection();
  const bool load = to == Space::kShared && from == Space::kGlobal && !reduce;
  if (!load && (to != Space::kGlobal || from != Space::kShared)) return FailUnknown();
  if (!Take(load ? kArrival : "bulk_group")) return FailUnknown();
  uint32_t aux = BulkReduction::kNone;
  if (reduce) {
    AtomOp op;
    if (!TakeAtomOp(&op)) return FailUnknown();
    aux = BulkReduction::Pack(op, Type::kNone);
  }
  const bool multicast = load && Take("multicast::cluster");
  const size_t operands = load ? (multicast ? 4 : 3) : 2;
  if (!AllUsed() || !NeedOperands(operands, operands + 1)) return;  // the last: a cache policy
  const Operand& tensor = Op(load ? 1 : 0);
  if (tensor.kind != Operand::Kind::kAddress || tensor.child_count != rank) return FailUnknown();
  std::vector<int32_t> coordinates;
  for (size_t i = 0; i < rank; ++i) coordinates.push_back(Source(Child(tensor, i), Type::kS32));
  Operand map = tensor;
  map.child_count = 0;
  const int32_t b = WideAddress(map);
  const int32_t a = WideAddress(Op(load ? 0 : 1));
  const int32_t e = load ? WideAddress(Op(2)) : kNoOperand;
  const int32_t c = multicast ? Source(Op(3), Type::kU16) : kNoOperand;
  if (!ok()) return;
  LowInstr& low = Emit(load ? ExecTensorLoad : ExecTensorStore, CostCounters::kGlobalMemory);
  low.in.a = a;
  low.in.b = b;
  low.in.c = c;
  low.in.e = e;
  low.in.aux = aux;
  low.in.count = static_cast<uint8_t>(rank);
  low.in.extra = static_cast<uint32_t>(low_.extras.size());
  low_.extras.insert(low_.extras.end(), coordinates.begin(), coordinates.end());
}

void Lowering::LowerTensorMap() {
  if (Take("cp_fenceproxy")) {
    const auto [to, from] = TakeDirection();
    if (to != Space::kGlobal || from != Space::kShared || !Take("tensormap::generic"))
      return FailUnknown();
    TakeMemoryOrder();
    if (!Take("sync")) return FailUnknown();
    Take("aligned");
    if (!AllUsed() || !NeedOperands(3, 3)) return;
    if (Op(2).kind != Operand::Kind::kInteger || Op(2).value != 128) return FailUnknown();
    const int32_t a = WideAddress(Op(0)), b = WideAddress(Op(1));
    if (!ok()) return;
    LowInstr& low = Emit(ExecTensorMapCopy, CostCounters::kGlobalMemory);
    low.in.a = a;
    low.in.b = b;
    return;
  }
  struct Field {
    std::string_view name;
    TensorMapField field;
    size_t dimensions;  // how many the field has a value for; 0: it has one value
  };
  static constexpr Field kFields[] = {{"global_address", TensorMapField::kAddress, 0},
                                      {"rank", TensorMapField::kRank, 0},
                                      {"box_dim", TensorMapField::kBox, 5},
                                      {"global_dim", TensorMapField::kDimension, 5},
                                      {"global_stride", TensorMapField::kStride, 4},
                                      {"element_stride", TensorMapField::kElementStride, 5},
                                      {"elemtype", TensorMapField::kType, 0},
                                      {"interleave_layout", TensorMapField::kInterleave, 0},
                                      {"swizzle_mode", TensorMapField::kSwizzle, 0},
                                      {"fill_mode", TensorMapField::kFill, 0}};
  if (!Take("replace") || !Take("tile")) return FailUnknown();
  const Field* field = nullptr;
  for (const Field& known : kFields) {
    if (field == nullptr && Take(known.name)) field = &known;
  }
  const Space space = TakeSpace(Space::kGeneric);
  const bool b1024 = Take("b1024");
  const Type type = TakeType();
  if (field == nullptr || !b1024 || (type != Type::kB32 && type != Type::kB64))
    return FailUnknown();
  const size_t operands = field->dimensions == 0 ? 2 : 3;
  if (!AllUsed() || !NeedOperands(operands, operands)) return;
  int64_t dimension = 0;
  if (field->dimensions != 0) {
    dimension = Op(1).value;
    if (Op(1).kind != Operand::Kind::kInteger || dimension < 0 ||
        static_cast<size_t>(dimension) >= field->dimensions)
      return FailUnknown();
  }
  int32_t a = WideAddress(Op(0));
  if (space == Space::kShared) {
    const int32_t generic = NewTemp(RegClass::k64);
    LowInstr& low = EmitUnguarded(SelectCvta(Space::kShared, false, true), CostCounters::kInteger);
    low.in.d = generic;
    low.in.a = a;
    a = generic;
  }
  const int32_t b =
      SourceClass(Op(operands - 1), RegClass::k64, type == Type::kB32 ? Type::kU32 : Type::kU64);
  if (!ok()) return;
  LowInstr& low = Emit(ExecTensorMapReplace, CostCounters::kGlobalMemory);
  low.in.a = a;
  low.in.b = b;
  low.in.imm = dimension;
  low.in.aux = static_cast<uint32_t>(field->field);
}

}  // namespace detshare::soft::ptx
