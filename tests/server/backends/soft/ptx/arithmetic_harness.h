// Runs an instruction on many inputs and compares every result with a reference, bit by bit.
#pragma once

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {

template <class T>
std::vector<T> InterestingValues() {
  if constexpr (std::is_floating_point_v<T>) {
    using L = std::numeric_limits<T>;
    return {T(0),
            T(-0.0),
            T(1),
            T(-1),
            T(0.5),
            T(1.5),
            T(2.5),
            T(-2.5),
            T(3),
            T(1e10),
            T(-1e10),
            T(2147483648.0),
            T(-2147483649.0),
            T(4294967296.0),
            T(9.3e18),
            T(1.9e19),
            L::min(),
            L::denorm_min(),
            -L::denorm_min(),
            L::max(),
            L::lowest(),
            L::infinity(),
            -L::infinity(),
            L::quiet_NaN(),
            T(1) + L::epsilon(),
            T(0.1),
            T(255.5),
            T(65504),
            T(65520)};
  } else {
    using L = std::numeric_limits<T>;
    return {T(0),
            T(1),
            T(2),
            T(3),
            T(7),
            T(31),
            T(32),
            T(33),
            T(63),
            T(64),
            T(127),
            T(128),
            T(255),
            L::max(),
            L::min(),
            T(L::max() - 1),
            T(L::min() + 1),
            T(~T(0)),
            T(L::max() / 2),
            T(0x5a)};
  }
}

// First all pairs of interesting values, then random bits. Every second random float has a moderate
// exponent.
template <class T>
T RandomValue(std::mt19937_64& random) {
  const uint64_t bits = random();
  if constexpr (std::is_same_v<T, float>) {
    if (random() % 2 == 0)
      return std::ldexp(static_cast<float>(static_cast<int32_t>(bits)),
                        static_cast<int>(random() % 40) - 40);
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  } else if constexpr (std::is_same_v<T, double>) {
    if (random() % 2 == 0)
      return std::ldexp(static_cast<double>(static_cast<int64_t>(bits)),
                        static_cast<int>(random() % 80) - 80);
    return std::bit_cast<double>(bits);
  } else {
    return static_cast<T>(bits >> (random() % 3 == 0 ? random() % 64 : 0));
  }
}

inline std::string RegisterType(size_t size) {
  return size == 8 ? ".b64" : size == 4 ? ".b32" : ".b16";
}
inline std::string MemoryType(size_t size) {
  return size == 8 ? ".b64" : size == 4 ? ".b32" : size == 2 ? ".b16" : ".u8";
}

// Returns a kernel in which each thread reads %a, %b and %c from three arrays and stores %o.
inline std::string InstructionKernel(const std::string& body, size_t o, size_t a, size_t b,
                                     size_t c) {
  std::ostringstream s;
  s << ".version 8.6\n.target sm_90\n.address_size 64\n"
    << ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 po) {\n"
    << ".reg .b32 %t<4>; .reg .b64 %x<12>; .reg .pred %p, %q, %s;\n"
    << ".reg " << RegisterType(a) << " %a; .reg " << RegisterType(b) << " %b; .reg "
    << RegisterType(c) << " %c; .reg " << RegisterType(o) << " %o;\n"
    << "mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x; mad.lo.u32 %t0, %t1, "
       "%t2, %t0;\n";
  const std::pair<const char*, size_t> parameters[] = {{"pa", a}, {"pb", b}, {"pc", c}, {"po", o}};
  int i = 0;
  for (const auto& [name, size] : parameters) {
    s << "ld.param.u64 %x" << i << ", [" << name << "]; mul.wide.u32 %x" << i + 4 << ", %t0, "
      << size << "; add.u64 %x" << i << ", %x" << i << ", %x" << i + 4 << ";\n";
    ++i;
  }
  s << "ld.global" << MemoryType(a) << " %a, [%x0];\nld.global" << MemoryType(b)
    << " %b, [%x1];\nld.global" << MemoryType(c) << " %c, [%x2];\n"
    << body << "\nst.global" << MemoryType(o) << " [%x3], %o;\nret;\n}\n";
  return s.str();
}

template <class T>
bool SameBits(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x && y != y) return true;
  }
  return std::memcmp(&x, &y, sizeof(T)) == 0;
}

// Fills `values` with as many interesting values as there are pairs, in the order of `index`, and
// then with random ones.
template <class T>
void Fill(T* values, size_t count, size_t pairs, absl::FunctionRef<size_t(size_t)> index,
          uint64_t seed) {
  const std::vector<T> interesting = InterestingValues<T>();
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < count; ++i) {
    values[i] = i < pairs ? interesting[index(i) % interesting.size()] : RandomValue<T>(random);
  }
}

// Runs `kernel` of blocks of `block` threads.
inline void RunInstruction(const std::string& kernel, Memory& memory, uint32_t blocks,
                           uint32_t block, const Params& params,
                           NativeUse native = NativeUse::kAtOnce) {
  Program program(&memory, kernel);
  LaunchConfig config = Config(blocks, block, params);
  config.native = native;
  const Result result = program.Run("k", config);
  REQUIRE(result.fault.ToString() == Fault{}.ToString());
}

template <class T>
std::string Text(T value) {
  std::ostringstream text;
  text << +value;
  return text.str();
}

inline void ReportDifference(const std::string& body, size_t index, const std::string& inputs,
                             const std::string& want, const std::string& got) {
  INFO(body << " index " << index << ": " << inputs);
  CHECK(got == want);
  // Two values may differ and have the same text.
  if (got == want) FAIL_CHECK("the bits differ");
}

// `body` computes %o from %a, %b and %c. It is instantiated for many types, so it holds only what
// depends on all of them.
template <class D, class A, class B, class C>
void CheckInstruction(const std::string& body, absl::FunctionRef<D(A, B, C)> reference,
                      uint64_t seed = 1) {
  Memory memory;
  const size_t many = InterestingValues<A>().size();
  const size_t pairs = many * InterestingValues<B>().size();
  // Blocks of 45 threads have a whole warp and a part of a warp.
  constexpr uint32_t kBlock = 45;
  const uint32_t blocks = static_cast<uint32_t>((pairs + 600 + kBlock - 1) / kBlock);
  const size_t n = size_t{blocks} * kBlock;
  A* a = memory.New<A>(n);
  B* b = memory.New<B>(n);
  C* c = memory.New<C>(n);
  D* o = memory.New<D>(n);
  Fill(
      a, n, pairs, [](size_t i) { return i; }, seed);
  Fill(
      b, n, pairs, [many](size_t i) { return i / many; }, seed + 1);
  Fill(
      c, n, pairs, [](size_t i) { return i * 7 + i / 13; }, seed + 2);
  const std::string kernel = InstructionKernel(body, sizeof(D), sizeof(A), sizeof(B), sizeof(C));
  RunInstruction(kernel, memory, blocks, kBlock, Params().Add(a).Add(b).Add(c).Add(o),
                 NativeUse::kNever);
  D* native = memory.New<D>(n);
  RunInstruction(kernel, memory, blocks, kBlock, Params().Add(a).Add(b).Add(c).Add(native));
  // NaNs have the same bits, too.
  if (std::memcmp(o, native, n * sizeof(D)) != 0) {
    size_t i = 0;
    while (std::memcmp(o + i, native + i, sizeof(D)) == 0) ++i;
    ReportDifference("native code: " + body, i, Text(a[i]) + ", " + Text(b[i]) + ", " + Text(c[i]),
                     Text(o[i]), Text(native[i]));
  }
  int shown = 0;
  for (size_t i = 0; i < n && shown < 5; ++i) {
    const D want = reference(a[i], b[i], c[i]);
    if (SameBits(want, o[i])) continue;
    ReportDifference(body, i, Text(a[i]) + ", " + Text(b[i]) + ", " + Text(c[i]), Text(want),
                     Text(o[i]));
    ++shown;
  }
}

template <class D, class A, class B, class F>
void Check2(const std::string& body, F reference) {
  CheckInstruction<D, A, B, uint32_t>(
      body, [&](A a, B b, uint32_t) { return static_cast<D>(reference(a, b)); });
}
template <class D, class A, class F>
void Check1(const std::string& body, F reference) {
  CheckInstruction<D, A, uint8_t, uint8_t>(
      body, [&](A a, uint8_t, uint8_t) { return static_cast<D>(reference(a)); });
}

}  // namespace detshare::soft::ptx::testing
