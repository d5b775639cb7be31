// Integer arithmetic of 32 and 64 bits on random and extreme values: every operator and integer
// intrinsic against the host's arithmetic.
#include <string>

#include "check.h"

constexpr int kCount = 4096;

struct Case {
  std::uint32_t a, b, c;
  std::uint32_t padding;
  std::uint64_t x, y;
};

// The intrinsics, implemented for the host.
namespace reference {
inline int Clz(std::uint32_t v) { return v == 0 ? 32 : __builtin_clz(v); }
inline int Clzll(std::uint64_t v) { return v == 0 ? 64 : __builtin_clzll(v); }
inline std::uint64_t Reverse(std::uint64_t v, int bits) {
  std::uint64_t result = 0;
  for (int i = 0; i < bits; ++i) result |= (v >> i & 1) << (bits - 1 - i);
  return result;
}
inline std::uint32_t BytePerm(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<std::uint32_t>(bytes >> (selector >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
  }
  return result;
}
inline std::uint32_t FunnelLeft(std::uint32_t low, std::uint32_t high, std::uint32_t shift) {
  std::uint64_t pair = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<std::uint32_t>(pair << (shift > 32 ? 32 : shift) >> 32);
}
inline std::uint32_t FunnelRight(std::uint32_t low, std::uint32_t high, std::uint32_t shift) {
  std::uint64_t pair = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<std::uint32_t>(pair >> (shift > 32 ? 32 : shift));
}
inline std::int32_t Dot4(std::uint32_t a, std::uint32_t b, std::uint32_t c, bool is_signed) {
  std::uint32_t sum = c;
  for (int i = 0; i < 4; ++i) {
    if (is_signed) {
      sum += static_cast<std::int8_t>(a >> 8 * i) * static_cast<std::int8_t>(b >> 8 * i);
    } else {
      sum += static_cast<std::uint8_t>(a >> 8 * i) * static_cast<std::uint8_t>(b >> 8 * i);
    }
  }
  return static_cast<std::int32_t>(sum);
}
inline std::int32_t Dot2(std::uint32_t a, std::uint32_t b, std::uint32_t c, bool high) {
  std::uint32_t sum = c;
  for (int i = 0; i < 2; ++i) {
    sum += static_cast<std::int16_t>(a >> 16 * i) *
           static_cast<std::int8_t>(b >> 8 * (i + (high ? 2 : 0)));
  }
  return static_cast<std::int32_t>(sum);
}
}  // namespace reference

// The intrinsic on the device, and its reference on the host.
#ifdef __CUDA_ARCH__
#define EITHER(device, host) (device)
#else
#define EITHER(device, host) (host)
#endif

// Takes one result after the other. Result n of a case lies n * kCount values behind the first.
struct Sink {
  std::uint64_t* next;
  int taken;

  __host__ __device__ void operator()(std::uint64_t value) {
    *next = value;
    next += kCount;
    ++taken;
  }
};

__host__ __device__ int Evaluate(const Case& k, std::uint64_t* results) {
  Sink put{results, 0};
  const std::uint32_t a = k.a, b = k.b, c = k.c;
  const std::uint64_t x = k.x, y = k.y;
  const std::int32_t sa = static_cast<std::int32_t>(a), sb = static_cast<std::int32_t>(b);
  const std::int64_t sx = static_cast<std::int64_t>(x), sy = static_cast<std::int64_t>(y);
  const int shift = static_cast<int>(c % 32), wide_shift = static_cast<int>(c % 64);
  const bool safe = sb != 0 && sb != -1, wide_safe = sy != 0 && sy != -1;

  put(a + b);
  put(a - b);
  put(a * b);
  put(a * b + c);
  put(static_cast<std::uint64_t>(a) * b);
  put(static_cast<std::uint64_t>(static_cast<std::int64_t>(sa) * sb));
  put(b == 0 ? 0 : a / b);
  put(b == 0 ? 0 : a % b);
  put(static_cast<std::uint32_t>(safe ? sa / sb : 0));
  put(static_cast<std::uint32_t>(safe ? sa % sb : 0));
  put(a / 7 + a % 10 + static_cast<std::uint32_t>(sa / 1000 + sa % 13));
  put(a << shift);
  put(a >> shift);
  put(static_cast<std::uint32_t>(sa >> shift));
  put((a & b) ^ (c | ~a));
  put(static_cast<std::uint32_t>(sa < sb) | static_cast<std::uint32_t>(a < b) << 1 |
      static_cast<std::uint32_t>(sx < sy) << 2 | static_cast<std::uint32_t>(x <= y) << 3);
  put(static_cast<std::uint32_t>(sa < sb ? sa : sb));
  put(a > b ? a : b);

  put(x + y);
  put(x - y);
  put(x * y);
  put(x * y + a);
  put(y == 0 ? 0 : x / y);
  put(y == 0 ? 0 : x % y);
  put(static_cast<std::uint64_t>(wide_safe ? sx / sy : 0));
  put(static_cast<std::uint64_t>(wide_safe ? sx % sy : 0));
  put(x / 1000000007ull + x % 10 + static_cast<std::uint64_t>(sx / 12345 - sx % 77));
  put(b == 0 ? 0 : x / b);
  put(x << wide_shift);
  put(x >> wide_shift);
  put(static_cast<std::uint64_t>(sx >> wide_shift));
  put((x & y) ^ (x | ~y));
  put(static_cast<std::uint64_t>(sx > sy ? sx : sy));
  const unsigned __int128 product = static_cast<unsigned __int128>(x) * y + x;
  put(static_cast<std::uint64_t>(product));
  put(static_cast<std::uint64_t>(product >> 64));

  // Narrow types.
  put(static_cast<std::uint32_t>(static_cast<std::int8_t>(a) * static_cast<std::int16_t>(b)));
  put(static_cast<std::uint8_t>(a) + static_cast<std::uint16_t>(c));
  put(static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int8_t>(b))));

  put(EITHER(__umulhi(a, b), static_cast<std::uint32_t>(static_cast<std::uint64_t>(a) * b >> 32)));
  put(static_cast<std::uint32_t>(EITHER(
      __mulhi(sa, sb), static_cast<std::int32_t>(static_cast<std::int64_t>(sa) * sb >> 32))));
  put(EITHER(__umul64hi(x, y),
             static_cast<std::uint64_t>(static_cast<unsigned __int128>(x) * y >> 64)));
  put(static_cast<std::uint64_t>(
      EITHER(__mul64hi(sx, sy), static_cast<std::int64_t>(static_cast<__int128>(sx) * sy >> 64))));
  put(EITHER(__umul24(a, b), (a & 0xffffff) * (b & 0xffffff)));
  put(static_cast<std::uint32_t>(EITHER(
      __mul24(sa, sb), static_cast<int>(static_cast<std::int64_t>(static_cast<int>(a << 8) >> 8) *
                                        (static_cast<int>(b << 8) >> 8)))));
  put(static_cast<std::uint32_t>(EITHER(__clz(sa), reference::Clz(a))));
  put(static_cast<std::uint32_t>(EITHER(__clzll(sx), reference::Clzll(x))));
  put(static_cast<std::uint32_t>(EITHER(__popc(a), __builtin_popcount(a))));
  put(static_cast<std::uint32_t>(EITHER(__popcll(x), __builtin_popcountll(x))));
  put(static_cast<std::uint32_t>(EITHER(__ffs(sa), __builtin_ffs(sa))));
  put(static_cast<std::uint32_t>(EITHER(__ffsll(sx), __builtin_ffsll(sx))));
  put(EITHER(__brev(a), static_cast<std::uint32_t>(reference::Reverse(a, 32))));
  put(EITHER(__brevll(x), reference::Reverse(x, 64)));
  put(EITHER(__byte_perm(a, b, c & 0x7777), reference::BytePerm(a, b, c & 0x7777)));
  put(EITHER(__funnelshift_l(a, b, c), reference::FunnelLeft(a, b, c & 31)));
  put(EITHER(__funnelshift_r(a, b, c), reference::FunnelRight(a, b, c & 31)));
  put(EITHER(__funnelshift_lc(a, b, c % 50), reference::FunnelLeft(a, b, c % 50)));
  put(EITHER(__funnelshift_rc(a, b, c % 50), reference::FunnelRight(a, b, c % 50)));
  put(EITHER(__usad(a, b, c), (a > b ? a - b : b - a) + c));
  put(EITHER(__sad(sa, sb, c), (sa > sb ? a - b : b - a) + c));
  put(EITHER(__uhadd(a, b), static_cast<std::uint32_t>((static_cast<std::uint64_t>(a) + b) >> 1)));
  put(EITHER(__urhadd(a, b),
             static_cast<std::uint32_t>((static_cast<std::uint64_t>(a) + b + 1) >> 1)));
  put(static_cast<std::uint32_t>(
      EITHER(__hadd(sa, sb), static_cast<int>((static_cast<std::int64_t>(sa) + sb) >> 1))));
  put(static_cast<std::uint32_t>(EITHER(abs(sa >> 1), sa >> 1 < 0 ? -(sa >> 1) : sa >> 1)));
  put(static_cast<std::uint32_t>(
      EITHER(__dp4a(sa, sb, static_cast<int>(c)), reference::Dot4(a, b, c, true))));
  put(static_cast<std::uint32_t>(EITHER(__dp4a(a, b, c), reference::Dot4(a, b, c, false))));
  put(static_cast<std::uint32_t>(
      EITHER(__dp2a_lo(sa, sb, static_cast<int>(c)), reference::Dot2(a, b, c, false))));
  put(static_cast<std::uint32_t>(
      EITHER(__dp2a_hi(sa, sb, static_cast<int>(c)), reference::Dot2(a, b, c, true))));
  return put.taken;
}

constexpr int kOperations = 67;

__global__ void Run(const Case* cases, std::uint64_t* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) Evaluate(cases[i], out + i);
}

int main() {
  const std::uint64_t extremes[] = {0,
                                    1,
                                    2,
                                    3,
                                    0x7f,
                                    0x80,
                                    0xff,
                                    0x8000,
                                    0xffff,
                                    0x10000,
                                    0x7fffff,
                                    0xffffff,
                                    0x7fffffff,
                                    0x80000000,
                                    0xffffffff,
                                    0x100000000,
                                    0x7fffffffffffffff,
                                    0x8000000000000000,
                                    0xfffffffffffffffe,
                                    0xffffffffffffffff};
  check::Random random(9);
  auto value = [&]() -> std::uint64_t {
    std::uint64_t bits = random.Next64();
    switch (random.Next32() % 4) {
      case 0:
        return extremes[bits % (sizeof extremes / sizeof *extremes)];
      case 1:
        return bits >> bits % 60;
      default:
        return bits;
    }
  };
  std::vector<Case> cases(kCount);
  for (Case& k : cases) {
    k = {static_cast<std::uint32_t>(value()),
         static_cast<std::uint32_t>(value()),
         static_cast<std::uint32_t>(value()),
         0,
         value(),
         value()};
  }
  std::vector<std::uint64_t> want(kOperations * kCount);
  for (int i = 0; i < kCount; ++i) {
    REQUIRE(Evaluate(cases[i], &want[i]) == kOperations);
  }
  Case* device = check::Upload(cases);
  std::uint64_t* out = check::Zeroed<std::uint64_t>(want.size());
  Run<<<kCount / 64, 64>>>(device, out);
  CHECK(cudaGetLastError());
  std::vector<std::uint64_t> got = check::Download(out, want.size());
  for (int operation = 0; operation < kOperations; ++operation) {
    std::string what = "operation " + std::to_string(operation);
    check::Compare(what.c_str(), &got[operation * kCount], &want[operation * kCount], kCount);
  }
  CHECK(cudaFree(device));
  CHECK(cudaFree(out));
  return check::Ok();
}
