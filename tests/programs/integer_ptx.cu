// Integer instructions that exist only in PTX: bit fields, carries, permutations, extended and
// packed arithmetic.
#include <string>

#include "check.h"

constexpr int kCount = 4096;
constexpr int kOperations = 20;

struct Case {
  std::uint32_t a, b, c, d;
};

__device__ void Evaluate(const Case& k, std::uint32_t* out) {
  std::uint32_t a = k.a, b = k.b, c = k.c, d = k.d, r, high;
  int n = 0;
  auto put = [&](std::uint32_t value) { out[n++ * kCount] = value; };
  asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(c & 31), "r"(d & 31));
  put(r);
  asm("bfe.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(c & 31), "r"(d & 31));
  put(r);
  asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c & 31), "r"(d & 31));
  put(r);
  asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(a));
  put(r);
  asm("bfind.s32 %0, %1;" : "=r"(r) : "r"(a));
  put(r);
  asm("{ add.cc.u32 %0, %2, %4; addc.u32 %1, %3, %5; }"
      : "=r"(r), "=r"(high)
      : "r"(a), "r"(b), "r"(c), "r"(d));
  put(r);
  put(high);
  asm("{ sub.cc.u32 %0, %2, %4; subc.u32 %1, %3, %5; }"
      : "=r"(r), "=r"(high)
      : "r"(a), "r"(b), "r"(c), "r"(d));
  put(r);
  put(high);
  asm("{ mad.lo.cc.u32 %0, %2, %3, %4; madc.hi.u32 %1, %2, %3, %5; }"
      : "=r"(r), "=r"(high)
      : "r"(a), "r"(b), "r"(c), "r"(d));
  put(r);
  put(high);
  asm("lop3.b32 %0, %1, %2, %3, 0xe8;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  put(r);
  asm("prmt.b32.f4e %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c & 3));
  put(r);
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x9a21u));
  put(r);
  asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  put(r);
  // A shift by 32 or more gives zero, or copies of the sign.
  asm("shl.b32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(c % 70));
  put(r);
  asm("shr.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(c % 70));
  put(r);
  asm("add.sat.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  put(r);
  asm("{ .reg .pred p; setp.lt.s32 p, %1, %2; selp.b32 %0, %3, %4, p; }"
      : "=r"(r)
      : "r"(a), "r"(b), "r"(c), "r"(d));
  put(r);
  asm("slct.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  put(r);
}

void Expected(const Case& k, std::uint32_t* out) {
  const std::uint32_t a = k.a, b = k.b, c = k.c, d = k.d;
  const std::int32_t sa = static_cast<std::int32_t>(a), sb = static_cast<std::int32_t>(b);
  int n = 0;
  auto put = [&](std::uint32_t value) { out[n++ * kCount] = value; };
  const int position = c & 31, length = d & 31;
  const std::uint32_t mask = (1u << length) - 1;
  const std::uint32_t field = a >> position & mask;
  put(field);
  // The sign of the field is its last bit. If the field exceeds the operand, it is the operand's
  // last bit.
  const bool sign =
      length > 0 && (a >> (position + length - 1 > 31 ? 31 : position + length - 1) & 1) != 0;
  const int kept = length < 32 - position ? length : 32 - position;
  const std::uint32_t kept_mask = kept >= 32 ? ~0u : (1u << kept) - 1;
  put((a >> position & kept_mask) | (sign ? ~kept_mask : 0));
  put((b & ~(mask << position)) | (a & mask) << position);
  put(a == 0 ? ~0u : 31u - __builtin_clz(a));
  const std::uint32_t magnitude = sa < 0 ? ~a : a;
  put(magnitude == 0 ? ~0u : 31u - __builtin_clz(magnitude));
  const std::uint64_t x = static_cast<std::uint64_t>(b) << 32 | a,
                      y = static_cast<std::uint64_t>(d) << 32 | c;
  put(static_cast<std::uint32_t>(x + y));
  put(static_cast<std::uint32_t>((x + y) >> 32));
  put(static_cast<std::uint32_t>(x - y));
  put(static_cast<std::uint32_t>((x - y) >> 32));
  const std::uint64_t product = static_cast<std::uint64_t>(a) * b + y;
  put(static_cast<std::uint32_t>(product));
  put(static_cast<std::uint32_t>(product >> 32));
  put((a & b) | (a & c) | (b & c));  // the majority: 0xe8
  put(static_cast<std::uint32_t>(x >> (c & 3) * 8));
  // Selector 0x9a21: byte 1, byte 2, then the signs of bytes 2 and 1 in all bits.
  put((a >> 8 & 0xff) | (a >> 16 & 0xff) << 8 | (a >> 23 & 1 ? 0xff0000u : 0) |
      (a >> 15 & 1 ? 0xff000000u : 0));
  put(static_cast<std::uint32_t>(x << (c & 31) >> 32));
  put(c % 70 > 31 ? 0 : a << c % 70);
  put(static_cast<std::uint32_t>(sa >> (c % 70 > 31 ? 31 : c % 70)));
  const std::int64_t sum = static_cast<std::int64_t>(sa) + sb;
  put(static_cast<std::uint32_t>(sum > 0x7fffffff      ? 0x7fffffff
                                 : sum < -0x80000000ll ? -0x80000000ll
                                                       : sum));
  put(sa < sb ? c : d);
  put(static_cast<std::int32_t>(c) >= 0 ? a : b);
  REQUIRE(n == kOperations);
}

__global__ void Run(const Case* cases, std::uint32_t* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) Evaluate(cases[i], out + i);
}

int main() {
  check::Random random(55);
  const std::uint32_t extremes[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 31, 32, 0xff80};
  std::vector<Case> cases(kCount);
  auto value = [&] {
    std::uint32_t bits = random.Next32();
    return bits % 4 == 0   ? extremes[bits / 4 % 8]
           : bits % 4 == 1 ? random.Next32() >> bits / 4 % 32
                           : random.Next32();
  };
  for (Case& k : cases) k = {value(), value(), value(), value()};
  std::vector<std::uint32_t> want(kOperations * kCount);
  for (int i = 0; i < kCount; ++i) Expected(cases[i], &want[i]);
  Case* device = check::Upload(cases);
  std::uint32_t* out = check::Zeroed<std::uint32_t>(want.size());
  Run<<<kCount / 64, 64>>>(device, out);
  CHECK(cudaGetLastError());
  std::vector<std::uint32_t> got = check::Download(out, want.size());
  for (int operation = 0; operation < kOperations; ++operation) {
    std::string what = "operation " + std::to_string(operation);
    check::Compare(what.c_str(), &got[operation * kCount], &want[operation * kCount], kCount);
  }
  CHECK(cudaFree(device));
  CHECK(cudaFree(out));
  return check::Ok();
}
