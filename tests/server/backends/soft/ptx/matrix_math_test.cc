#include "server/backends/soft/ptx/matrix_math.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace detshare::soft::ptx {
namespace {

const std::vector<const MatrixMath*> kCodes = AllMatrixMath();

uint32_t Encoded(const MatrixMath& math, Type type, double value, bool saturate = false) {
  double values[kLanes] = {};
  values[3] = value;
  uint32_t reg[kLanes] = {};
  math.encode(type, values, 0, saturate, reg);
  return reg[3];
}

double Decoded(const MatrixMath& math, Type type, uint32_t bits, uint32_t j = 0) {
  uint32_t reg[kLanes] = {};
  reg[5] = bits;
  double values[kLanes];
  math.decode(type, reg, j, values);
  return values[5];
}

TEST_CASE("every half has the value that its bits say, and comes back") {
  for (const MatrixMath* math : kCodes) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const int exponent = bits >> 10 & 31;
      const double mantissa = bits & 0x3ff;
      double value = exponent == 0    ? std::ldexp(mantissa, -24)
                     : exponent == 31 ? HUGE_VAL
                                      : std::ldexp(mantissa + 1024, exponent - 25);
      if ((bits & 0x8000) != 0) value = -value;
      const double decoded = Decoded(*math, Type::kF16, 0xabcd | bits << 16, 1);
      if ((bits & 0x7fff) > 0x7c00) {
        REQUIRE(decoded != decoded);
        REQUIRE(Encoded(*math, Type::kF16, decoded) == 0x7fff);
        continue;
      }
      REQUIRE(std::bit_cast<uint64_t>(decoded) == std::bit_cast<uint64_t>(value));
      REQUIRE(Encoded(*math, Type::kF16, decoded) == bits);
    }
  }
}

TEST_CASE("doubles round to the nearest half, and ties to the even one") {
  for (const MatrixMath* math : kCodes) {
    const auto half = [&](uint32_t bits) { return Decoded(*math, Type::kF16, bits); };
    for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
      const double middle = (half(bits) + half(bits + 1)) / 2;
      REQUIRE(Encoded(*math, Type::kF16, middle) == bits + bits % 2);
      REQUIRE(Encoded(*math, Type::kF16, std::nextafter(middle, 0)) == bits);
      REQUIRE(Encoded(*math, Type::kF16, -std::nextafter(middle, HUGE_VAL)) ==
              (0x8000 | (bits + 1)));
    }
    CHECK(Encoded(*math, Type::kF16, std::nextafter(65520.0, 0)) == 0x7bff);
    for (const double large : {65520.0, 1e30, 1e300, HUGE_VAL}) {
      CHECK(Encoded(*math, Type::kF16, large) == 0x7c00);
      CHECK(Encoded(*math, Type::kF16, -large) == 0xfc00);
    }
    CHECK(Encoded(*math, Type::kF16, 1e-300) == 0);
    CHECK(Encoded(*math, Type::kF16, -1e-300) == 0x8000);
  }
}

TEST_CASE("floats of eight bits have the values that their bits say") {
  for (const MatrixMath* math : kCodes) {
    for (uint32_t code = 0; code < 256; ++code) {
      for (const bool e4m3 : {false, true}) {
        const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
        const int exponent = static_cast<int>(code & 0x7f) >> mantissa_bits;
        const int mantissa = static_cast<int>(code) & ((1 << mantissa_bits) - 1);
        double value = std::ldexp(mantissa + (exponent == 0 ? 0 : 1 << mantissa_bits),
                                  std::max(exponent, 1) - bias - mantissa_bits);
        if (!e4m3 && exponent == 31) value = mantissa == 0 ? HUGE_VAL : std::nan("");
        if (e4m3 && (code & 0x7f) == 0x7f) value = std::nan("");
        if ((code & 0x80) != 0) value = -value;
        const uint32_t j = code % 4;
        const double got = Decoded(*math, e4m3 ? Type::kE4M3 : Type::kE5M2,
                                   code << 8 * j | 0x55u << 8 * (j ^ 1), j);
        INFO(e4m3 << " " << code);
        CHECK((std::isnan(value) ? std::isnan(got)
                                 : got == value && std::signbit(got) == std::signbit(value)));
      }
    }
  }
}

TEST_CASE("integers of four bits have their sign in the uppermost") {
  for (const MatrixMath* math : kCodes) {
    for (uint32_t j = 0; j < 8; ++j) {
      CHECK(Decoded(*math, Type::kS4, 0xfedc8107, j) ==
            std::vector<int>{7, 0, 1, -8, -4, -3, -2, -1}[j]);
      CHECK(Decoded(*math, Type::kU4, 0xfedc8107, j) ==
            std::vector<int>{7, 0, 1, 8, 12, 13, 14, 15}[j]);
    }
  }
}

TEST_CASE("integers wrap, or stop at their bounds") {
  for (const MatrixMath* math : kCodes) {
    CHECK(Encoded(*math, Type::kS32, 4294967295.0) == 0xffffffff);
    CHECK(Encoded(*math, Type::kS32, 4294967295.0, true) == 0x7fffffff);
    CHECK(Encoded(*math, Type::kS32, -4294967295.0, true) == 0x80000000);
    CHECK(Decoded(*math, Type::kS8, 0x80ff7f01, 3) == -128);
    CHECK(Decoded(*math, Type::kU8, 0x80ff7f01, 2) == 255);
  }
}

TEST_CASE("products of every shape are chains of fused multiply-adds") {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (const uint32_t m : {8, 16, 32}) {
    for (const uint32_t n : {4, 8, 16, 32}) {
      for (const uint32_t k : {4, 8, 16, 32}) {
        std::vector<double> a(m * k), b(k * n), d(m * n);
        for (std::vector<double>* matrix : {&a, &b, &d})
          for (double& value : *matrix) value = normal(random);
        std::vector<double> expected = d;
        for (uint32_t i = 0; i < m; ++i)
          for (uint32_t j = 0; j < n; ++j)
            for (uint32_t at = 0; at < k; ++at)
              expected[i * n + j] = std::fma(a[i * k + at], b[at * n + j], expected[i * n + j]);
        for (const MatrixMath* math : kCodes) {
          std::vector<double> result = d;
          math->multiply_add(a.data(), b.data(), result.data(), m, n, k);
          REQUIRE(result == expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace detshare::soft::ptx
