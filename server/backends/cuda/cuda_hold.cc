#include "server/backends/cuda/cuda_hold.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"

namespace detshare::cuda {
namespace {

constexpr int kTimeBits = 40;
constexpr uint64_t kTimeMask = (uint64_t{1} << kTimeBits) - 1;
// A daemon that hangs does not keep the device from the ordinary group for longer.
constexpr int64_t kLongest = 50'000'000;

constexpr char kHoldPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 words)
{
  .reg .pred %p;
  .reg .b64 %word, %request, %latest, %now, %deadline, %time;
  ld.param.u64 %word, [words];
  mov.u64 %latest, 0;
  mov.u64 %deadline, 0;
LOOP:
  ld.relaxed.sys.global.u64 %request, [%word];
  mov.u64 %now, %globaltimer;
  setp.eq.u64 %p, %request, %latest;
  @%p bra SAME;
  mov.u64 %latest, %request;
  and.b64 %time, %request, 0xFFFFFFFFFF;
  add.u64 %deadline, %now, %time;
SAME:
  setp.ge.u64 %p, %now, %deadline;
  @%p bra END;
  nanosleep.u32 300;
  bra LOOP;
END:
  ret;
}
)";

}  // namespace

class CudaHold final : public GroupHold {
 public:
  CudaHold(HoldPool& pool, HoldPool::Words& words, CUstream stream)
      : pool_(pool), words_(words), stream_(stream) {}

  ~CudaHold() override {
    End();
    CudaContext& gpu = pool_.gpu_;
    pool_.urgent_.Enter();
    // Waits for some microseconds, because the words may be used again.
    gpu.Check(gpu.api.cuStreamSynchronize(stream_), "cuStreamSynchronize").IgnoreError();
    gpu.api.cuStreamDestroy(stream_);
    const MutexLock lock(&pool_.mutex_);
    pool_.free_.push_back(&words_);
  }

  absl::Status HoldFor(int64_t nanoseconds) override {
    CudaContext& gpu = pool_.gpu_;
    const auto refused = [&] { return gpu.graph_gate->Closed(/*group=*/true); };
    if (refused()) {
      End();  // of an earlier call; the caller ends a hold only if it has one
      return Refused();
    }
    Request(words_, static_cast<uint64_t>(std::clamp<int64_t>(nanoseconds, 0, kLongest)));
    // Acquire: pairs with the GPU's store behind the kernel.
    const uint64_t launched = words_.launched.load(std::memory_order_relaxed);
    if (words_.ended.load(std::memory_order_acquire) != launched) return absl::OkStatus();
    words_.launched.store(launched + 1);
    const absl::Status status = refused() ? Refused() : Launch(launched + 1);
    if (!status.ok()) words_.launched.store(launched);
    return status;
  }

  void End() override { EndNow(words_); }

  // Returns whether the hold has ended.
  static bool EndNow(HoldPool::Words& words) {
    if (words.ended.load() == words.launched.load()) return true;
    Request(words, 0);
    return false;
  }

 private:
  // No text, which would be allocated.
  static absl::Status Refused() { return absl::Status(absl::StatusCode::kUnavailable, ""); }

  absl::Status Launch(uint64_t number) {
    CudaContext& gpu = pool_.gpu_;
    pool_.urgent_.Enter();
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream_;
    uint64_t word = reinterpret_cast<uint64_t>(&words_.request);
    void* parameters[] = {&word};
    DETSHARE_RETURN_IF_ERROR(gpu.Check(
        gpu.api.cuLaunchKernelEx(&config, pool_.kernel_, parameters, nullptr), "cuLaunchKernelEx"));
    return gpu.Check(
        gpu.api.cuStreamWriteValue64(stream_, reinterpret_cast<CUdeviceptr>(&words_.ended), number,
                                     CU_STREAM_WRITE_VALUE_DEFAULT),
        "cuStreamWriteValue64");
  }

  static void Request(HoldPool::Words& words, uint64_t time) {
    const uint64_t number = words.requests.fetch_add(1, std::memory_order_relaxed) + 1;
    words.request.store(number << kTimeBits | time, std::memory_order_release);
  }

  HoldPool& pool_;
  HoldPool::Words& words_;
  const CUstream stream_;
};

bool HoldPool::EndAll() {
  auto* const words = static_cast<Words*>(page_.get());
  bool all = true;
  for (size_t i = 0; i < kPageBytes / sizeof(Words); ++i) all &= CudaHold::EndNow(words[i]);
  return all;
}

absl::StatusOr<std::unique_ptr<HoldPool>> HoldPool::Create(CudaGroup& urgent) {
  static_assert(sizeof(Words) == 128);
  CudaContext& gpu = urgent.gpu;
  std::unique_ptr<HoldPool> pool(new HoldPool(urgent));
  pool->page_ = MapFreshPages(kPageBytes);
  void* const page = pool->page_.get();
  if (page == nullptr) return absl::ErrnoToStatus(errno, "no page for the words of holds");
  DETSHARE_RETURN_IF_ERROR(gpu.RegisterPages(page, kPageBytes));
  pool->registered_ = true;
  CUkernel kernel = nullptr;
  DETSHARE_RETURN_IF_ERROR(gpu.Check(gpu.api.cuLibraryLoadData(&pool->library_, kHoldPtx, nullptr,
                                                               nullptr, 0, nullptr, nullptr, 0),
                                     "cuLibraryLoadData"));
  DETSHARE_RETURN_IF_ERROR(
      gpu.Check(gpu.api.cuLibraryGetKernel(&kernel, pool->library_, "hold"), "cuLibraryGetKernel"));
  DETSHARE_RETURN_IF_ERROR(
      gpu.Check(gpu.api.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                             CU_SHAREDMEM_CARVEOUT_MAX_SHARED, kernel, gpu.device),
                "cuKernelSetAttribute"));
  urgent.Enter();
  DETSHARE_RETURN_IF_ERROR(
      gpu.Check(gpu.api.cuKernelGetFunction(&pool->kernel_, kernel), "cuKernelGetFunction"));
  {
    const MutexLock lock(&pool->mutex_);
    for (size_t i = 0; i < kPageBytes / sizeof(Words); ++i)
      pool->free_.push_back(new (static_cast<std::byte*>(page) + i * sizeof(Words)) Words{});
  }
  gpu.graph_gate->HaveHolds([pool = pool.get()] { return pool->EndAll(); });
  return pool;
}

HoldPool::~HoldPool() {
  gpu_.Enter();
  if (library_ != nullptr) gpu_.api.cuLibraryUnload(library_);
  if (registered_) gpu_.api.cuMemHostUnregister(page_.get());
}

absl::StatusOr<std::unique_ptr<GroupHold>> HoldPool::CreateHold() {
  Words* words = nullptr;
  {
    const MutexLock lock(&mutex_);
    if (free_.empty()) return absl::ResourceExhaustedError("all holds of the device are in use");
    words = free_.back();
    free_.pop_back();
  }
  words->request.store(0, std::memory_order_relaxed);
  words->requests.store(0, std::memory_order_relaxed);
  urgent_.Enter();
  // The least priority: blocks of real work go first.
  int least = 0, greatest = 0;
  CUstream stream = nullptr;
  gpu_.api.cuCtxGetStreamPriorityRange(&least, &greatest);
  const absl::Status status =
      gpu_.Check(gpu_.api.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, least),
                 "cuStreamCreateWithPriority");
  if (status.ok()) return std::make_unique<CudaHold>(*this, *words, stream);
  const MutexLock lock(&mutex_);
  free_.push_back(words);
  return status;
}

}  // namespace detshare::cuda
