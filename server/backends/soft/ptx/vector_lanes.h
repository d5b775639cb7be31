// Element-wise instructions as loops over a warp's lanes. Each file of them is compiled twice, with
// and without DETSHARE_VECTOR_AVX2, into the namespaces avx2 and base; vector_matrix.cc and
// vector_addresses.cc also with DETSHARE_VECTOR_AVX512, into avx512. A file includes this header after
// all others, because only the code below it may use such instructions: the code of other headers is
// shared with files for any CPU.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "server/backends/soft/ptx/context.h"
#include "server/backends/soft/ptx/vector_ops.h"

#ifdef DETSHARE_VECTOR_AVX512
#define DETSHARE_VECTOR_ISA avx512
#ifndef __clang__
#define DETSHARE_AVX2_INTRINSICS
#define DETSHARE_AVX512_INTRINSICS
#endif
#pragma GCC target("avx512f,avx512vl,avx512dq,avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#elif defined(DETSHARE_VECTOR_AVX2)
#define DETSHARE_VECTOR_ISA avx2
#ifndef __clang__  // ignores the pragma
#define DETSHARE_AVX2_INTRINSICS
#endif
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#else
#define DETSHARE_VECTOR_ISA base
#endif

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {

// The families of instructions, one file each: vector_move.cc, vector_compare.cc, vector_convert.cc,
// vector_float.cc, vector_half.cc, vector_integer.cc, vector_bits.cc. Each returns null for
// instructions of other families.
ExecFn SelectMove(VectorOp op, Type t);
ExecFn SelectCompare(VectorOp op, Type t, VectorFlags f, Compare compare);
ExecFn SelectConvert(VectorOp op, Type t);
ExecFn SelectFloat(VectorOp op, Type t, VectorFlags f);
ExecFn SelectHalf(VectorOp op, Type t);
ExecFn SelectInteger(VectorOp op, Type t, VectorFlags f);
ExecFn SelectBits(VectorOp op, Type t, VectorFlags f);

namespace {

// Whether the CPU can store some lanes of a vector.
#ifdef DETSHARE_VECTOR_AVX2
constexpr bool kSelectsLanes = true;
#else
constexpr bool kSelectsLanes = false;
#endif

constexpr int kFewLanes = 6;  // one after the other, these take less time than all lanes in vectors

template <class T>
using Lane = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
inline T Get(Lane<T> v) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return std::bit_cast<T>(v);
  } else {
    return static_cast<T>(v);
  }
}

template <class T>
inline Lane<T> Put(T v) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return std::bit_cast<Lane<T>>(v);
  } else {
    return static_cast<Lane<T>>(static_cast<std::make_unsigned_t<T>>(v));
  }
}

template <class F>
__attribute__((always_inline)) inline void ForLanes(uint32_t mask, F f) {
  if (mask == kFullMask) {
#pragma GCC ivdep
    for (uint32_t i = 0; i < kLanes; ++i) f(i);
  } else {
    for (uint32_t m = mask; m != 0; m &= m - 1) f(static_cast<uint32_t>(__builtin_ctz(m)));
  }
}

// Sets d[lane] to f(lane) for each lane of `mask`. f() must be defined for other lanes, too: where
// most lanes are in the mask, computing all 32 in vectors takes less time than computing some.
template <class D, class F>
__attribute__((always_inline)) inline void SetLanes(uint32_t mask, D* d, F f) {
  if (mask == kFullMask) {
#pragma GCC ivdep
    for (uint32_t i = 0; i < kLanes; ++i) d[i] = f(i);
  } else if (kSelectsLanes && __builtin_popcount(mask) > kFewLanes) {
    const D lanes = mask;
#pragma GCC ivdep
    for (uint32_t i = 0; i < kLanes; ++i) d[i] = (lanes >> i & 1) != 0 ? f(i) : d[i];
  } else {
    for (uint32_t m = mask; m != 0; m &= m - 1) {
      const uint32_t i = static_cast<uint32_t>(__builtin_ctz(m));
      d[i] = f(i);
    }
  }
}

// Returns f(lane) as a bit of each lane of `mask`. The other bits are undefined.
template <class F>
__attribute__((always_inline)) inline uint32_t CollectLanes(uint32_t mask, F f) {
  uint32_t result = 0;
  if (mask == kFullMask || __builtin_popcount(mask) > kFewLanes) {
    for (uint32_t i = 0; i < kLanes; ++i) result |= static_cast<uint32_t>(f(i)) << i;
  } else {
    for (uint32_t m = mask; m != 0; m &= m - 1) {
      const uint32_t i = static_cast<uint32_t>(__builtin_ctz(m));
      result |= static_cast<uint32_t>(f(i)) << i;
    }
  }
  return result;
}

// --- shapes ---

template <class D, class A, class Op>
void Map1(Context& c, const Instr& in, uint32_t mask) {
  Lane<D>* d = c.Dst<Lane<D>>(in.d);
  const Lane<A>* a = c.Src<Lane<A>>(in.a);
  SetLanes(mask, d, [=](uint32_t i) { return Put<D>(Op::Do(Get<A>(a[i]))); });
}

template <class D, class A, class B, class Op>
void Map2(Context& c, const Instr& in, uint32_t mask) {
  Lane<D>* d = c.Dst<Lane<D>>(in.d);
  const Lane<A>* a = c.Src<Lane<A>>(in.a);
  const Lane<B>* b = c.Src<Lane<B>>(in.b);
  SetLanes(mask, d, [=](uint32_t i) { return Put<D>(Op::Do(Get<A>(a[i]), Get<B>(b[i]))); });
}

template <class D, class A, class B, class C, class Op>
void Map3(Context& c, const Instr& in, uint32_t mask) {
  Lane<D>* d = c.Dst<Lane<D>>(in.d);
  const Lane<A>* a = c.Src<Lane<A>>(in.a);
  const Lane<B>* b = c.Src<Lane<B>>(in.b);
  const Lane<C>* e = c.Src<Lane<C>>(in.c);
  SetLanes(mask, d,
           [=](uint32_t i) { return Put<D>(Op::Do(Get<A>(a[i]), Get<B>(b[i]), Get<C>(e[i]))); });
}

// A type so wide that C++'s promotion to int cannot overflow.
template <class T>
using Arith = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
using Unsigned = std::make_unsigned_t<T>;

inline float Flush(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : v;
}

}  // namespace
}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
