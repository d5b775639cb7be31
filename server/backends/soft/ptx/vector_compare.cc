// Comparisons: setp and set.

// Must follow all other headers.
#include "server/backends/soft/ptx/vector_lanes.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {
namespace {

// The loops over lanes exist only for these relations. Each comparison is one of them, with or
// without exchanged operands and a complemented result.
enum class Relation { kEqual, kUnequal, kLess, kLessOrEqual, kOrdered };

struct Plan {
  Relation relation;
  bool exchange = false;
  bool complement = false;
};

// For a NaN, all of the first six comparisons are false. So only kNe differs from the comparison of
// integers.
template <bool kFloat>
constexpr Plan PlanOf(Compare compare) {
  switch (compare) {
    case Compare::kEq:
      return {Relation::kEqual};
    case Compare::kNe:
      return kFloat ? Plan{Relation::kUnequal} : Plan{Relation::kEqual, false, true};
    case Compare::kLt:
      return {Relation::kLess};
    case Compare::kLe:
      return kFloat ? Plan{Relation::kLessOrEqual} : Plan{Relation::kLess, true, true};
    case Compare::kGt:
      return {Relation::kLess, true};
    case Compare::kGe:
      return kFloat ? Plan{Relation::kLessOrEqual, true} : Plan{Relation::kLess, false, true};
    case Compare::kEqu:
      return {Relation::kUnequal, false, true};
    case Compare::kNeu:
      return {Relation::kEqual, false, true};
    case Compare::kLtu:
      return {Relation::kLessOrEqual, true, true};
    case Compare::kLeu:
      return {Relation::kLess, true, true};
    case Compare::kGtu:
      return {Relation::kLessOrEqual, false, true};
    case Compare::kGeu:
      return {Relation::kLess, false, true};
    case Compare::kNum:
      return {Relation::kOrdered};
    case Compare::kNan:
      return {Relation::kOrdered, false, true};
  }
  return {Relation::kEqual};
}

template <Relation kRelation, class T>
inline bool Holds(T a, T b) {
  switch (kRelation) {
    case Relation::kEqual:
      return a == b;
    case Relation::kUnequal:
      return a < b || a > b;
    case Relation::kLess:
      return a < b;
    case Relation::kLessOrEqual:
      return a <= b;
    case Relation::kOrdered:
      return a == a && b == b;
  }
}

template <class T, Relation kRelation, bool kFtz>
[[gnu::noinline]] uint32_t Relate(const Lane<T>* a, const Lane<T>* b, uint32_t mask) {
  return CollectLanes(mask, [=](uint32_t i) {
    T x = Get<T>(a[i]), y = Get<T>(b[i]);
    if constexpr (kFtz) {
      x = Flush(x);
      y = Flush(y);
    }
    return Holds<kRelation>(x, y);
  });
}

// The bits of lanes outside `mask` are undefined.
template <class T, Compare kCompare, bool kFtz>
inline uint32_t CompareLanes(Context& c, const Instr& in, uint32_t mask) {
  constexpr Plan kPlan = PlanOf<std::is_floating_point_v<T>>(kCompare);
  const Lane<T>* a = c.Src<Lane<T>>(kPlan.exchange ? in.b : in.a);
  const Lane<T>* b = c.Src<Lane<T>>(kPlan.exchange ? in.a : in.b);
  const uint32_t result = Relate<T, kPlan.relation, kFtz>(a, b, mask);
  return kPlan.complement ? ~result : result;
}

inline uint32_t Combine(Context& c, const Instr& in, uint32_t result) {
  const BoolOp op = static_cast<BoolOp>(in.aux & 3);
  if (op == BoolOp::kNone) return result;
  uint32_t other = c.Pred(in.c);
  if ((in.aux & 4) != 0) other = ~other;
  return op == BoolOp::kAnd ? result & other : op == BoolOp::kOr ? result | other : result ^ other;
}

[[gnu::noinline]] void FinishSetp(Context& c, const Instr& in, uint32_t mask, uint32_t result) {
  const uint32_t first = Combine(c, in, result);
  const uint32_t second = in.d2 != kNoOperand ? Combine(c, in, ~result) : 0;
  if (in.d != kNoOperand) c.SetPred(in.d, first, mask);
  if (in.d2 != kNoOperand) c.SetPred(in.d2, second, mask);
}

[[gnu::noinline]] void FinishSet(Context& c, const Instr& in, uint32_t mask, uint32_t result) {
  result = Combine(c, in, result);
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t yes = static_cast<uint32_t>(in.imm);
  ForLanes(mask, [=](uint32_t i) { d[i] = (result >> i & 1) != 0 ? yes : 0; });
}

template <class T, Compare kCompare, bool kFtz>
void Setp(Context& c, const Instr& in, uint32_t mask) {
  FinishSetp(c, in, mask, CompareLanes<T, kCompare, kFtz>(c, in, mask));
}

template <class T, Compare kCompare, bool kFtz>
void Set(Context& c, const Instr& in, uint32_t mask) {
  FinishSet(c, in, mask, CompareLanes<T, kCompare, kFtz>(c, in, mask));
}

// --- selection of handlers ---

template <class T, bool kFtz>
ExecFn SelectFor(bool set, Compare compare) {
  switch (compare) {
#define DETSHARE_COMPARE(name) \
  case Compare::name:          \
    return set ? Set<T, Compare::name, kFtz> : Setp<T, Compare::name, kFtz>;
    DETSHARE_COMPARE(kEq)
    DETSHARE_COMPARE(kNe)
    DETSHARE_COMPARE(kLt)
    DETSHARE_COMPARE(kLe)
    DETSHARE_COMPARE(kGt)
    DETSHARE_COMPARE(kGe)
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<T>) {
    switch (compare) {
      DETSHARE_COMPARE(kEqu)
      DETSHARE_COMPARE(kNeu)
      DETSHARE_COMPARE(kLtu)
      DETSHARE_COMPARE(kLeu)
      DETSHARE_COMPARE(kGtu)
      DETSHARE_COMPARE(kGeu)
      DETSHARE_COMPARE(kNum)
      DETSHARE_COMPARE(kNan)
      default:
        break;
    }
  }
#undef DETSHARE_COMPARE
  return nullptr;
}

}  // namespace

ExecFn SelectCompare(VectorOp op, Type t, VectorFlags f, Compare compare) {
  if (op != VectorOp::kSetp && op != VectorOp::kSet) return nullptr;
  const bool set = op == VectorOp::kSet;
  switch (t) {
    case Type::kB16:
    case Type::kU16:
      return SelectFor<uint16_t, false>(set, compare);
    case Type::kB32:
    case Type::kU32:
      return SelectFor<uint32_t, false>(set, compare);
    case Type::kB64:
    case Type::kU64:
      return SelectFor<uint64_t, false>(set, compare);
    case Type::kS16:
      return SelectFor<int16_t, false>(set, compare);
    case Type::kS32:
      return SelectFor<int32_t, false>(set, compare);
    case Type::kS64:
      return SelectFor<int64_t, false>(set, compare);
    case Type::kF32:
      return f.ftz ? SelectFor<float, true>(set, compare) : SelectFor<float, false>(set, compare);
    case Type::kF64:
      return SelectFor<double, false>(set, compare);
    default:
      return nullptr;
  }
}

}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
