// Random numbers that are the same on every machine and for every number of threads.
#pragma once

#include <cmath>
#include <cstdint>

namespace detshare::sim {

// SplitMix64. A generator is cheap to make, so each purpose has a generator of its own. Threading:
// one thread at a time.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // A generator for part `number` of the purpose that `seed` stands for.
  static Random Of(uint64_t seed, uint64_t number) {
    return Random(Random(seed ^ (number * 0xD1342543DE82EF95ull)).Next());
  }

  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  // A number between 0 and 1, without both.
  double Uniform() { return (static_cast<double>(Next() >> 11) + 0.5) / 9007199254740992.0; }
  double Exponential(double mean) { return -std::log(Uniform()) * mean; }
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(6.283185307179586 * Uniform());
  }
  // A number with this median. `spread` is the standard deviation of the logarithm.
  double LogNormal(double median, double spread) { return median * std::exp(spread * Normal()); }

 private:
  uint64_t state_;
};

}  // namespace detshare::sim
