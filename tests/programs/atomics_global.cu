// Atomics on global memory whose results do not depend on their order: every operation and type,
// compare-and-swap loops, and returned values (tickets).
#include <algorithm>

#include "check.h"

constexpr int kBlocks = 24;
constexpr int kThreads = 96;
constexpr int kCount = kBlocks * kThreads;

struct Results {
  int add, subtract, minimum, maximum;
  unsigned int bits_and, bits_or, bits_xor, increment, decrement;
  unsigned int unsigned_minimum, unsigned_maximum, compare_and_swap;
  unsigned long long wide_add, wide_minimum, wide_maximum, wide_and, wide_or, wide_xor, wide_swap;
  long long signed_minimum, signed_maximum;
  double double_add, double_maximum;
  float float_add, float_product;
  unsigned int exchange_sum, exchange_last;
  unsigned short halfword[2];
};

// A 64-bit value for each thread, the same on host and device.
__host__ __device__ unsigned long long ValueOf(int i) { return check::Random(i + 1).Next64(); }

__global__ void Operate(Results* r, unsigned int* tickets, unsigned int* next_ticket) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned long long wide = ValueOf(i);
  unsigned int narrow = static_cast<unsigned int>(wide);
  int value = static_cast<int>(narrow) >> 8;
  atomicAdd(&r->add, value);
  atomicSub(&r->subtract, value);
  atomicMin(&r->minimum, value);
  atomicMax(&r->maximum, value);
  atomicAnd(&r->bits_and, narrow | 0xf00ff00fu);
  atomicOr(&r->bits_or, narrow & 0x0ff00ff0u & ~(1u << (i % 7)));
  atomicXor(&r->bits_xor, narrow);
  atomicInc(&r->increment, 999u);
  atomicDec(&r->decrement, 999u);
  atomicMin(&r->unsigned_minimum, narrow);
  atomicMax(&r->unsigned_maximum, narrow);
  atomicAdd(&r->wide_add, wide);
  atomicMin(&r->wide_minimum, wide);
  atomicMax(&r->wide_maximum, wide);
  atomicAnd(&r->wide_and, wide | 0xff0000ffff0000ffull);
  atomicOr(&r->wide_or, wide & 0x00ff00ff00ff00ffull);
  atomicXor(&r->wide_xor, wide);
  atomicMin(&r->signed_minimum, static_cast<long long>(wide));
  atomicMax(&r->signed_maximum, static_cast<long long>(wide));
  // Whole numbers that are small enough for exact partial sums.
  atomicAdd(&r->float_add, static_cast<float>(i % 16 - 5));
  atomicAdd(&r->double_add, static_cast<double>(value) * 0.5);

  // Loops around compare-and-swap, in 32, 64 and 16 bits.
  unsigned int old = r->compare_and_swap, seen;
  do {
    seen = old;
    old = atomicCAS(&r->compare_and_swap, seen, (seen + narrow) & 0x7fffffffu);
  } while (old != seen);
  unsigned long long wide_old = r->wide_swap, wide_seen;
  do {
    wide_seen = wide_old;
    wide_old = atomicCAS(&r->wide_swap, wide_seen, wide_seen + wide * 3);
  } while (wide_old != wide_seen);
  auto* product = reinterpret_cast<int*>(&r->float_product);
  int bits = *product, seen_bits;
  do {
    seen_bits = bits;
    float next = __int_as_float(seen_bits) * (i % 64 == 7 ? 2.0f : 1.0f);
    bits = atomicCAS(product, seen_bits, __float_as_int(next));
  } while (bits != seen_bits);
  auto* maximum = reinterpret_cast<unsigned long long*>(&r->double_maximum);
  unsigned long long stored = *maximum, seen_stored;
  do {
    seen_stored = stored;
    double larger = fmax(__longlong_as_double(seen_stored), static_cast<double>(value));
    stored = atomicCAS(maximum, seen_stored, __double_as_longlong(larger));
  } while (stored != seen_stored);
  unsigned short half_old = r->halfword[1], half_seen;
  do {
    half_seen = half_old;
    half_old =
        atomicCAS(&r->halfword[1], half_seen, static_cast<unsigned short>(half_seen + narrow));
  } while (half_old != half_seen);

  // Each exchanged value comes out again, except the last one.
  atomicAdd(&r->exchange_sum, atomicExch(&r->exchange_last, narrow));
  tickets[atomicAdd(next_ticket, 1u)] += 1;
}

int main() {
  Results want = {};
  want.minimum = 0x7fffffff;
  want.maximum = -0x7fffffff;
  want.bits_and = ~0u;
  want.unsigned_minimum = ~0u;
  want.wide_minimum = want.wide_and = ~0ull;
  want.signed_minimum = 0x7fffffffffffffffll;
  want.signed_maximum = -want.signed_minimum;
  want.float_product = 1.0f;
  want.double_maximum = -1e300;
  want.halfword[0] = 0xbeef;

  Results* device = check::Upload(std::vector<Results>{want});
  unsigned int* tickets = check::Zeroed<unsigned int>(kCount + 1);
  Operate<<<kBlocks, kThreads>>>(device, tickets, tickets + kCount);
  CHECK(cudaGetLastError());
  Results got = check::Download(device, 1)[0];

  unsigned int exchanged = 0;
  for (int i = 0; i < kCount; ++i) {
    unsigned long long wide = ValueOf(i);
    unsigned int narrow = static_cast<unsigned int>(wide);
    int value = static_cast<int>(narrow) >> 8;
    want.add = static_cast<int>(static_cast<unsigned>(want.add) + value);
    want.subtract = static_cast<int>(static_cast<unsigned>(want.subtract) - value);
    want.minimum = std::min(want.minimum, value);
    want.maximum = std::max(want.maximum, value);
    want.bits_and &= narrow | 0xf00ff00fu;
    want.bits_or |= narrow & 0x0ff00ff0u & ~(1u << (i % 7));
    want.bits_xor ^= narrow;
    want.increment = want.increment >= 999u ? 0 : want.increment + 1;
    want.decrement = want.decrement == 0 || want.decrement > 999u ? 999u : want.decrement - 1;
    want.unsigned_minimum = std::min(want.unsigned_minimum, narrow);
    want.unsigned_maximum = std::max(want.unsigned_maximum, narrow);
    want.wide_add += wide;
    want.wide_minimum = std::min(want.wide_minimum, wide);
    want.wide_maximum = std::max(want.wide_maximum, wide);
    want.wide_and &= wide | 0xff0000ffff0000ffull;
    want.wide_or |= wide & 0x00ff00ff00ff00ffull;
    want.wide_xor ^= wide;
    want.signed_minimum = std::min(want.signed_minimum, static_cast<long long>(wide));
    want.signed_maximum = std::max(want.signed_maximum, static_cast<long long>(wide));
    want.float_add += static_cast<float>(i % 16 - 5);
    want.double_add += static_cast<double>(value) * 0.5;
    want.compare_and_swap = (want.compare_and_swap + narrow) & 0x7fffffffu;
    want.wide_swap += wide * 3;
    want.float_product *= i % 64 == 7 ? 2.0f : 1.0f;
    want.double_maximum = std::max(want.double_maximum, static_cast<double>(value));
    want.halfword[1] = static_cast<unsigned short>(want.halfword[1] + narrow);
    exchanged += narrow;
  }
  REQUIRE(got.exchange_sum + got.exchange_last == exchanged);
  got.exchange_sum = got.exchange_last = 0;

#define SAME(field) check::Compare(#field, &got.field, &want.field, 1)
  SAME(add);
  SAME(subtract);
  SAME(minimum);
  SAME(maximum);
  SAME(bits_and);
  SAME(bits_or);
  SAME(bits_xor);
  SAME(increment);
  SAME(decrement);
  SAME(unsigned_minimum);
  SAME(unsigned_maximum);
  SAME(compare_and_swap);
  SAME(wide_add);
  SAME(wide_minimum);
  SAME(wide_maximum);
  SAME(wide_and);
  SAME(wide_or);
  SAME(wide_xor);
  SAME(wide_swap);
  SAME(signed_minimum);
  SAME(signed_maximum);
  SAME(double_add);
  SAME(double_maximum);
  SAME(float_add);
  SAME(float_product);
  check::Compare("halfword", got.halfword, want.halfword, 2);
  std::vector<unsigned int> once(kCount, 1u);
  once.push_back(kCount);
  check::Compare("tickets", check::Download(tickets, kCount + 1), once);
  CHECK(cudaFree(device));
  CHECK(cudaFree(tickets));
  return check::Ok();
}
