// atom and red. They use host atomics, because blocks of a kernel run on several threads, and because
// the host may poll the memory. Shared memory belongs to the one thread that runs its cluster.
#include <bit>

#include "server/backends/soft/ptx/half.h"
#include "server/backends/soft/ptx/memory_access.h"

namespace detshare::soft::ptx {
namespace {

constexpr uint32_t kMaxVectorParts = 8;

// Each operation works on bits: T is the unsigned integer of the access width. Next() is the new
// value after `old`. Atomic() exists where the CPU has an instruction for the operation.
struct DoAdd {
  template <class T>
  static T Next(T old, T b, T) {
    return old + b;
  }
  template <class T>
  static T Atomic(T* p, T b, T) {
    return __atomic_fetch_add(p, b, __ATOMIC_SEQ_CST);
  }
};
struct DoAnd {
  template <class T>
  static T Next(T old, T b, T) {
    return old & b;
  }
};
struct DoOr {
  template <class T>
  static T Next(T old, T b, T) {
    return old | b;
  }
};
struct DoXor {
  template <class T>
  static T Next(T old, T b, T) {
    return old ^ b;
  }
};
struct DoExch {
  template <class T>
  static T Next(T, T b, T) {
    return b;
  }
  template <class T>
  static T Atomic(T* p, T b, T) {
    return __atomic_exchange_n(p, b, __ATOMIC_SEQ_CST);
  }
};
struct DoCas {
  template <class T>
  static T Next(T old, T b, T c) {
    return old == b ? c : old;
  }
  template <class T>
  static T Atomic(T* p, T b, T c) {
    T expected = b;
    __atomic_compare_exchange_n(p, &expected, c, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
  }
};
template <bool kSigned, bool kMax>
struct DoMinMax {
  template <class T>
  static T Next(T old, T b, T) {
    using V = std::conditional_t<kSigned, std::make_signed_t<T>, T>;
    const bool less = static_cast<V>(b) < static_cast<V>(old);
    return less == kMax ? old : b;
  }
};
struct DoInc {
  template <class T>
  static T Next(T old, T b, T) {
    return static_cast<T>(old >= b ? 0 : old + 1);
  }
};
struct DoDec {
  template <class T>
  static T Next(T old, T b, T) {
    return static_cast<T>(old == 0 || old > b ? b : old - 1);
  }
};
struct DoAddF32 {
  static uint32_t Next(uint32_t old, uint32_t b, uint32_t) {
    const float sum = std::bit_cast<float>(old) + std::bit_cast<float>(b);
    return sum != sum ? 0x7fffffffu : std::bit_cast<uint32_t>(sum);
  }
};
// In global memory the hardware flushes subnormal inputs and results, in shared memory it does not.
struct DoAddF32Ftz {
  static uint32_t Flush(uint32_t bits) {
    return (bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits;
  }
  static uint32_t Next(uint32_t old, uint32_t b, uint32_t) {
    return Flush(DoAddF32::Next(Flush(old), Flush(b), 0));
  }
};
struct DoAddF64 {
  static uint64_t Next(uint64_t old, uint64_t b, uint64_t) {
    return std::bit_cast<uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
  }
};
inline uint16_t AddHalf(uint16_t a, uint16_t b) {
  return FloatToHalf(HalfToFloat(a) + HalfToFloat(b));
}
inline uint16_t AddBf16(uint16_t a, uint16_t b) {
  return FloatToBf16(Bf16ToFloat(a) + Bf16ToFloat(b));
}
enum class HalfMath { kAdd, kMin, kMax };
template <HalfMath kMath, bool kBf16>
inline uint16_t HalfCombine(uint16_t a, uint16_t b) {
  if (kMath == HalfMath::kAdd) return kBf16 ? AddBf16(a, b) : AddHalf(a, b);
  const float x = kBf16 ? Bf16ToFloat(a) : HalfToFloat(a),
              y = kBf16 ? Bf16ToFloat(b) : HalfToFloat(b);
  if (x != x) return y != y ? 0x7fff : b;
  if (y != y) return a;
  const bool b_less = y < x || (y == x && (b & 0x8000) != 0);
  return (kMath == HalfMath::kMin) == b_less ? b : a;
}
template <HalfMath kMath, bool kBf16>
struct DoHalf {
  static uint16_t Next(uint16_t old, uint16_t b, uint16_t) {
    return HalfCombine<kMath, kBf16>(old, b);
  }
};
template <HalfMath kMath, bool kBf16>
struct DoHalf2 {
  static uint32_t Next(uint32_t old, uint32_t b, uint32_t) {
    const uint16_t lo =
        HalfCombine<kMath, kBf16>(static_cast<uint16_t>(old), static_cast<uint16_t>(b));
    const uint16_t hi =
        HalfCombine<kMath, kBf16>(static_cast<uint16_t>(old >> 16), static_cast<uint16_t>(b >> 16));
    return lo | static_cast<uint32_t>(hi) << 16;
  }
};

// These return the old value.
template <class Op, class T>
T ApplyAtomically(T* p, T b, T c) {
  if constexpr (requires { Op::Atomic(p, b, c); }) {
    return Op::Atomic(p, b, c);
  } else {
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, Op::Next(old, b, c), true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
    return old;
  }
}
template <class Op, class T>
T ApplyAlone(T* p, T b, T c) {
  const T old = *p;
  *p = Op::Next(old, b, c);
  return old;
}

template <class T>
using LaneOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// The code after the check of an access does not depend on the kind of its address, so it is
// compiled once for each operation. pointers[lane] is the host pointer of the access.

// `alone`: no other thread accesses the memory.
template <class T, class Op>
[[gnu::noinline]] void UpdateLanes(Context& c, const Instr& in, uint32_t mask, bool alone,
                                   const uint64_t* pointers) {
  using L = LaneOf<T>;
  const L* b = c.Src<L>(in.b);
  const L* e = in.c == kNoOperand ? b : c.Src<L>(in.c);
  L* d = in.d == kNoOperand ? nullptr : c.Dst<L>(in.d);
  const auto update = [&](auto apply) {
    ForEachLane(mask, [&](uint32_t i) {
      const T old =
          apply(reinterpret_cast<T*>(pointers[i]), static_cast<T>(b[i]), static_cast<T>(e[i]));
      if (d != nullptr) d[i] = old;
    });
  };
  if (alone) {
    update(ApplyAlone<Op, T>);
  } else {
    update(ApplyAtomically<Op, T>);
  }
  NotePoll(c);
}

template <class T, class Op>
[[gnu::noinline]] void UpdateVectors(Context& c, const Instr& in, uint32_t mask, uint32_t sources,
                                     const uint64_t* pointers) {
  using L = LaneOf<T>;
  const int32_t* registers = c.frame->function->extras.data() + in.extra;
  const bool results = (in.aux & MemoryAux::kVectorResults) != 0;  // they come before the sources
  ForEachLane(mask, [&](uint32_t i) {
    // All sources are read first, because a result may have the register of a source.
    T values[kMaxVectorParts];
    for (uint32_t k = 0; k < sources; ++k)
      values[k] = static_cast<T>(c.Src<L>(registers[results ? sources + k : k])[i]);
    for (uint32_t k = 0; k < sources; ++k) {
      const T old = ApplyAtomically<Op>(reinterpret_cast<T*>(pointers[i] + k * sizeof(T)),
                                        values[k], values[k]);
      if (results) c.Dst<L>(registers[k])[i] = old;
    }
  });
  NotePoll(c);
}

template <class T, class Op, Reach kReach, bool kAddress64>
void Atomic(Context& c, const Instr& in, uint32_t mask) {
  uint64_t p[kLanes];
  if (Pointers<kReach, kAddress64>(c, in, mask, sizeof(T), sizeof(T), true, p))
    UpdateLanes<T, Op>(c, in, mask, kReach == Reach::kShared, p);
}

// Each lane's address tells whether it is in shared memory.
void AddF32Generic(Context& c, const Instr& in, uint32_t mask) {
  uint64_t p[kLanes];
  if (!Pointers<Reach::kGeneric, true>(c, in, mask, 4, 4, true, p)) return;
  const uint64_t* addresses = c.Src<uint64_t>(in.a);
  uint32_t shared = 0;
  ForEachLane(mask, [&](uint32_t i) {
    const uint64_t address = addresses[i] + static_cast<uint64_t>(in.imm);
    if (address >= kSharedWindow && address < kSharedWindow + kWindowSize) shared |= 1u << i;
  });
  const uint32_t others = mask & ~shared;
  if (others != 0) UpdateLanes<uint32_t, DoAddF32Ftz>(c, in, others, false, p);
  if (shared != 0) UpdateLanes<uint32_t, DoAddF32>(c, in, shared, true, p);
}

template <class T, class Op, Reach kReach, bool kAddress64>
void AtomicVector(Context& c, const Instr& in, uint32_t mask) {
  const bool results = (in.aux & MemoryAux::kVectorResults) != 0;
  const uint32_t sources = results ? in.count / 2u : in.count;
  const uint64_t bytes = sizeof(T) * sources;
  uint64_t p[kLanes];
  if (Pointers<kReach, kAddress64>(c, in, mask, bytes, bytes, true, p))
    UpdateVectors<T, Op>(c, in, mask, sources, p);
}

// A process-wide lock for 128-bit exchange and compare-and-swap: x86-64 without -mcx16 has no
// instruction for them.
std::atomic_flag g_wide_lock = ATOMIC_FLAG_INIT;

template <bool kCas, Reach kReach, bool kAddress64>
void Atomic128(Context& c, const Instr& in, uint32_t mask) {
  uint64_t p[kLanes];
  if (!Pointers<kReach, kAddress64>(c, in, mask, 16, 16, true, p)) return;
  const uint64_t* b = c.Src<uint64_t>(in.b);
  const uint64_t* e = in.c == kNoOperand ? b : c.Src<uint64_t>(in.c);
  uint64_t* d = in.d == kNoOperand ? nullptr : c.Dst<uint64_t>(in.d);
  while (g_wide_lock.test_and_set(std::memory_order_acquire)) {
  }
  ForEachLane(mask, [&](uint32_t i) {
    const uint64_t lo = LoadRelaxed<uint64_t>(p[i]), hi = LoadRelaxed<uint64_t>(p[i] + 8);
    const uint64_t* next = kCas ? e : b;
    if (!kCas || (lo == b[2 * i] && hi == b[2 * i + 1])) {
      const uint64_t new_lo = next[2 * i], new_hi = next[2 * i + 1];
      StoreRelaxed<uint64_t>(p[i], new_lo);
      StoreRelaxed<uint64_t>(p[i] + 8, new_hi);
    }
    if (d != nullptr) {
      d[2 * i] = lo;
      d[2 * i + 1] = hi;
    }
  });
  g_wide_lock.clear(std::memory_order_release);
  NotePoll(c);
}

// Chooses the handler of an instruction.
struct PickHandler {
  using Result = ExecFn;
  template <class T, class Op>
  static ExecFn Pick(const MemoryKey& key) {
    const bool vector = key.vector > 1;
    switch (key.space) {
      case Space::kGlobal:
        if (vector) return key.address64 ? AtomicVector<T, Op, Reach::kGlobal, true> : nullptr;
        return key.address64 ? Atomic<T, Op, Reach::kGlobal, true>
                             : Atomic<T, Op, Reach::kGlobal, false>;
      case Space::kGeneric:
        if (vector) return key.address64 ? AtomicVector<T, Op, Reach::kGeneric, true> : nullptr;
        return key.address64 ? Atomic<T, Op, Reach::kGeneric, true>
                             : Atomic<T, Op, Reach::kGeneric, false>;
      case Space::kShared:
        if (vector) return nullptr;
        return key.address64 ? Atomic<T, Op, Reach::kShared, true>
                             : Atomic<T, Op, Reach::kShared, false>;
      default:
        return nullptr;
    }
  }
  static ExecFn PickAddF32(const MemoryKey& key) {
    if (key.noftz || key.space == Space::kShared) return Pick<uint32_t, DoAddF32>(key);
    // Vectors are in global memory.
    if (key.space == Space::kGeneric && key.address64 && key.vector == 1) return AddF32Generic;
    return Pick<uint32_t, DoAddF32Ftz>(key);
  }
};

template <class T, class Op>
void ReduceOne(uint8_t* to, const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  ApplyAtomically<Op>(reinterpret_cast<T*>(to), value, value);
}

// Chooses the function that combines one value with memory.
struct PickReduction {
  using Result = Reduction;
  template <class T, class Op>
  static Reduction Pick(const MemoryKey&) {
    return ReduceOne<T, Op>;
  }
  static Reduction PickAddF32(const MemoryKey& key) {
    return key.noftz ? ReduceOne<uint32_t, DoAddF32> : ReduceOne<uint32_t, DoAddF32Ftz>;
  }
};

template <bool kCas>
ExecFn Pick128(const MemoryKey& key) {
  switch (key.space) {
    case Space::kGlobal:
      return Atomic128<kCas, Reach::kGlobal, true>;
    case Space::kGeneric:
      return Atomic128<kCas, Reach::kGeneric, true>;
    case Space::kShared:
      return key.address64 ? Atomic128<kCas, Reach::kShared, true>
                           : Atomic128<kCas, Reach::kShared, false>;
    default:
      return nullptr;
  }
}

template <class Picker, class Op>
typename Picker::Result PickWord(const MemoryKey& key) {
  switch (SizeOf(key.type)) {
    case 4:
      return Picker::template Pick<uint32_t, Op>(key);
    case 8:
      return Picker::template Pick<uint64_t, Op>(key);
    default:
      return nullptr;
  }
}

template <class Picker, bool kMax>
typename Picker::Result PickMinMax(const MemoryKey& key) {
  constexpr HalfMath kMath = kMax ? HalfMath::kMax : HalfMath::kMin;
  switch (key.type) {
    case Type::kS32:
      return Picker::template Pick<uint32_t, DoMinMax<true, kMax>>(key);
    case Type::kU32:
      return Picker::template Pick<uint32_t, DoMinMax<false, kMax>>(key);
    case Type::kS64:
      return Picker::template Pick<uint64_t, DoMinMax<true, kMax>>(key);
    case Type::kU64:
      return Picker::template Pick<uint64_t, DoMinMax<false, kMax>>(key);
    case Type::kF16:
      return Picker::template Pick<uint16_t, DoHalf<kMath, false>>(key);
    case Type::kBF16:
      return Picker::template Pick<uint16_t, DoHalf<kMath, true>>(key);
    case Type::kF16x2:
      return Picker::template Pick<uint32_t, DoHalf2<kMath, false>>(key);
    case Type::kBF16x2:
      return Picker::template Pick<uint32_t, DoHalf2<kMath, true>>(key);
    default:
      return nullptr;
  }
}

template <class Picker>
typename Picker::Result PickOperation(AtomOp op, const MemoryKey& key) {
  switch (op) {
    case AtomOp::kAdd:
      switch (key.type) {
        case Type::kF32:
          return Picker::PickAddF32(key);
        case Type::kF64:
          return Picker::template Pick<uint64_t, DoAddF64>(key);
        case Type::kF16:
          return Picker::template Pick<uint16_t, DoHalf<HalfMath::kAdd, false>>(key);
        case Type::kBF16:
          return Picker::template Pick<uint16_t, DoHalf<HalfMath::kAdd, true>>(key);
        case Type::kF16x2:
          return Picker::template Pick<uint32_t, DoHalf2<HalfMath::kAdd, false>>(key);
        case Type::kBF16x2:
          return Picker::template Pick<uint32_t, DoHalf2<HalfMath::kAdd, true>>(key);
        default:
          return PickWord<Picker, DoAdd>(key);
      }
    case AtomOp::kMin:
      return PickMinMax<Picker, false>(key);
    case AtomOp::kMax:
      return PickMinMax<Picker, true>(key);
    case AtomOp::kInc:
      return key.type == Type::kU32 ? Picker::template Pick<uint32_t, DoInc>(key) : nullptr;
    case AtomOp::kDec:
      return key.type == Type::kU32 ? Picker::template Pick<uint32_t, DoDec>(key) : nullptr;
    case AtomOp::kExch:
      return PickWord<Picker, DoExch>(key);
    case AtomOp::kCas:
      return SizeOf(key.type) == 2 ? Picker::template Pick<uint16_t, DoCas>(key)
                                   : PickWord<Picker, DoCas>(key);
    case AtomOp::kAnd:
      return PickWord<Picker, DoAnd>(key);
    case AtomOp::kOr:
      return PickWord<Picker, DoOr>(key);
    case AtomOp::kXor:
      return PickWord<Picker, DoXor>(key);
  }
  return nullptr;
}

}  // namespace

ExecFn SelectAtomic(AtomOp op, const MemoryKey& key) {
  if (key.type == Type::kB128) {
    if (key.vector > 1) return nullptr;
    if (op == AtomOp::kExch) return Pick128<false>(key);
    if (op == AtomOp::kCas) return Pick128<true>(key);
    return nullptr;
  }
  return PickOperation<PickHandler>(op, key);
}

Reduction SelectReduction(AtomOp op, Type type, bool noftz) {
  if (op == AtomOp::kExch || op == AtomOp::kCas) return nullptr;
  return PickOperation<PickReduction>(op, {.type = type, .noftz = noftz});
}

}  // namespace detshare::soft::ptx
