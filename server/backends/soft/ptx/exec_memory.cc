// Loads, stores and address operations.
#include <algorithm>

#include "server/backends/soft/ptx/memory_access.h"
#include "server/backends/soft/ptx/warp_addresses.h"

namespace detshare::soft::ptx {
namespace {

constexpr uint32_t kMaxParts = 8;  // of a vector

// Converts a value in memory to a value in a register's lane.
template <class M, class L>
struct Element {
  using Memory = M;
  using LaneType = L;
  static L Widen(M value) {
    if constexpr (std::is_signed_v<M>) {
      return static_cast<L>(static_cast<std::make_signed_t<L>>(value));
    } else {
      return value;
    }
  }
  static void Load(uint64_t pointer, L* lanes, uint32_t lane) {
    lanes[lane] = Widen(LoadRelaxed<M>(pointer));
  }
  static void Store(uint64_t pointer, const L* lanes, uint32_t lane) {
    StoreRelaxed<M>(pointer, static_cast<M>(lanes[lane]));
  }
};

// Programs rely on an access to a vector of up to 16 bytes being one access, as it is on the
// hardware. On every CPU with AVX, an aligned access of 16 bytes is one.
using Vector16 [[gnu::vector_size(16), gnu::may_alias, gnu::aligned(1)]] = uint64_t;

// Copies an access of one lane from or to memory. `bytes` is a power of two of up to 32.
[[gnu::noinline, gnu::no_sanitize("thread")]] void LoadUnit(uint64_t from, uint64_t bytes,
                                                            void* out) {
  switch (bytes) {
    case 1:
      *static_cast<uint8_t*>(out) = LoadRelaxed<uint8_t>(from);
      break;
    case 2:
      *static_cast<uint16_t*>(out) = LoadRelaxed<uint16_t>(from);
      break;
    case 4:
      *static_cast<uint32_t*>(out) = LoadRelaxed<uint32_t>(from);
      break;
    case 8:
      *static_cast<uint64_t*>(out) = LoadRelaxed<uint64_t>(from);
      break;
    default:
      for (uint64_t at = 0; at < bytes; at += 16)
        static_cast<Vector16*>(out)[at / 16] = *reinterpret_cast<const Vector16*>(from + at);
  }
}
[[gnu::noinline, gnu::no_sanitize("thread")]] void StoreUnit(uint64_t to, uint64_t bytes,
                                                             const void* in) {
  switch (bytes) {
    case 2:
      StoreRelaxed(to, *static_cast<const uint16_t*>(in));
      break;
    case 4:
      StoreRelaxed(to, *static_cast<const uint32_t*>(in));
      break;
    case 8:
      StoreRelaxed(to, *static_cast<const uint64_t*>(in));
      break;
    default:
      for (uint64_t at = 0; at < bytes; at += 16)
        *reinterpret_cast<Vector16*>(to + at) = static_cast<const Vector16*>(in)[at / 16];
  }
}

struct Element128 {
  using Memory = unsigned __int128;
  using LaneType = uint64_t;
  static void Load(uint64_t pointer, uint64_t* lanes, uint32_t lane) {
    LoadUnit(pointer, 16, lanes + 2 * lane);
  }
  static void Store(uint64_t pointer, const uint64_t* lanes, uint32_t lane) {
    StoreUnit(pointer, 16, lanes + 2 * lane);
  }
};

// Full warps mostly access one address or consecutive ones. The rows of consecutive accesses are
// copied in vectors of 16 bytes. The compiler does not know these as atomic, but no CPU with AVX
// tears an aligned access of a lane in them. So kernels that race see what single accesses would
// show them, and the thread sanitizer is told not to look.
[[gnu::no_sanitize("thread")]] inline void CopyRow(void* to, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes / 16; ++at)
    static_cast<Vector16*>(to)[at] = static_cast<const Vector16*>(from)[at];
}

// Accesses of kParts registers for each lane, which begin at `from`.
template <class E, uint32_t kParts>
[[gnu::noinline, gnu::no_sanitize("thread")]] void LoadRow(const Context& c,
                                                           const int32_t* registers,
                                                           uint64_t from) {
  using Memory = typename E::Memory;
  constexpr uint64_t kBytes = kLanes * kParts * sizeof(Memory);
  // The next warp mostly loads what follows.
  for (uint64_t at = kBytes; at < 2 * kBytes; at += 64)
    __builtin_prefetch(reinterpret_cast<const uint8_t*>(from) + at);
  typename E::LaneType* d[kParts];
  for (uint32_t k = 0; k < kParts; ++k) d[k] = c.Dst<typename E::LaneType>(registers[k]);
  if constexpr (kParts == 1 && sizeof(Memory) == sizeof(typename E::LaneType)) {
    CopyRow(d[0], reinterpret_cast<const void*>(from), kBytes);
  } else {
    alignas(16) Memory row[kLanes * kParts];
    CopyRow(row, reinterpret_cast<const void*>(from), kBytes);
#pragma GCC ivdep
    for (uint32_t i = 0; i < kLanes; ++i) {
      for (uint32_t k = 0; k < kParts; ++k) d[k][i] = E::Widen(row[i * kParts + k]);
    }
  }
}

template <class E, uint32_t kParts>
[[gnu::noinline, gnu::no_sanitize("thread")]] void StoreRow(const Context& c,
                                                            const int32_t* registers, uint64_t to) {
  using Memory = typename E::Memory;
  constexpr uint64_t kBytes = kLanes * kParts * sizeof(Memory);
  const typename E::LaneType* b[kParts];
  for (uint32_t k = 0; k < kParts; ++k) b[k] = c.Src<typename E::LaneType>(registers[k]);
  if constexpr (kParts == 1 && sizeof(Memory) == sizeof(typename E::LaneType)) {
    CopyRow(reinterpret_cast<void*>(to), b[0], kBytes);
  } else {
    alignas(16) Memory row[kLanes * kParts];
    for (uint32_t i = 0; i < kLanes; ++i) {
      for (uint32_t k = 0; k < kParts; ++k) row[i * kParts + k] = static_cast<Memory>(b[k][i]);
    }
    CopyRow(reinterpret_cast<void*>(to), row, kBytes);
  }
}

const AddressMath g_math = SelectAddressMath();

// Elements that fill a register's lane.
template <class E>
constexpr bool kWhole = sizeof(typename E::Memory) == sizeof(typename E::LaneType);

inline void LoadEach(const uint64_t* pointers, uint32_t* out) { g_math.load32(pointers, out); }
inline void LoadEach(const uint64_t* pointers, uint64_t* out) { g_math.load64(pointers, out); }
inline void StoreEach(const uint64_t* pointers, const uint32_t* values) {
  g_math.store32(pointers, values);
}
inline void StoreEach(const uint64_t* pointers, const uint64_t* values) {
  g_math.store64(pointers, values);
}

// The code after the check of an access does not depend on the kind of its address, so it is
// compiled once for each element. `parts` registers of each lane are loaded or stored.

// Sets the pointer of each lane, for an access to one address or to consecutive ones.
inline void SetEach(Access access, uint64_t bytes, uint64_t* pointers) {
  const uint64_t step = access == Access::kConsecutive ? bytes : 0;
  for (uint32_t i = 1; i < kLanes; ++i) pointers[i] = pointers[0] + i * step;
}

template <class E>
[[gnu::noinline]] void LoadLanes(Context& c, const Instr& in, uint32_t mask,
                                 const int32_t* registers, uint32_t parts, Access access,
                                 uint64_t* pointers) {
  constexpr uint64_t kBytes = sizeof(typename E::Memory);
  const auto load_each = [&] {
    auto* const first = c.Dst<typename E::LaneType>(registers[0]);
    if (parts > 1) {
      if constexpr (!std::is_same_v<E, Element128>) {
        alignas(16) typename E::Memory unit[kMaxParts];
        ForEachLane(mask, [&](uint32_t i) {
          LoadUnit(pointers[i], parts * kBytes, unit);
          for (uint32_t k = 0; k < parts; ++k)
            c.Dst<typename E::LaneType>(registers[k])[i] = E::Widen(unit[k]);
        });
      }
    } else if (mask == kFullMask && kWhole<E>) {
      LoadEach(pointers, first);
    } else {
      ForEachLane(mask, [&](uint32_t i) { E::Load(pointers[i], first, i); });
    }
  };
  if (access == Access::kEach) {
    load_each();
  } else if constexpr (std::is_same_v<E, Element128>) {
    SetEach(access, kBytes, pointers);
    load_each();
  } else if (access == Access::kSame) {
    alignas(16) typename E::Memory unit[kMaxParts];
    LoadUnit(pointers[0], parts * kBytes, unit);
    for (uint32_t k = 0; k < parts; ++k)
      std::fill_n(c.Dst<typename E::LaneType>(registers[k]), kLanes, E::Widen(unit[k]));
  } else if (parts == 1) {
    LoadRow<E, 1>(c, registers, pointers[0]);
  } else if (parts == 2) {
    LoadRow<E, 2>(c, registers, pointers[0]);
  } else if (parts == 4) {
    LoadRow<E, 4>(c, registers, pointers[0]);
  } else {
    SetEach(access, parts * kBytes, pointers);
    load_each();
  }
  AfterAccess(c, in);
}

template <class E>
[[gnu::noinline]] void StoreLanes(Context& c, const Instr& in, uint32_t mask,
                                  const int32_t* registers, uint32_t parts, Access access,
                                  uint64_t* pointers) {
  constexpr uint64_t kBytes = sizeof(typename E::Memory);
  BeforeAccess(c, in);
  if constexpr (!std::is_same_v<E, Element128>) {
    if (access == Access::kConsecutive) {
      if (parts == 1) return StoreRow<E, 1>(c, registers, pointers[0]);
      if (parts == 2) return StoreRow<E, 2>(c, registers, pointers[0]);
      if (parts == 4) return StoreRow<E, 4>(c, registers, pointers[0]);
    }
  }
  if (access != Access::kEach) SetEach(access, parts * kBytes, pointers);
  if (parts > 1) {
    if constexpr (!std::is_same_v<E, Element128>) {
      // Lane by lane: when two lanes write to the same address, the whole vector of one wins.
      alignas(16) typename E::Memory unit[kMaxParts];
      ForEachLane(mask, [&](uint32_t i) {
        for (uint32_t k = 0; k < parts; ++k)
          unit[k] = static_cast<typename E::Memory>(c.Src<typename E::LaneType>(registers[k])[i]);
        StoreUnit(pointers[i], parts * kBytes, unit);
      });
    }
    return;
  }
  const auto* values = c.Src<typename E::LaneType>(registers[0]);
  if (mask == kFullMask && kWhole<E>) {
    StoreEach(pointers, values);
  } else {
    ForEachLane(mask, [&](uint32_t i) { E::Store(pointers[i], values, i); });
  }
}

template <bool kStore, bool kVector, class E, Reach kReach, bool kAddress64>
void LoadOrStore(Context& c, const Instr& in, uint32_t mask) {
  const uint32_t parts = kVector ? in.count : 1;
  const int32_t* const registers = kVector  ? c.frame->function->extras.data() + in.extra
                                   : kStore ? &in.b
                                            : &in.d;
  uint64_t p[kLanes];
  const Access access =
      FindAccess<kReach, kAddress64>(c, in, mask, sizeof(typename E::Memory) * parts, kStore, p);
  if (access == Access::kFault) return;
  if constexpr (kStore) {
    StoreLanes<E>(c, in, mask, registers, parts, access, p);
  } else {
    LoadLanes<E>(c, in, mask, registers, parts, access, p);
  }
}

template <bool kStore, bool kVector, class E, Reach kReach>
ExecFn Pick(bool address64) {
  return address64 ? LoadOrStore<kStore, kVector, E, kReach, true>
                   : LoadOrStore<kStore, kVector, E, kReach, false>;
}

template <bool kStore, bool kVector, Reach kReach>
ExecFn PickElement(const MemoryKey& key) {
  switch (key.type) {
    case Type::kS8:
      if (!kStore) return Pick<kStore, kVector, Element<int8_t, uint32_t>, kReach>(key.address64);
      break;
    case Type::kS16:
      if (!kStore) return Pick<kStore, kVector, Element<int16_t, uint32_t>, kReach>(key.address64);
      break;
    default:
      break;
  }
  switch (SizeOf(key.type)) {
    case 1:
      return Pick<kStore, kVector, Element<uint8_t, uint32_t>, kReach>(key.address64);
    case 2:
      return Pick<kStore, kVector, Element<uint16_t, uint32_t>, kReach>(key.address64);
    case 4:
      return Pick<kStore, kVector, Element<uint32_t, uint32_t>, kReach>(key.address64);
    case 8:
      return Pick<kStore, kVector, Element<uint64_t, uint64_t>, kReach>(key.address64);
    case 16:
      return kVector ? nullptr : Pick<kStore, kVector, Element128, kReach>(key.address64);
    default:
      return nullptr;
  }
}

template <bool kStore, bool kVector>
ExecFn PickReach(const MemoryKey& key) {
  switch (key.space) {
    case Space::kGeneric:
      return PickElement<kStore, kVector, Reach::kGeneric>(key);
    case Space::kGlobal:
    case Space::kConst:
      return PickElement<kStore, kVector, Reach::kGlobal>(key);
    case Space::kShared:
      return PickElement<kStore, kVector, Reach::kShared>(key);
    case Space::kLocal:
      return PickElement<kStore, kVector, Reach::kLocal>(key);
    default:
      return nullptr;
  }
}

// ld.param through a register, which is an offset into the kernel's parameters.
template <class E, bool kAddress64>
void LoadParamIndirect(Context& c, const Instr& in, uint32_t mask) {
  using A = std::conditional_t<kAddress64, uint64_t, uint32_t>;
  const A* a = c.Src<A>(in.a);
  constexpr uint64_t kBytes = sizeof(typename E::Memory);
  const uint32_t count = in.count == 0 ? 1 : in.count;
  const int32_t* registers = in.count == 0 ? &in.d : c.frame->function->extras.data() + in.extra;
  uint64_t p[kLanes];
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const uint32_t i = FirstLane(m);
    uint64_t at = a[i] + static_cast<uint64_t>(in.imm);
    if (at >= kParamWindow && at < kParamWindow + kWindowSize) at -= kParamWindow;
    const uint64_t bytes = kBytes * count;
    if (at % kBytes != 0) return RaiseFault(c, in, FaultKind::kMisalignedAddress, at, i);
    if (at > c.kernel_param_bytes || bytes > c.kernel_param_bytes - at) {
      return RaiseFault(c, in, FaultKind::kIllegalAddress, at, i);
    }
    p[i] = reinterpret_cast<uint64_t>(c.kernel_params) + at;
  }
  for (uint32_t k = 0; k < count; ++k) {
    auto* d = c.Dst<typename E::LaneType>(registers[k]);
    ForEachLane(mask, [&](uint32_t i) { E::Load(p[i] + k * kBytes, d, i); });
  }
}
template <class E>
ExecFn PickParam(bool address64) {
  return address64 ? LoadParamIndirect<E, true> : LoadParamIndirect<E, false>;
}

template <class E>
void LoadKernelParam(Context& c, const Instr& in, uint32_t mask) {
  auto* d = c.Dst<typename E::LaneType>(in.d);
  const uint64_t p = reinterpret_cast<uint64_t>(c.kernel_params) + static_cast<uint64_t>(in.imm);
  if constexpr (std::is_same_v<E, Element128>) {
    ForEachLane(mask, [&](uint32_t i) { E::Load(p, d, i); });
  } else {
    const auto value = E::Widen(LoadRelaxed<typename E::Memory>(p));
    ForWarpLanes(mask, [=](uint32_t i) { d[i] = value; });
  }
}
template <class E>
void LoadParamArea(Context& c, const Instr& in, uint32_t mask) {
  auto* d = c.Dst<typename E::LaneType>(in.d);
  const uint64_t base = reinterpret_cast<uint64_t>(c.frame->params) + static_cast<uint64_t>(in.imm);
  const uint64_t stride = c.frame->function->param_area_bytes;
  ForEachLane(mask, [&](uint32_t i) { E::Load(base + stride * i, d, i); });
}
template <class E>
void StoreParamArea(Context& c, const Instr& in, uint32_t mask) {
  const auto* b = c.Src<typename E::LaneType>(in.b);
  const uint64_t base = reinterpret_cast<uint64_t>(c.frame->params) + static_cast<uint64_t>(in.imm);
  const uint64_t stride = c.frame->function->param_area_bytes;
  ForEachLane(mask, [&](uint32_t i) { E::Store(base + stride * i, b, i); });
}

template <class T>
void LocalAddress(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  const T value = static_cast<T>(c.frame->local_base + static_cast<uint64_t>(in.imm));
  ForWarpLanes(mask, [&](uint32_t i) { d[i] = value; });
}
template <class T>
void DynamicShared(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  const T value =
      static_cast<T>(c.unit->launch->dynamic_shared_offset + static_cast<uint64_t>(in.imm));
  ForWarpLanes(mask, [&](uint32_t i) { d[i] = value; });
}

template <class T, uint64_t kWindow, bool kTo>
void Cvta(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  const T* a = c.Src<T>(in.a);
  ForWarpLanes(mask,
               [=](uint32_t i) { d[i] = static_cast<T>(kTo ? a[i] - kWindow : a[i] + kWindow); });
}
template <uint64_t kWindow>
ExecFn PickCvta(bool to, bool wide) {
  if (to) return wide ? Cvta<uint64_t, kWindow, true> : Cvta<uint32_t, kWindow, true>;
  return wide ? Cvta<uint64_t, kWindow, false> : Cvta<uint32_t, kWindow, false>;
}

template <class T, uint64_t kWindow, uint64_t kSize = kWindowSize>
void IsSpace(Context& c, const Instr& in, uint32_t mask) {
  const T* a = c.Src<T>(in.a);
  uint32_t result = 0;
  ForEachLane(mask, [&](uint32_t i) {
    const uint64_t address = a[i];
    const bool is =
        kWindow == 0 ? address < kSharedWindow : address >= kWindow && address - kWindow < kSize;
    result |= static_cast<uint32_t>(is) << i;
  });
  c.SetPred(in.d, result, mask);
}

template <class T, bool kGeneric>
void Mapa(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  const T* a = c.Src<T>(in.a);
  const uint32_t* rank = c.Src<uint32_t>(in.b);
  ForEachLane(mask, [&](uint32_t i) {
    const uint64_t window = kGeneric ? kSharedWindow : 0;
    const uint64_t offset = (a[i] - window) % kClusterStride;
    const uint64_t block = rank[i] == c.block->rank ? 0 : uint64_t{rank[i]} + 1;
    d[i] = static_cast<T>(window + (block & 0x3f) * kClusterStride + offset);
  });
}
template <class T, bool kGeneric>
void GetCtaRank(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const T* a = c.Src<T>(in.a);
  uint32_t result[kLanes];
  ForEachLane(mask, [&](uint32_t i) {
    const uint64_t block = ((a[i] - (kGeneric ? kSharedWindow : 0)) / kClusterStride) & 0x3f;
    result[i] = block == 0 ? c.block->rank : static_cast<uint32_t>(block - 1);
  });
  ForEachLane(mask, [&](uint32_t i) { d[i] = result[i]; });
}

template <bool kShared64, bool kGlobal64>
void CpAsync(Context& c, const Instr& in, uint32_t mask) {
  const uint64_t bytes = in.aux;
  Instr to = in, from = in;
  to.imm = in.imm >> 32;
  from.a = in.b;
  from.imm = static_cast<int32_t>(in.imm);
  uint64_t p[kLanes], q[kLanes];
  if (!Pointers<Reach::kShared, kShared64>(c, to, mask, bytes, bytes, true, p)) return;
  const uint32_t* sizes = in.c == kNoOperand ? nullptr : c.Src<uint32_t>(in.c);
  uint32_t reading = mask;
  if (sizes != nullptr) {
    ForEachLane(mask, [&](uint32_t i) {
      if (sizes[i] == 0) reading &= ~(1u << i);
    });
  }
  if (reading != 0 &&
      !Pointers<Reach::kGlobal, kGlobal64>(c, from, reading, bytes, bytes, false, q))
    return;
  ForEachLane(mask, [&](uint32_t i) {
    const uint64_t have = sizes == nullptr || sizes[i] > bytes ? bytes : sizes[i];
    uint8_t* out = reinterpret_cast<uint8_t*>(p[i]);
    if (have != 0) std::memcpy(out, reinterpret_cast<const uint8_t*>(q[i]), have);
    std::memset(out + have, 0, bytes - have);
  });
}

template <class T>
void Alloca(Context& c, const Instr& in, uint32_t mask) {
  // All lanes get the largest size, so that their stacks stay aligned with each other.
  const T* a = c.Src<T>(in.a);
  uint64_t bytes = 0;
  ForEachLane(mask, [&](uint32_t i) { bytes = a[i] > bytes ? a[i] : bytes; });
  const uint64_t align = static_cast<uint64_t>(in.imm) < 16 ? 16 : static_cast<uint64_t>(in.imm);
  const uint64_t at = (c.frame->local_top + align - 1) / align * align;
  if (bytes > c.stack_bytes || at > c.stack_bytes - bytes) {
    return RaiseFault(c, in, FaultKind::kStackOverflow, 0, FirstLane(mask));
  }
  c.frame->local_top = static_cast<uint32_t>(at + bytes);
  T* d = c.Dst<T>(in.d);
  ForEachLane(mask, [&](uint32_t i) { d[i] = static_cast<T>(at); });
}
template <class T>
void StackSave(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  ForEachLane(mask, [&](uint32_t i) { d[i] = static_cast<T>(c.frame->local_top); });
}
template <class T>
void StackRestore(Context& c, const Instr& in, uint32_t mask) {
  const uint64_t top = c.Src<T>(in.a)[FirstLane(mask)];
  // All lanes share the frame's top, so it falls only when all lanes of the frame are here.
  if (mask == (c.frame->lanes & c.warp->alive) && top >= c.frame->local_base &&
      top <= c.frame->local_top) {
    c.frame->local_top = static_cast<uint32_t>(top);
  }
}

void Fence(Context& c, const Instr&, uint32_t) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  NotePoll(c);
}

}  // namespace

ExecFn SelectLoad(const MemoryKey& key) {
  if (key.space == Space::kParam) {
    switch (key.type) {
      case Type::kS8:
        return PickParam<Element<int8_t, uint32_t>>(key.address64);
      case Type::kS16:
        return PickParam<Element<int16_t, uint32_t>>(key.address64);
      default:
        break;
    }
    switch (SizeOf(key.type)) {
      case 1:
        return PickParam<Element<uint8_t, uint32_t>>(key.address64);
      case 2:
        return PickParam<Element<uint16_t, uint32_t>>(key.address64);
      case 4:
        return PickParam<Element<uint32_t, uint32_t>>(key.address64);
      case 8:
        return PickParam<Element<uint64_t, uint64_t>>(key.address64);
      default:
        return nullptr;
    }
  }
  return key.vector > 1 ? PickReach<false, true>(key) : PickReach<false, false>(key);
}

ExecFn SelectStore(const MemoryKey& key) {
  return key.vector > 1 ? PickReach<true, true>(key) : PickReach<true, false>(key);
}

#define DETSHARE_BY_ELEMENT(handler)               \
  switch (type) {                                  \
    case Type::kS8:                                \
      return handler<Element<int8_t, uint32_t>>;   \
    case Type::kS16:                               \
      return handler<Element<int16_t, uint32_t>>;  \
    default:                                       \
      break;                                       \
  }                                                \
  switch (SizeOf(type)) {                          \
    case 1:                                        \
      return handler<Element<uint8_t, uint32_t>>;  \
    case 2:                                        \
      return handler<Element<uint16_t, uint32_t>>; \
    case 4:                                        \
      return handler<Element<uint32_t, uint32_t>>; \
    case 8:                                        \
      return handler<Element<uint64_t, uint64_t>>; \
    case 16:                                       \
      return handler<Element128>;                  \
    default:                                       \
      return nullptr;                              \
  }

ExecFn SelectKernelParamLoad(Type type){DETSHARE_BY_ELEMENT(LoadKernelParam)} ExecFn
    SelectParamAreaLoad(Type type){DETSHARE_BY_ELEMENT(LoadParamArea)} ExecFn
    SelectParamAreaStore(Type type){DETSHARE_BY_ELEMENT(StoreParamArea)}
#undef DETSHARE_BY_ELEMENT

ExecFn LocalAddressHandler(bool wide) {
  return wide ? LocalAddress<uint64_t> : LocalAddress<uint32_t>;
}
ExecFn DynamicSharedHandler(bool wide) {
  return wide ? DynamicShared<uint64_t> : DynamicShared<uint32_t>;
}

ExecFn SelectCvta(Space space, bool to, bool wide) {
  switch (space) {
    case Space::kShared:
      return PickCvta<kSharedWindow>(to, wide);
    case Space::kLocal:
      return PickCvta<kLocalWindow>(to, wide);
    case Space::kParam:
      return PickCvta<kParamWindow>(to, wide);
    default:
      return PickCvta<0>(to, wide);
  }
}

ExecFn SelectIsSpace(Space space, bool wide, bool cluster) {
  switch (space) {
    case Space::kShared:
      if (!cluster)
        return wide ? IsSpace<uint64_t, kSharedWindow, kClusterStride>
                    : IsSpace<uint32_t, kSharedWindow, kClusterStride>;
      return wide ? IsSpace<uint64_t, kSharedWindow> : IsSpace<uint32_t, kSharedWindow>;
    case Space::kLocal:
      return wide ? IsSpace<uint64_t, kLocalWindow> : IsSpace<uint32_t, kLocalWindow>;
    case Space::kParam:
      return wide ? IsSpace<uint64_t, kParamWindow> : IsSpace<uint32_t, kParamWindow>;
    default:
      return wide ? IsSpace<uint64_t, 0> : IsSpace<uint32_t, 0>;
  }
}

ExecFn SelectMapa(bool wide, bool generic) {
  if (generic) return wide ? Mapa<uint64_t, true> : nullptr;
  return wide ? Mapa<uint64_t, false> : Mapa<uint32_t, false>;
}
ExecFn SelectGetCtaRank(bool wide, bool generic) {
  if (generic) return wide ? GetCtaRank<uint64_t, true> : nullptr;
  return wide ? GetCtaRank<uint64_t, false> : GetCtaRank<uint32_t, false>;
}

ExecFn SelectCpAsync(bool shared64, bool global64) {
  if (shared64) return global64 ? CpAsync<true, true> : CpAsync<true, false>;
  return global64 ? CpAsync<false, true> : CpAsync<false, false>;
}

ExecFn AllocaHandler(bool wide) { return wide ? Alloca<uint64_t> : Alloca<uint32_t>; }
ExecFn StackSaveHandler(bool wide) { return wide ? StackSave<uint64_t> : StackSave<uint32_t>; }
ExecFn StackRestoreHandler(bool wide) {
  return wide ? StackRestore<uint64_t> : StackRestore<uint32_t>;
}
ExecFn FenceHandler() { return Fence; }

}  // namespace detshare::soft::ptx
