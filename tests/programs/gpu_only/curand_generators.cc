// cuRAND. Every generator gives the same bits on the device and on the host, and distributions have
// the right moments.
#include <curand.h>

#include <cmath>

#include "../check.h"

#define CHECK_RAND(call) REQUIRE((call) == CURAND_STATUS_SUCCESS)

// The first `count` words of a generator.
std::vector<unsigned> Words(curandRngType_t type, bool host, size_t count) {
  curandGenerator_t generator;
  CHECK_RAND(host ? curandCreateGeneratorHost(&generator, type)
                  : curandCreateGenerator(&generator, type));
  const bool quasi = type == CURAND_RNG_QUASI_SOBOL32;
  if (quasi) {
    CHECK_RAND(curandSetQuasiRandomGeneratorDimensions(generator, 4));
  } else {
    CHECK_RAND(curandSetPseudoRandomGeneratorSeed(generator, 20240607));
  }
  std::vector<unsigned> words(count);
  if (host) {
    CHECK_RAND(curandGenerate(generator, words.data(), count));
  } else {
    unsigned* device = check::Zeroed<unsigned>(count);
    CHECK_RAND(curandGenerate(generator, device, count));
    words = check::Download(device, count);
    CHECK(cudaFree(device));
  }
  CHECK_RAND(curandDestroyGenerator(generator));
  return words;
}

int main() {
  struct {
    const char* name;
    curandRngType_t type;
  } const types[] = {{"XORWOW", CURAND_RNG_PSEUDO_XORWOW},
                     {"MRG32K3A", CURAND_RNG_PSEUDO_MRG32K3A},
                     {"Philox", CURAND_RNG_PSEUDO_PHILOX4_32_10},
                     {"Sobol", CURAND_RNG_QUASI_SOBOL32}};
  for (const auto& type : types)
    check::Compare(type.name, Words(type.type, false, 40000), Words(type.type, true, 40000));

  constexpr size_t kCount = 1 << 20;
  curandGenerator_t generator;
  CHECK_RAND(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10));
  CHECK_RAND(curandSetPseudoRandomGeneratorSeed(generator, 7));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK_RAND(curandSetStream(generator, stream));
  float* device = check::Zeroed<float>(kCount);
  CHECK_RAND(curandGenerateNormal(generator, device, kCount, 3.0f, 2.0f));
  CHECK(cudaStreamSynchronize(stream));
  const std::vector<float> normal = check::Download(device, kCount);
  double sum = 0, squares = 0;
  for (float value : normal) sum += value;
  const double mean = sum / kCount;
  for (float value : normal) squares += (value - mean) * (value - mean);
  REQUIRE(std::fabs(mean - 3) < 0.02);
  REQUIRE(std::fabs(std::sqrt(squares / kCount) - 2) < 0.02);
  std::printf("normal distribution: mean and deviation are right\n");
  CHECK_RAND(curandDestroyGenerator(generator));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device));
  return check::Ok();
}
