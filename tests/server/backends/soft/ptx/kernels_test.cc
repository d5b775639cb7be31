// Compares kernels that nvcc compiled with references on the host.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>

#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

const std::string& Kernels() {
  static const std::string* const kText = [] {
    std::ifstream file("tests/server/backends/soft/ptx/kernels.ptx");
    std::stringstream text;
    text << file.rdbuf();
    return new std::string(text.str());
  }();
  return *kText;
}

struct Fixture {
  Memory memory;
  Program program{&memory, Kernels()};

  template <class T>
  T* Zeros(size_t n) {
    return memory.New<T>(n);
  }
  void MustRun(std::string_view kernel, LaunchConfig config, int threads = 1,
               uint64_t budget = 100000) {
    const Result result = program.Run(kernel, std::move(config), threads, budget);
    REQUIRE(result.fault.ToString() == Fault{}.ToString());
  }
  Fault MustFault(std::string_view kernel, LaunchConfig config) {
    const Result result = program.Run(kernel, std::move(config));
    CAPTURE(result.fault.ToString());
    REQUIRE(result.fault.kind != FaultKind::kNone);
    CHECK(result.fault.kernel == kernel);
    CHECK(result.fault.line > 0);
    return result.fault;
  }
};

int DivergentLoopsReference(int i) {
  static constexpr int kCoefficients[4] = {3, 5, 7, 11};
  int sum = 0;
  for (int k = 0; k < i % 37; ++k) {
    if (k % 3 == 0) {
      if (i % 2) {
        sum += k;
      } else {
        sum -= 2 * k;
        if (sum < -100) break;
      }
    } else if (k % 7 == 2) {
      continue;
    } else {
      sum += kCoefficients[k & 3];
    }
  }
  switch (i % 5) {
    case 0:
      return sum * 2;
    case 1:
      return sum + 1000;
    case 2:
      return sum ^ 0x55;
    case 3:
      return -sum;
    default:
      return sum;
  }
}

TEST_CASE_METHOD(Fixture, "Divergent loops and switches give each thread its own result") {
  int* out = Zeros<int>(1000);
  MustRun("divergent_loops", Config(9, 123, Params().Add(out).Add(1000)));
  for (int i = 0; i < 1000; ++i) REQUIRE(out[i] == DivergentLoopsReference(i));
}

TEST_CASE_METHOD(Fixture, "The size of the budget changes neither results nor costs") {
  int* out = Zeros<int>(1000);
  const LaunchConfig config = Config(9, 123, Params().Add(out).Add(1000));
  const Result whole = program.Run("divergent_loops", config, 1, 1u << 30);
  std::fill_n(out, 1000, 0);
  const Result pieces = program.Run("divergent_loops", config, 2, 1);
  CHECK(whole.counters.instructions == pieces.counters.instructions);
  CHECK(whole.counters.global_bytes_written == 4000);
  CHECK(pieces.counters.global_bytes_written == 4000);
  CHECK(whole.counters.global_sectors == pieces.counters.global_sectors);
  for (int i = 0; i < 1000; ++i) REQUIRE(out[i] == DivergentLoopsReference(i));
}

TEST_CASE_METHOD(Fixture, "Recursion diverges and returns") {
  int* out = Zeros<int>(64);
  MustRun("recursion", Config(1, 64, Params().Add(out)));
  const int fibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  for (int i = 0; i < 64; ++i) CHECK(out[i] == fibonacci[i % 12]);
}

TEST_CASE_METHOD(Fixture, "Endless recursion overflows the stack and nothing else") {
  int* out = Zeros<int>(64);
  CHECK(MustFault("endless_recursion", Config(1, 64, Params().Add(out))).kind ==
        FaultKind::kStackOverflow);
}

TEST_CASE_METHOD(Fixture,
                 "Function pointers and virtual functions go to each thread's own target") {
  int* out = Zeros<int>(64);
  MustRun("function_pointers", Config(1, 64, Params().Add(out)));
  for (int i = 0; i < 64; ++i) CHECK(out[i] == (i % 3 == 0 ? 2 * i : i % 3 == 1 ? i * i : -i));
  MustRun("virtual_calls", Config(1, 64, Params().Add(out)));
  for (int i = 0; i < 64; ++i) CHECK(out[i] == (i % 2 ? 42 : 1));
}

TEST_CASE_METHOD(Fixture, "A spin lock admits every thread of every block once") {
  int* lock = Zeros<int>(1);
  int* value = Zeros<int>(1);
  MustRun("spin_lock", Config(6, 96, Params().Add(lock).Add(value)), 2, 5000);
  CHECK(*value == 6 * 96);
}

TEST_CASE_METHOD(Fixture, "A thread may wait for another thread of its warp after a branch") {
  int* flag = Zeros<int>(1);
  int* out = Zeros<int>(1);
  MustRun("lane_handoff", Config(1, 32, Params().Add(flag).Add(out)));
  CHECK(out[0] == 7);
}

TEST_CASE_METHOD(Fixture,
                 "Blocks that wait for later blocks make progress when all are in flight") {
  for (int threads : {1, 2}) {
    int* flags = Zeros<int>(20);
    int* out = Zeros<int>(20);
    LaunchConfig config = Config(20, 32, Params().Add(flags).Add(out));
    config.cooperative = true;
    MustRun("block_flags", config, threads, 2000);
    for (int i = 0; i < 20; ++i) CHECK(out[i] == 20 - i);
  }
}

TEST_CASE_METHOD(Fixture, "A cooperative grid synchronises") {
  for (int threads : {1, 2}) {
    constexpr int kThreads = 8 * 64;
    int* data = Zeros<int>(kThreads);
    for (int i = 0; i < kThreads; ++i) data[i] = i * i;
    LaunchConfig config = Config(8, 64, Params().Add(data).Add(5));
    config.cooperative = true;
    config.grid_workspace_address = memory.Allocate(64);
    config.grid_workspace_bytes = 64;
    MustRun("grid_sync", config, threads, 3000);
    for (int i = 0; i < kThreads; ++i) {
      const int from = (i + 5) % kThreads;
      REQUIRE(data[i] == from * from + 5);
    }
  }
}

TEST_CASE_METHOD(Fixture, "Block barriers order shared memory and reduce predicates") {
  int* out = Zeros<int>(200);
  int* votes = Zeros<int>(600);
  MustRun("barriers", Config(1, 200, Params().Add(out).Add(votes)));
  for (int t = 0; t < 200; ++t) {
    CHECK(out[t] == (199 - t) * 3);
    CHECK(votes[3 * t] == 67);
    CHECK(votes[3 * t + 1] == 1);
    CHECK(votes[3 * t + 2] == 1);
  }
  MustRun("early_exit_barrier", Config(1, 100, Params().Add(out)));
  for (int t = 0; t < 40; ++t) CHECK(out[t] == 5);
  MustRun("named_barriers", Config(1, 128, Params().Add(out)));
  for (int t = 0; t < 128; ++t) CHECK(out[t] == t / 64 * 64 + 63 - t % 64);
}

TEST_CASE_METHOD(Fixture, "Shuffles, votes, matches and reductions see the right lanes") {
  constexpr unsigned kThreads = 64;
  unsigned* out = Zeros<unsigned>(kThreads);
  unsigned* masks = Zeros<unsigned>(8 * kThreads);
  MustRun("warp_operations", Config(1, kThreads, Params().Add(out).Add(masks)));
  for (unsigned t = 0; t < kThreads; ++t) {
    const unsigned lane = t % 32, base = t - lane;
    auto v = [&](unsigned l) { return (base + l) * 7 + 1; };
    unsigned r = v((lane * 5) & 31);
    r = r * 31 + v(lane >= 3 ? lane - 3 : lane);
    r = r * 31 + v(lane % 16 + 5 < 16 ? lane + 5 : lane);
    r = r * 31 + v((lane ^ 9) / 8 == lane / 8 ? lane ^ 9 : (lane ^ 9) < lane ? lane ^ 9 : lane);
    CHECK(out[t] == r);
    unsigned ballot = 0, match = 0, sum = 0;
    for (unsigned l = 0; l < 32; ++l) {
      ballot |= (l % 3 == 1 ? 1u : 0u) << l;
      match |= (l / 5 == lane / 5 ? 1u : 0u) << l;
      sum += v(l);
    }
    CHECK(masks[8 * t] == ballot);
    CHECK(masks[8 * t + 1] == match);
    CHECK(masks[8 * t + 2] == 0u);  // all ones and one
    CHECK(masks[8 * t + 3] == sum);
    CHECK(static_cast<int>(masks[8 * t + 4]) == static_cast<int>(v(0)) - 300);
    CHECK(masks[8 * t + 5] == 2);
    CHECK(masks[8 * t + 6] == (lane < 11 ? 0x7ffu : 0xfffff800u));
    CHECK(masks[8 * t + 7] == (lane < 11 ? v(10) : 1));
  }
}

TEST_CASE_METHOD(Fixture, "Lanes of different paths meet in one shuffle") {
  int* out = Zeros<int>(32);
  MustRun("diverged_shuffle", Config(1, 32, Params().Add(out)));
  for (int lane = 0; lane < 32; ++lane) {
    const int from = lane ^ 1;
    int v = -from;
    if (from & 1) {
      v = from * 10;
      for (int i = 0; i < from; ++i) v += i & 5;
    }
    CHECK(out[lane] == v);
  }
}

TEST_CASE_METHOD(Fixture, "Lanes meet in shuffles, votes and reductions of different branches") {
  int* out = Zeros<int>(32);
  for (const int odd : {0, 1}) {
    MustRun("shuffles_in_branches", Config(1, 32, Params().Add(out).Add(odd)));
    const auto first = [odd](int lane) { return (lane & 1) == odd; };
    int ballot = 0, sum = 0;
    for (int lane = 0; lane < 32; ++lane) {
      ballot += first(lane) ? lane < 7 : lane >= 9;
      sum += first(lane) ? lane : 1;
    }
    for (int lane = 0; lane < 32; ++lane) {
      const int from = (lane + (first(lane) ? 2 : 3)) % 32;
      int v = from * (first(from) ? 10 : 20) + (first(lane) ? 1 : 2);
      v = v * (first(lane) ? 1000 : 2000) + ballot;
      if (first(31 - odd)) v += first(lane) ? 500 : 700;
      CHECK(out[lane] == (first(lane) ? v + sum * 100000 : -v - sum * 100000));
    }
  }
  unsigned* masks = Zeros<unsigned>(128);
  MustRun("matches_in_branches", Config(1, 32, Params().Add(masks)));
  for (int lane = 0; lane < 32; ++lane) {
    const auto value = [](int l) { return l < 11 ? l / 4 : l / 8; };
    unsigned same = 0;
    for (int l = 0; l < 32; ++l) same |= static_cast<unsigned>(value(l) == value(lane)) << l;
    const unsigned* const m = masks + 4 * lane;
    CHECK((lane < 11 ? m[0] : m[3] ^ 1) == same);
    CHECK((lane < 11 ? m[1] : m[0]) == ~0u);
    CHECK((lane < 11 ? m[2] : m[1]) == (lane < 11 ? 1 : 6));
  }
}

TEST_CASE_METHOD(Fixture, "Quotients and remainders of 128-bit integers are those of the host") {
  using u128 = unsigned __int128;
  constexpr int kThreads = 256;
  u128* a = Zeros<u128>(kThreads);
  u128* b = Zeros<u128>(kThreads);
  u128* out = Zeros<u128>(2 * kThreads);
  __int128* signed_out = Zeros<__int128>(2 * kThreads);
  std::mt19937_64 random(1);
  const auto any = [&] {
    const u128 v = static_cast<u128>(random()) << 64 | random();
    return random() % 4 == 0 ? ~(v >> random() % 127) : v >> random() % 127;
  };
  for (int i = 0; i < kThreads; ++i) {
    a[i] = any();
    b[i] = any() | 1;
  }
  MustRun("divisions_of_128_bits",
          Config(1, kThreads, Params().Add(a).Add(b).Add(out).Add(signed_out)));
  for (int i = 0; i < kThreads; ++i) {
    const auto x = static_cast<__int128>(a[i]), y = static_cast<__int128>(b[i]);
    CHECK((out[2 * i] == a[i] / b[i] && out[2 * i + 1] == a[i] % b[i]));
    CHECK((signed_out[2 * i] == x / y && signed_out[2 * i + 1] == x % y));
  }
}

TEST_CASE_METHOD(Fixture, "Cooperative groups tile a block") {
  int* out = Zeros<int>(64);
  MustRun("tiles", Config(1, 64, Params().Add(out)));
  for (int t = 0; t < 64; ++t) {
    const int first = t / 8 * 8;
    int want = first * 8 + 28 + 32 * 100000;
    if (t % 3 == 0) {
      int size = 0, rank = 0;
      for (int l = t / 32 * 32; l < t / 32 * 32 + 32; ++l) {
        if (l % 3 == 0) {
          ++size;
          if (l < t) ++rank;
        }
      }
      want += 1000 * size + rank;
    }
    CHECK(out[t] == want);
  }
}

TEST_CASE_METHOD(Fixture, "Groups of several warps leave the block's own shared memory alone") {
  int* out = Zeros<int>(512);
  LaunchConfig config = Config(2, 256, Params().Add(out));
  config.dynamic_shared_bytes = 1024;
  MustRun("tiles_of_warps", config);
  for (int t = 0; t < 256; ++t) {
    const int first = t / 128 * 128;
    CHECK(out[t] == 5 * (128 * first + 127 * 64) + 10 * 128 + 5 * 1000000);
    CHECK(out[256 + t] == 4 * (255 - t));
  }
}

TEST_CASE_METHOD(Fixture, "Atomics of all kinds add up over blocks on several threads") {
  int* a = Zeros<int>(16);
  uint64_t* w = Zeros<uint64_t>(2);
  float* f = Zeros<float>(1);
  double* d = Zeros<double>(1);
  a[12] = -1;
  a[10] = 4;
  constexpr int kBlocks = 10, kThreads = 128;
  MustRun("atomics", Config(kBlocks, kThreads, Params().Add(a).Add(w).Add(f).Add(d)), 2);
  uint64_t wide = 0;
  float sum = 0;
  double half = 0;
  for (int t = 0; t < kThreads; ++t) {
    wide += static_cast<uint64_t>(t) << 30;
    sum += static_cast<float>(t % 16);
    half += 0.5 * t;
  }
  CHECK(a[8] == -50);
  CHECK(a[9] == (kBlocks * kThreads) % 7);
  unsigned down = 4;
  for (int i = 0; i < kBlocks * kThreads; ++i) down = down == 0 || down > 9 ? 9 : down - 1;
  CHECK(static_cast<unsigned>(a[10]) == down);
  CHECK(a[11] == 0xfffff);
  CHECK(static_cast<unsigned>(a[12]) == 0xfff00000u);
  CHECK(a[13] == 0);
  CHECK(a[15] == 99);
  CHECK(w[0] == kBlocks * wide);
  CHECK(w[1] == uint64_t{127} << 33);
  CHECK(*f == kBlocks * sum);
  CHECK(*d == kBlocks * half);
}

TEST_CASE_METHOD(Fixture, "Device printf formats as the host does") {
  MustRun("formats", Config(1, 1, Params().Add(42)));
  char want[1024];
  int n = std::snprintf(want, sizeof want, "%d %5d|%-5d|%05d %u %x %X %o %c %%\n", -42, 42, 42, 42,
                        7u, 255, 255, 8, 'q');
  n += std::snprintf(want + n, sizeof want - n, "%f %.3f %10.2e %g %lld %llu %lx %s|%10s|%.2s %p\n",
                     1.5, 2.25, 12345.678, 0.1, -5000000000ll, 5000000000ull, 255ul, "text", "pad",
                     "cut", reinterpret_cast<void*>(0x1234));
  CHECK(memory.output() == std::string(want, n));
}

TEST_CASE_METHOD(Fixture, "Kernels allocate and free memory") {
  int** pointers = Zeros<int*>(32);
  int* sums = Zeros<int>(32);
  MustRun("heap", Config(1, 32, Params().Add(pointers).Add(sums)));
  for (int t = 0; t < 32; ++t) CHECK(sums[t] == 16 * ((t + 1) % 32) + 120);
}

TEST_CASE_METHOD(Fixture, "Faults name the kind, kernel, block, thread and line") {
  int* p = Zeros<int>(64);
  Fault fault = MustFault("assertion", Config(2, 40, Params().Add(33)));
  CHECK(fault.kind == FaultKind::kAssert);
  const std::string text = memory.output();
  CHECK(text.find("kernels.cu:") != std::string::npos);
  CHECK(text.find(": block: [0,0,0], thread: [33,0,0] Assertion `threadIdx.x < n` failed.\n") !=
        std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 7);

  fault = MustFault("trap", Config(1, 64, Params()));
  CHECK(fault.kind == FaultKind::kTrap);
  CHECK(fault.thread[0] == 33);

  MustRun("out_of_bounds", Config(1, 32, Params().Add(p).Add(32)));
  fault = MustFault("out_of_bounds", Config(1, 32, Params().Add(p).Add(40)));
  CHECK(fault.kind == FaultKind::kIllegalAddress);
  CHECK(fault.address == reinterpret_cast<uint64_t>(p + 64));
  CHECK(fault.thread[0] == 24);

  fault = MustFault("misaligned", Config(1, 32, Params().Add(p)));
  CHECK(fault.kind == FaultKind::kMisalignedAddress);
  CHECK(fault.thread[0] == 1);

  fault = MustFault("null_read", Config(1, 32, Params().Add<int*>(nullptr).Add(p)));
  CHECK(fault.kind == FaultKind::kIllegalAddress);
  CHECK(fault.address == 0);

  CHECK(MustFault("shared_out_of_bounds", Config(1, 1, Params().Add(5000))).kind ==
        FaultKind::kIllegalAddress);
  CHECK(program.Run("deadlock", Config(1, 64, Params())).fault.kind == FaultKind::kDeadlock);
}

TEST_CASE_METHOD(Fixture, "Structures by value and local arrays keep their contents") {
  struct Big {
    int values[20];
    double scale;
  } big;
  for (int i = 0; i < 20; ++i) big.values[i] = i * i;
  big.scale = 1.5;
  int* out = Zeros<int>(64);
  MustRun("by_value", Config(1, 64, Params().Add(big).Add(out)));
  for (int t = 0; t < 64; ++t) {
    const int local = big.values[((t * 3) % 20 * 7) % 20];
    CHECK(out[t] == static_cast<int>(local * 1.5) + big.values[t % 20]);
  }
}

TEST_CASE_METHOD(Fixture, "Globals start with their initialisers, also addresses of each other") {
  CHECK(*program.Global<int>("counter") == 40);
  int* out = Zeros<int>(1);
  MustRun("globals", Config(1, 1, Params().Add(out)));
  CHECK(out[0] == 41);
  CHECK(*program.Global<int>("counter") == 41);
}

TEST_CASE_METHOD(Fixture, "Dynamic shared memory lies behind the static one") {
  int* out = Zeros<int>(500);
  LaunchConfig config = Config(1, 64, Params().Add(out).Add(500));
  config.dynamic_shared_bytes = 2000;
  MustRun("dynamic_shared", config);
  for (int i = 0; i < 500; ++i) CHECK(out[i] == 499 - i + i % 3 * 100);
}

TEST_CASE_METHOD(Fixture, "Generic addresses reach shared, local and constant memory") {
  int* out = Zeros<int>(32);
  MustRun("generic_addresses", Config(1, 32, Params().Add(out)));
  const int coefficients[] = {3, 5, 7, 11};
  for (int t = 0; t < 32; ++t) {
    const int local[] = {1, 2, 3, t};
    CHECK(out[t] == (t % 3 == 0 ? (31 - t) * 2 : t % 3 == 1 ? local[t % 4] : coefficients[t % 4]));
  }
}

TEST_CASE_METHOD(Fixture, "Blocks of a cluster read each other's shared memory") {
  int* out = Zeros<int>(8 * 32);
  LaunchConfig config = Config(8, 32, Params().Add(out));
  config.cluster = {4, 1, 1};
  MustRun("cluster_exchange", config);
  for (int b = 0; b < 8; ++b) {
    for (int t = 0; t < 32; ++t) CHECK(out[b * 32 + t] == (b % 4 + 1) % 4 * 100 + 31 - t);
  }
}

TEST_CASE_METHOD(Fixture, "Asynchronous copies complete on their barrier") {
  int* in = Zeros<int>(64);
  int* out = Zeros<int>(192);
  std::iota(in, in + 64, 1000);
  MustRun("block_barrier", Config(1, 64, Params().Add(out).Add(in)));
  for (int i = 0; i < 192; ++i) CHECK(out[i] == 1000 + (i % 64 + i / 64) % 64);
}

TEST_CASE_METHOD(Fixture, "A tiled matrix product equals the sum in the same order") {
  constexpr int kN = 64;
  float* a = Zeros<float>(kN * kN);
  float* b = Zeros<float>(kN * kN);
  float* c = Zeros<float>(kN * kN);
  for (int i = 0; i < kN * kN; ++i) {
    a[i] = static_cast<float>(i * 7 % 13) * 0.37f - 2;
    b[i] = static_cast<float>(i * 5 % 11) * 0.21f - 1;
  }
  LaunchConfig config;
  config.grid = {kN / 16, kN / 16, 1};
  config.block = {16, 16, 1};
  config.params = Params().Add(a).Add(b).Add(c).Add(kN).bytes();
  MustRun("matrix_product", config, 2);
  for (int i = 0; i < kN; ++i) {
    for (int j = 0; j < kN; ++j) {
      float sum = 0;
      for (int k = 0; k < kN; ++k) sum = std::fma(a[i * kN + k], b[k * kN + j], sum);
      REQUIRE(c[i * kN + j] == sum);
    }
  }
}

// Returns a small integer as a half.
uint16_t Half(int v) {
  if (v == 0) return 0;
  const int magnitude = std::abs(v);
  const int exponent = 31 - std::countl_zero(static_cast<uint32_t>(magnitude));
  return static_cast<uint16_t>((v < 0 ? 0x8000 : 0) | (exponent + 15) << 10 |
                               ((magnitude << (10 - exponent)) & 0x3ff));
}

TEST_CASE_METHOD(Fixture, "Matrix instructions multiply small integers exactly") {
  uint16_t* a = Zeros<uint16_t>(256);
  uint16_t* b = Zeros<uint16_t>(256);
  float* c = Zeros<float>(256);
  int8_t* a8 = Zeros<int8_t>(256);
  int8_t* b8 = Zeros<int8_t>(256);
  int* c32 = Zeros<int>(256);
  auto va = [](int i) { return i * 7 % 23 - 11; };
  auto vb = [](int i) { return i * 5 % 19 - 9; };
  for (int i = 0; i < 256; ++i) {
    a[i] = Half(va(i));
    b[i] = Half(vb(i));
    a8[i] = static_cast<int8_t>(va(i));
    b8[i] = static_cast<int8_t>(vb(i));
    c[i] = static_cast<float>(i);
  }
  MustRun("wmma_half", Config(1, 32, Params().Add(a).Add(b).Add(c)));
  MustRun("wmma_bytes", Config(1, 32, Params().Add(a8).Add(b8).Add(c32)));
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      int sum = 0;
      for (int k = 0; k < 16; ++k) sum += va(i * 16 + k) * vb(j * 16 + k);
      CHECK(c[i * 16 + j] == 2 * (static_cast<float>(sum) + static_cast<float>(i * 16 + j)));
      CHECK(c32[i * 16 + j] == sum + 5);
    }
  }
  MustRun("mma_half", Config(1, 32, Params().Add(a).Add(b).Add(c)));
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      int sum = 0;
      for (int k = 0; k < 16; ++k) sum += va(i * 16 + k) * vb(k * 8 + j);
      CHECK(c[i * 8 + j] == static_cast<float>(sum) + 0.5f);
    }
  }
}

TEST_CASE_METHOD(Fixture, "Matrix instructions take floats of eight and integers of four bits") {
  uint32_t* a = Zeros<uint32_t>(128);  // 16 rows
  uint32_t* b = Zeros<uint32_t>(64);   // 8 columns
  float* floats = Zeros<float>(128);
  int* integers = Zeros<int>(128);
  // Codes of small numbers, so that all sums are exact.
  for (uint32_t i = 0; i < 128; ++i) a[i] = (i * 2654435761u & 0x0f0f0f0fu) | 0x30303030u;
  for (uint32_t i = 0; i < 64; ++i) b[i] = (i * 2246822519u & 0x87878787u) | 0x38383838u;
  MustRun("mma_narrow", Config(1, 32, Params().Add(a).Add(b).Add(floats).Add(integers)));
  const auto bits = [](const uint32_t* words, int i, int count) {
    return words[i * count / 32] >> i * count % 32 & ((1u << count) - 1);
  };
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      double sum = 0.5;
      for (int k = 0; k < 32; ++k) {
        const uint32_t x = bits(a + i * 8, k, 8), y = bits(b + j * 8, k, 8);
        sum += std::ldexp(8 + (x & 7), static_cast<int>(x >> 3 & 15) - 10) *
               std::ldexp(4 + (y & 3), static_cast<int>(y >> 2 & 31) - 17) * (y >= 128 ? -1 : 1);
      }
      CHECK(floats[i * 8 + j] == static_cast<float>(sum));
      int count = 1;
      for (int k = 0; k < 64; ++k) {
        const int x = static_cast<int>(bits(a + i * 8, k, 4));
        count += (x < 8 ? x : x - 16) * static_cast<int>(bits(b + j * 8, k, 4));
      }
      CHECK(integers[i * 8 + j] == count);
    }
  }
}

TEST_CASE_METHOD(Fixture, "Clocks advance while a kernel polls them") {
  int64_t* out = Zeros<int64_t>(1);
  MustRun("timers", Config(1, 1, Params().Add(out)));
  CHECK(*out >= 5000);
  CHECK(*out < 50000);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
