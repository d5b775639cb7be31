// Moves, selections, predicates, and changes of a register's width.
#include "server/backends/soft/ptx/unit.h"

// Must follow all other headers.
#include "server/backends/soft/ptx/vector_lanes.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {
namespace {

struct OpMov {
  template <class T>
  static T Do(T a) {
    return a;
  }
};

template <class T>
void Selp(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  const T* a = c.Src<T>(in.a);
  const T* b = c.Src<T>(in.b);
  const uint32_t p = c.Pred(in.c);
  ForLanes(mask, [=](uint32_t i) { d[i] = (p >> i & 1) != 0 ? a[i] : b[i]; });
}
void SelpPred(Context& c, const Instr& in, uint32_t mask) {
  const uint32_t p = c.Pred(in.c);
  c.SetPred(in.d, (c.Pred(in.a) & p) | (c.Pred(in.b) & ~p), mask);
}
template <class T, class C>
void Slct(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  const T* a = c.Src<T>(in.a);
  const T* b = c.Src<T>(in.b);
  const uint32_t* e = c.Src<uint32_t>(in.c);
  ForLanes(mask, [=](uint32_t i) { d[i] = Get<C>(e[i]) >= 0 ? a[i] : b[i]; });
}

void PredAnd(Context& c, const Instr& in, uint32_t mask) {
  c.SetPred(in.d, c.Pred(in.a) & c.Pred(in.b), mask);
}
void PredOr(Context& c, const Instr& in, uint32_t mask) {
  c.SetPred(in.d, c.Pred(in.a) | c.Pred(in.b), mask);
}
void PredXor(Context& c, const Instr& in, uint32_t mask) {
  c.SetPred(in.d, c.Pred(in.a) ^ c.Pred(in.b), mask);
}
void PredMov(Context& c, const Instr& in, uint32_t mask) { c.SetPred(in.d, c.Pred(in.a), mask); }
void PredNot(Context& c, const Instr& in, uint32_t mask) { c.SetPred(in.d, ~c.Pred(in.a), mask); }

void Mov128(Context& c, const Instr& in, uint32_t mask) {
  uint64_t* d = c.Dst<uint64_t>(in.d);
  const uint64_t* a = c.Src<uint64_t>(in.a);
  ForLanes(mask, [=](uint32_t i) {
    d[2 * i] = a[2 * i];
    d[2 * i + 1] = a[2 * i + 1];
  });
}
struct OpZext {
  static uint64_t Do(uint32_t a) { return a; }
};
struct OpSext {
  static uint64_t Do(uint32_t a) { return static_cast<uint64_t>(int64_t{static_cast<int32_t>(a)}); }
};
struct OpTrunc {
  static uint32_t Do(uint64_t a) { return static_cast<uint32_t>(a); }
};

// Parts of kBits bits each, in 32-bit lanes (64-bit lanes for kBits == 64). The first part is the
// least significant.
template <class D, uint32_t kParts, uint32_t kBits>
void Pack(Context& c, const Instr& in, uint32_t mask) {
  D* d = c.Dst<D>(in.d);
  const int32_t* parts = c.frame->function->extras.data() + in.extra;
  const uint32_t* p[kParts];
  for (uint32_t k = 0; k < kParts; ++k) p[k] = c.Src<uint32_t>(parts[k]);
  ForLanes(mask, [&](uint32_t i) {
    D value = 0;
    for (uint32_t k = 0; k < kParts; ++k) {
      value |= static_cast<D>(p[k][i] & static_cast<uint32_t>((uint64_t{1} << kBits) - 1))
               << (k * kBits);
    }
    d[i] = value;
  });
}
template <class S, uint32_t kParts, uint32_t kBits>
void Unpack(Context& c, const Instr& in, uint32_t mask) {
  const S* a = c.Src<S>(in.a);
  const int32_t* parts = c.frame->function->extras.data() + in.extra;
  S copy[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) copy[i] = a[i];
  for (uint32_t k = 0; k < kParts; ++k) {
    if (parts[k] == kNoOperand) continue;
    uint32_t* d = c.Dst<uint32_t>(parts[k]);
    ForLanes(mask, [&](uint32_t i) {
      d[i] = static_cast<uint32_t>(copy[i] >> (k * kBits)) &
             static_cast<uint32_t>((uint64_t{1} << kBits) - 1);
    });
  }
}
void Pack2x64(Context& c, const Instr& in, uint32_t mask) {
  uint64_t* d = c.Dst<uint64_t>(in.d);
  const int32_t* parts = c.frame->function->extras.data() + in.extra;
  const uint64_t* lo = c.Src<uint64_t>(parts[0]);
  const uint64_t* hi = c.Src<uint64_t>(parts[1]);
  ForLanes(mask, [=](uint32_t i) {
    d[2 * i] = lo[i];
    d[2 * i + 1] = hi[i];
  });
}
void Unpack2x64(Context& c, const Instr& in, uint32_t mask) {
  const uint64_t* a = c.Src<uint64_t>(in.a);
  const int32_t* parts = c.frame->function->extras.data() + in.extra;
  for (uint32_t k = 0; k < 2; ++k) {
    if (parts[k] == kNoOperand) continue;
    uint64_t* d = c.Dst<uint64_t>(parts[k]);
    ForLanes(mask, [=](uint32_t i) { d[i] = a[2 * i + k]; });
  }
}

ExecFn SelectPack(VectorOp op) {
  switch (op) {
    case VectorOp::kPack2x8:
      return Pack<uint32_t, 2, 8>;
    case VectorOp::kPack2x16:
      return Pack<uint32_t, 2, 16>;
    case VectorOp::kPack4x8:
      return Pack<uint32_t, 4, 8>;
    case VectorOp::kPack2x32:
      return Pack<uint64_t, 2, 32>;
    case VectorOp::kPack4x16:
      return Pack<uint64_t, 4, 16>;
    case VectorOp::kPack2x64:
      return Pack2x64;
    case VectorOp::kUnpack2x8:
      return Unpack<uint32_t, 2, 8>;
    case VectorOp::kUnpack2x16:
      return Unpack<uint32_t, 2, 16>;
    case VectorOp::kUnpack4x8:
      return Unpack<uint32_t, 4, 8>;
    case VectorOp::kUnpack2x32:
      return Unpack<uint64_t, 2, 32>;
    case VectorOp::kUnpack4x16:
      return Unpack<uint64_t, 4, 16>;
    case VectorOp::kUnpack2x64:
      return Unpack2x64;
    default:
      return nullptr;
  }
}

}  // namespace

ExecFn SelectMove(VectorOp op, Type t) {
  const uint32_t size = SizeOf(t);
  switch (op) {
    case VectorOp::kMov:
      return size == 16  ? Mov128
             : size == 8 ? Map1<uint64_t, uint64_t, OpMov>
                         : static_cast<ExecFn>(Map1<uint32_t, uint32_t, OpMov>);
    case VectorOp::kSelp:
      if (t == Type::kPred) return SelpPred;
      return size == 8 ? Selp<uint64_t> : size == 16 ? nullptr : Selp<uint32_t>;
    case VectorOp::kSlct:
      return size == 8 ? Slct<uint64_t, int32_t> : Slct<uint32_t, int32_t>;
    case VectorOp::kSlctF:
      return size == 8 ? Slct<uint64_t, float> : Slct<uint32_t, float>;
    case VectorOp::kPredMov:
      return PredMov;
    case VectorOp::kPredAnd:
      return PredAnd;
    case VectorOp::kPredOr:
      return PredOr;
    case VectorOp::kPredXor:
      return PredXor;
    case VectorOp::kPredNot:
      return PredNot;
    case VectorOp::kZext32To64:
      return Map1<uint64_t, uint32_t, OpZext>;
    case VectorOp::kSext32To64:
      return Map1<uint64_t, uint32_t, OpSext>;
    case VectorOp::kTrunc64To32:
      return Map1<uint32_t, uint64_t, OpTrunc>;
    default:
      return SelectPack(op);
  }
}

}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
