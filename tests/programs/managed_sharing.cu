// Managed memory that CPU and GPU use by turns and at once: words that one waits for, copies of pages
// that lie on either side, small pieces, and memory that is freed and allocated again.
//
//   managed_sharing [atomics]   also atomic additions by both at once, which are exact if pages move
//   managed_sharing stopped     waits to be killed, while a kernel waits for a word
#include <unistd.h>

#include <ctime>

#include "check.h"

__global__ void Add(int* values, int count, int change) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += change;
}

// The word and its answer lie on different pages.
__global__ void Answer(volatile int* asked, volatile int* answered, int turns) {
  for (int turn = 1; turn <= turns; ++turn) {
    while (*asked != turn) {
    }
    *answered = 10 * turn;
    __threadfence_system();
  }
}

__global__ void Count(int* counter, int turns) {
  for (int i = 0; i < turns; ++i) atomicAdd_system(counter, 1);
}

__global__ void SumPieces(int* const* pieces, int count, unsigned long long* sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) atomicAdd(sum, static_cast<unsigned long long>(*pieces[i]));
  if (i < count) *pieces[i] = -i;
}

enum class Advice { kNone, kPrefersHost, kPrefersDevice, kReadMostly, kAccessedByDevice };

void Advise(int* memory, std::size_t bytes, Advice advice) {
  cudaMemLocation gpu{}, host{};
  gpu.type = cudaMemLocationTypeDevice;
  host.type = cudaMemLocationTypeHost;
  switch (advice) {
    case Advice::kNone:
      return;
    case Advice::kPrefersHost:
      CHECK(cudaMemAdvise(memory, bytes, cudaMemAdviseSetPreferredLocation, host));
      return;
    case Advice::kPrefersDevice:
      CHECK(cudaMemAdvise(memory, bytes, cudaMemAdviseSetPreferredLocation, gpu));
      return;
    case Advice::kReadMostly:
      CHECK(cudaMemAdvise(memory, bytes, cudaMemAdviseSetReadMostly, gpu));
      return;
    case Advice::kAccessedByDevice:
      CHECK(cudaMemAdvise(memory, bytes, cudaMemAdviseSetAccessedBy, gpu));
      return;
  }
}

// Copies in both directions, small and large, of pages that the CPU or the GPU used last.
void Copy(const char* what, Advice advice) {
  constexpr int kCount = 1 << 20, kBytes = kCount * 4;
  int *memory, *pinned, *device = check::Zeroed<int>(kCount);
  CHECK(cudaMallocManaged(&memory, kBytes));
  CHECK(cudaMallocHost(&pinned, kBytes));
  Advise(memory, kBytes, advice);
  std::vector<int> pageable(kCount), want(kCount);
  cudaMemLocation host{};
  host.type = cudaMemLocationTypeHost;
  const int counts[] = {1, 100, 30'000, kCount};
  for (int place = 0; place < 3; ++place) {
    for (const int count : counts) {
      for (int i = 0; i < kCount; ++i) memory[i] = want[i] = i + place + count;
      if (place == 1) {
        Add<<<(kCount + 255) / 256, 256>>>(memory, kCount, 7);
        for (int i = 0; i < kCount; ++i) want[i] += 7;
      } else if (place == 2) {
        CHECK(cudaMemPrefetchAsync(memory, kBytes, host, 0, nullptr));
      }
      const std::size_t bytes = count * sizeof(int);
      CHECK(cudaMemcpyAsync(pinned, memory, bytes, cudaMemcpyDefault));
      CHECK(cudaMemcpy(pageable.data(), memory, bytes, cudaMemcpyDefault));
      CHECK(cudaMemcpy(device, memory, bytes, cudaMemcpyDefault));
      CHECK(cudaDeviceSynchronize());
      REQUIRE(std::memcmp(pinned, want.data(), bytes) == 0);
      REQUIRE(std::memcmp(pageable.data(), want.data(), bytes) == 0);
      Add<<<(count + 255) / 256, 256>>>(device, count, 1);
      for (int i = 0; i < count; ++i) pinned[i] = pageable[i] = want[i] + 2;
      CHECK(cudaMemcpy(memory, device, bytes, cudaMemcpyDefault));
      for (int i = 0; i < count; ++i) REQUIRE(memory[i] == want[i] + 1);
      CHECK(cudaMemcpyAsync(memory, pinned, bytes, cudaMemcpyDefault));
      CHECK(cudaDeviceSynchronize());
      REQUIRE(std::memcmp(memory, pinned, bytes) == 0);
      CHECK(cudaMemset(memory, 0, bytes));
      CHECK(cudaMemcpy(memory, pageable.data(), bytes, cudaMemcpyDefault));
      CHECK(cudaDeviceSynchronize());
      REQUIRE(std::memcmp(memory, pageable.data(), bytes) == 0);
    }
  }
  std::printf("%s: all copies are right\n", what);
  CHECK(cudaFree(memory));
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(device));
}

void WaitForWords() {
  constexpr int kTurns = 20;
  int* words;
  CHECK(cudaMallocManaged(&words, 2 << 20));
  std::memset(words, 0, 2 << 20);
  volatile int* const asked = words;
  volatile int* const answered = words + (1 << 18);
  Answer<<<1, 1>>>(asked, answered, kTurns);
  int right = 0;
  for (int turn = 1; turn <= kTurns; ++turn) {
    *asked = turn;
    const std::time_t end = std::time(nullptr) + 60;
    while (*answered != 10 * turn && std::time(nullptr) < end) {
    }
    right += *answered == 10 * turn;
  }
  CHECK(cudaDeviceSynchronize());
  std::printf("%d of %d words were answered\n", right, kTurns);
  CHECK(cudaFree(words));
}

void UsePieces() {
  constexpr int kCount = 5000;
  int** pieces;
  unsigned long long* sum;
  CHECK(cudaMallocManaged(&pieces, kCount * sizeof(int*)));
  CHECK(cudaMallocManaged(&sum, sizeof *sum));
  unsigned long long want = 0;
  *sum = 0;
  std::size_t bytes = 4;
  for (int i = 0; i < kCount; ++i) {
    CHECK(cudaMallocManaged(&pieces[i], bytes));
    *pieces[i] = 3 * i;
    want += 3 * i;
    bytes = bytes % 3000 + 200;
  }
  SumPieces<<<(kCount + 255) / 256, 256>>>(pieces, kCount, sum);
  CHECK(cudaDeviceSynchronize());
  REQUIRE(*sum == want);
  int right = 0;
  for (int i = 0; i < kCount; ++i) right += *pieces[i] == -i;
  std::printf("%d of %d pieces are right\n", right, kCount);
  // Every second piece is replaced.
  for (int i = 0; i < kCount; i += 2) CHECK(cudaFree(pieces[i]));
  for (int i = 0; i < kCount; i += 2) {
    CHECK(cudaMallocManaged(&pieces[i], 100));
    *pieces[i] = 1;
  }
  right = 0;
  for (int i = 0; i < kCount; ++i) right += *pieces[i] == (i % 2 == 0 ? 1 : -i);
  std::printf("%d of %d pieces are right again\n", right, kCount);
  for (int i = 0; i < kCount; ++i) CHECK(cudaFree(pieces[i]));
  EXPECT(cudaFree(pieces + 1), cudaErrorInvalidValue);
  CHECK(cudaFree(pieces));
  CHECK(cudaFree(sum));
}

void CountTogether() {
  constexpr int kTurns = 1000, kThreads = 256, kOwn = 100'000;
  int* counter;
  CHECK(cudaMallocManaged(&counter, sizeof *counter));
  *counter = 0;
  Count<<<1, kThreads>>>(counter, kTurns);
  for (int i = 0; i < kOwn; ++i) __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST);
  CHECK(cudaDeviceSynchronize());
  REQUIRE(*counter == kTurns * kThreads + kOwn);
  CHECK(cudaFree(counter));
}

void WaitToBeKilled() {
  volatile int* words;
  CHECK(cudaMallocManaged(&words, 4096));
  words[0] = words[1] = 0;
  Answer<<<1, 1>>>(words, words + 1, 2);
  words[0] = 1;
  while (words[1] == 0) {
  }
  std::printf("the kernel runs\n");
  std::fflush(stdout);
  for (;;) pause();
}

int main(int count, char** arguments) {
  const char* const mode = count > 1 ? arguments[1] : "";
  if (std::strcmp(mode, "stopped") == 0) WaitToBeKilled();
  if (std::strcmp(mode, "atomics") == 0) CountTogether();
  Copy("without advice", Advice::kNone);
  Copy("prefers the host", Advice::kPrefersHost);
  Copy("without advice again", Advice::kNone);
  Copy("prefers the device", Advice::kPrefersDevice);
  Copy("read mostly", Advice::kReadMostly);
  Copy("accessed by the device", Advice::kAccessedByDevice);
  WaitForWords();
  UsePieces();
  return check::Ok();
}
