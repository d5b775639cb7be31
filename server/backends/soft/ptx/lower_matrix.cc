// Matrix instructions.
#include "server/backends/soft/ptx/lower.h"
#include "server/backends/soft/ptx/matrix_math.h"
#include "server/backends/soft/ptx/matrix_ops.h"

namespace detshare::soft::ptx {
namespace {

// Reads a shape such as "m16n8k16". Returns false for other text.
bool ParseShape(std::string_view text, MatrixShape* shape) {
  uint32_t sides[3];
  size_t at = 0;
  for (int i = 0; i < 3; ++i) {
    if (at >= text.size() || text[at++] != "mnk"[i]) return false;
    uint32_t value = 0;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9' && value < 100)
      value = value * 10 + static_cast<uint32_t>(text[at++] - '0');
    if (value == 0 || value > (i == 2 ? 256 : kMaxMatrixSide)) return false;
    sides[i] = value;
  }
  shape->m = static_cast<uint8_t>(sides[0]);
  shape->n = static_cast<uint8_t>(sides[1]);
  shape->k = static_cast<uint16_t>(sides[2]);
  return at == text.size();
}

bool IsInput(Type t) {
  return t == Type::kF16 || t == Type::kBF16 || t == Type::kTF32 || t == Type::kF64 ||
         t == Type::kS8 || t == Type::kU8;
}
// The inputs that mma has and wmma has not.
bool IsNarrowInput(Type t) {
  return t == Type::kE4M3 || t == Type::kE5M2 || t == Type::kS4 || t == Type::kU4;
}
bool IsAccumulator(Type t) {
  return t == Type::kF16 || t == Type::kF32 || t == Type::kF64 || t == Type::kS32;
}
// Whether a matrix of `rows` by `columns` fits in MatrixElements.
bool FitsElements(uint32_t rows, uint32_t columns) {
  return rows * columns <= kMaxMatrixSide * kMaxMatrixSide;
}
// Whether mma takes a sparse A of this shape and type. `lanes`: how many lanes of four have the metadata.
bool IsSparse(const MatrixShape& shape, uint32_t* lanes) {
  if (shape.m != 16 || shape.n != 8 || (!IsInput(shape.a) && !IsNarrowInput(shape.a))) return false;
  const uint32_t per = ElementsPerRegister(shape.a);
  const bool is_small_float = shape.a == Type::kE4M3 || shape.a == Type::kE5M2;
  // A has two or four registers.
  if (shape.a == Type::kF64 || (shape.k != 16 * per && (shape.k != 8 * per || is_small_float)))
    return false;
  *lanes = (per <= 2 ? 1 : 2) * (shape.k / (8 * per));
  return true;
}
Type RegisterType(Type t) { return t == Type::kF64 ? Type::kB64 : Type::kB32; }

}  // namespace

void Lowering::LowerMatrix() {
  const std::string_view name = parts_[0];
  const bool wmma = name == "wmma";
  const bool load = wmma && Take("load"), store = wmma && Take("store");
  if (wmma && !load && !store && !Take("mma")) return FailUnknown();
  const bool sparse = name == "mma" && (Take("sp") || Take("sp::ordered_metadata"));
  if (!Take("sync")) return FailUnknown();
  Take("aligned");
  if (name == "ldmatrix" || name == "stmatrix") return LowerMatrixRows(name == "stmatrix");
  if (name == "movmatrix") return LowerMovmatrix();
  if (name != "mma" && !wmma) return FailUnknown();

  MatrixShape shape;
  bool found = false;
  for (size_t i = 1; i < parts_.size(); ++i) {
    if (!found && ParseShape(parts_[i], &shape)) {
      parts_[i] = {};
      found = true;
    }
  }
  if (!found) return FailUnknown();
  if (load || store) return LowerWmmaMemory(shape, load);
  LowerMma(shape, wmma, sparse);
}

uint32_t Lowering::AddFragment(const Operand& o, Type type, bool destination,
                               std::vector<int32_t>* registers) {
  auto add = [&](const Operand& one) {
    registers->push_back(destination ? Destination(one, RegisterType(type))
                                     : Source(one, RegisterType(type)));
  };
  if (o.kind != Operand::Kind::kList) {
    add(o);
    return 1;
  }
  for (uint32_t i = 0; i < o.child_count; ++i) add(Child(o, i));
  return o.child_count;
}

LowInstr& Lowering::EmitMatrix(ExecFn fn, const std::vector<int32_t>& registers, uint32_t results) {
  LowInstr& low = EmitUnguarded(fn, CostCounters::kMatrix);
  low.in.extra = static_cast<uint32_t>(low_.extras.size());
  low.in.count = static_cast<uint8_t>(registers.size());
  low.extra_defs = static_cast<uint8_t>(results);
  low_.extras.insert(low_.extras.end(), registers.begin(), registers.end());
  return low;
}

int32_t Lowering::WideAddress(const Operand& o) {
  bool wide = true;
  int64_t offset = 0;
  int32_t a = Address(o, &wide, &offset);
  if (!ok()) return a;
  if (!wide) {
    const int32_t extended = NewTemp(RegClass::k64);
    LowInstr& low = EmitUnguarded(SelectVectorOp(VectorOp::kZext32To64, Type::kB64, {}),
                                  CostCounters::kInteger);
    low.in.d = extended;
    low.in.a = a;
    a = extended;
  }
  if (offset != 0) {
    const int32_t sum = NewTemp(RegClass::k64);
    LowInstr& low =
        EmitUnguarded(SelectVectorOp(VectorOp::kAdd, Type::kU64, {}), CostCounters::kInteger);
    low.in.d = sum;
    low.in.a = a;
    low.in.b = Constant(RegClass::k64, static_cast<uint64_t>(offset));
    a = sum;
  }
  return a;
}

void Lowering::LowerMatrixRows(bool store) {
  const uint32_t count = Take("x4") ? 4 : Take("x2") ? 2 : 1;
  Take("x1");
  const bool transposed = Take("trans");
  const bool square = Take("m8n8");
  const Space space = TakeSpace(Space::kGeneric);
  if (!square || (space != Space::kShared && space != Space::kGeneric) || TakeType() != Type::kB16)
    return FailUnknown();
  if (!AllUsed() || !NeedOperands(2, 2)) return;
  BeginGuard();
  bool wide = true;
  int64_t offset = 0;
  const int32_t a = Address(Op(store ? 0 : 1), &wide, &offset);
  std::vector<int32_t> registers;
  if (AddFragment(Op(store ? 1 : 0), Type::kB32, !store, &registers) != count) return FailUnknown();
  const int32_t members = Constant(RegClass::k32, kFullMask);
  if (!ok()) return;
  LowInstr& low = EmitMatrix(store ? ExecStmatrix : ExecLdmatrix, registers, store ? 0 : count);
  low.in.a = a;
  low.in.e = members;
  low.in.imm = offset;
  low.in.aux = (transposed ? 1 : 0) | (wide ? 2 : 0) | (wide && space == Space::kGeneric ? 4 : 0);
}

void Lowering::LowerMovmatrix() {
  if (!Take("m8n8") || !Take("trans") || TakeType() != Type::kB16) return FailUnknown();
  if (!AllUsed() || !NeedOperands(2, 2)) return;
  BeginGuard();
  const int32_t a = Source(Op(1), Type::kB32);
  const int32_t d = Destination(Op(0), Type::kB32);
  const int32_t members = Constant(RegClass::k32, kFullMask);
  if (!ok()) return;
  LowInstr& low = EmitUnguarded(ExecMovmatrix, CostCounters::kMatrix);
  low.in.d = d;
  low.in.a = a;
  low.in.e = members;
}

void Lowering::LowerWmmaMemory(const MatrixShape& shape, bool load) {
  const bool is_a = load && Take("a"), is_b = load && Take("b");
  if (!is_a && !is_b && !Take(load ? "c" : "d")) return FailUnknown();
  const bool by_columns = Take("col");
  if (!by_columns && !Take("row")) return FailUnknown();
  const Space space = TakeSpace(Space::kGeneric);
  const Type type = TakeType();
  if (is_a || is_b ? !IsInput(type) : !IsAccumulator(type)) return FailUnknown();
  if (!AllUsed() || !NeedOperands(2, 3)) return;
  if (shape.k > kMaxMatrixSide) return FailUnknown();
  BeginGuard();
  MatrixShape matrix;
  matrix.m = is_b ? static_cast<uint8_t>(shape.k) : shape.m;
  matrix.n = is_a ? static_cast<uint8_t>(shape.k) : shape.n;
  matrix.k = 1;
  matrix.a = type;
  matrix.saturate = by_columns;
  if (uint32_t{matrix.m} * matrix.n % kLanes != 0) return FailUnknown();
  const int32_t a = WideAddress(Op(load ? 1 : 0));
  if (!ok()) return;
  const int32_t stride = OpCount() == 3 ? Source(Op(2), Type::kU32) : kNoOperand;
  std::vector<int32_t> registers;
  const uint32_t count = AddFragment(Op(load ? 0 : 1), type, load, &registers);
  if (count > 16 || count * ElementsPerRegister(type) * kLanes < uint32_t{matrix.m} * matrix.n)
    return FailUnknown();
  const int32_t members = Constant(RegClass::k32, kFullMask);
  for (int32_t r : registers) {
    if (!load && r < 0) return FailUnknown();
  }
  if (!ok()) return;
  LowInstr& low = EmitMatrix(load ? ExecWmmaLoad : ExecWmmaStore, registers, load ? count : 0);
  low.in.a = a;
  low.in.b = stride;
  low.in.e = members;
  low.in.imm = matrix.Pack();
  low.in.aux = static_cast<uint32_t>(space);
}

// mma.sync.aligned.shape.row.col.s32.b1.b1.s32.xor.popc d, a, b, c: the types are taken.
bool Lowering::TakeBitMma(MatrixShape* shape, ExecFn* fn) {
  const bool is_xor = Take("xor"), is_and = Take("and");
  if (is_xor == is_and || !Take("popc") || shape->b != Type::kB1 || shape->c != Type::kS32 ||
      shape->d != Type::kS32 || shape->saturate || shape->rounding != Rounding::kNone ||
      shape->n != 8) {
    return false;
  }
  if (shape->k != 128 ? shape->m != 16 || shape->k != 256 : shape->m != 8 && shape->m != 16)
    return false;
  shape->k /= 32;
  *fn = is_xor ? ExecMmaXor : ExecMmaAnd;
  return true;
}

void Lowering::LowerMma(MatrixShape shape, bool wmma, bool sparse) {
  while (Take("row") || Take("col")) {
  }
  shape.wmma = wmma;
  shape.saturate = Take("satfinite");
  shape.rounding = TakeRounding();
  shape.d = TakeType();
  const Type second = TakeType(), third = TakeType(), fourth = TakeType();
  if (third == Type::kNone) {  // wmma on f16: only the types of d and c
    shape.a = shape.b = Type::kF16;
    shape.c = second;
  } else {
    shape.a = second;
    shape.b = third;
    shape.c = fourth;
  }
  const bool bits = !wmma && !sparse && shape.a == Type::kB1;
  ExecFn fn = sparse ? ExecSparseMma : ExecMma;
  if (bits && !TakeBitMma(&shape, &fn)) return FailUnknown();
  const auto is_input = [&](Type t) {
    return IsInput(t) || (!wmma && IsNarrowInput(t)) || (bits && t == Type::kB1);
  };
  if (!is_input(shape.a) || !is_input(shape.b) || !IsAccumulator(shape.c) ||
      !IsAccumulator(shape.d))
    return FailUnknown();
  const bool directed = shape.rounding != Rounding::kNone && shape.rounding != Rounding::kRn;
  if (directed && (shape.d != Type::kF64 || shape.rounding > Rounding::kRp)) return FailUnknown();
  if (SizeOf(shape.a) != SizeOf(shape.b) || (shape.c == Type::kF64) != (shape.d == Type::kF64))
    return FailUnknown();
  const bool known_mma =
      shape.n == 8 &&
      (shape.m == 16 || (shape.m == 8 && (shape.a == Type::kF64 || SizeOf(shape.a) <= 1)));
  uint32_t metadata_lanes = 4;
  if (sparse && (!IsSparse(shape, &metadata_lanes) || shape.c != shape.d)) return FailUnknown();
  const uint32_t stored_k = sparse ? shape.k / 2u : shape.k;
  if (!FitsElements(shape.m, stored_k) || !FitsElements(shape.k, shape.n)) return FailUnknown();
  const size_t operands = sparse ? 6 : 4;
  if (!AllUsed() || !NeedOperands(operands, operands) || (!wmma && !known_mma))
    return FailUnknown();
  if (sparse) {
    if (Op(5).kind != Operand::Kind::kInteger || Op(5).value < 0 ||
        Op(5).value >= 4 / metadata_lanes)
      return FailUnknown();
    shape.selector = static_cast<uint8_t>(Op(5).value);
  }
  BeginGuard();
  std::vector<int32_t> registers;
  const uint32_t nd = AddFragment(Op(0), shape.d, true, &registers);
  const uint32_t na = AddFragment(Op(1), shape.a, false, &registers);
  const uint32_t nb = AddFragment(Op(2), shape.b, false, &registers);
  const uint32_t nc = AddFragment(Op(3), shape.c, false, &registers);
  // A fragment holds its matrix once; with wmma it may hold it several times.
  auto fits = [&](uint32_t count, Type type, uint32_t elements) {
    const uint32_t have = count * ElementsPerRegister(type) * kLanes;
    return elements % kLanes == 0 &&
           (wmma ? have >= elements && have % elements == 0 && count <= 16 : have == elements);
  };
  if (!fits(nd, shape.d, uint32_t{shape.m} * shape.n) ||
      !fits(nc, shape.c, uint32_t{shape.m} * shape.n) || !fits(na, shape.a, shape.m * stored_k) ||
      !fits(nb, shape.b, uint32_t{shape.k} * shape.n)) {
    return FailUnknown();
  }
  const int32_t metadata = sparse ? Source(Op(4), Type::kB32) : kNoOperand;
  const int32_t members = Constant(RegClass::k32, kFullMask);
  if (!ok()) return;
  LowInstr& low = EmitMatrix(fn, registers, nd);
  low.in.a = metadata;
  low.in.e = members;
  low.in.imm = shape.Pack();
  low.in.aux = nd | na << 8 | nb << 16 | nc << 24;
}

}  // namespace detshare::soft::ptx
