#include "tools/bench/driver_measure.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace detshare::bench {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The kernel does nothing, so the measurements are of the driver and not of the kernel.
constexpr char kNullKernel[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry null_kernel(.param .u64 pointer, .param .u32 count) { ret; }
)";

struct Driver {
// A list with one call a line.
// clang-format off
#define DETSHARE_DRIVER_CALLS(X) \
  X(cuInit) \
  X(cuDeviceGet) \
  X(cuDevicePrimaryCtxRetain) \
  X(cuCtxSetCurrent) \
  X(cuCtxSynchronize) \
  X(cuModuleLoadData) \
  X(cuModuleGetFunction) \
  X(cuLaunchKernel) \
  X(cuStreamCreate) \
  X(cuStreamSynchronize) \
  X(cuMemAlloc) \
  X(cuMemFree) \
  X(cuMemcpyHtoD) \
  X(cuMemcpyDtoH) \
  X(cuMemAllocHost) \
  X(cuMemFreeHost) \
  X(cuEventCreate) \
  X(cuEventRecord) \
  X(cuEventQuery) \
  X(cuGetErrorName)
// clang-format on
#define DETSHARE_POINTER(name) decltype(&::name) name = nullptr;
#define DETSHARE_CALL(name) DETSHARE_POINTER(name)
  DETSHARE_DRIVER_CALLS(DETSHARE_CALL)
#undef DETSHARE_CALL

  absl::Status Open(const std::string& library) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return absl::NotFoundError(dlerror());
      // Names become strings after macro expansion, so that cuMemAlloc is cuMemAlloc_v2, as in a
      // compiled program.
#define DETSHARE_STRING(name) #name
#define DETSHARE_CALL(name)                                                      \
  name = reinterpret_cast<decltype(name)>(dlsym(handle, DETSHARE_STRING(name))); \
  if (name == nullptr)                                                           \
    return absl::NotFoundError(absl::StrCat(library, " lacks " DETSHARE_STRING(name)));
    DETSHARE_DRIVER_CALLS(DETSHARE_CALL)
#undef DETSHARE_CALL
    return absl::OkStatus();
  }

  absl::Status Check(CUresult result, const char* call) const {
    if (result == CUDA_SUCCESS) return absl::OkStatus();
    const char* name = nullptr;
    cuGetErrorName(result, &name);
    return absl::InternalError(absl::StrCat(call, ": ", name == nullptr ? "unknown error" : name));
  }
};

#define DETSHARE_TRY(call)                                                                     \
  do {                                                                                         \
    if (absl::Status status = driver_.Check(driver_.call, #call); !status.ok()) return status; \
  } while (false)

// Makes all measurements. The public functions are called in their order, each once. The context,
// the stream and the small allocations stay until the process ends.
class Run {
 public:
  explicit Run(const MeasureOptions& options) : options_(options) {}

  absl::Status StartUp() {
    const auto begin = Clock::now();
    if (absl::Status status = driver_.Open(options_.library); !status.ok()) return status;
    CUdevice device;
    CUcontext context;
    DETSHARE_TRY(cuInit(0));
    DETSHARE_TRY(cuDeviceGet(&device, 0));
    DETSHARE_TRY(cuDevicePrimaryCtxRetain(&context, device));
    DETSHARE_TRY(cuCtxSetCurrent(context));
    Add("start-up to context", MicrosecondsSince(begin) / 1000);
    return absl::OkStatus();
  }

  absl::Status Launches() {
    CUmodule module;
    DETSHARE_TRY(cuModuleLoadData(&module, kNullKernel));
    DETSHARE_TRY(cuModuleGetFunction(&kernel_, module, "null_kernel"));
    DETSHARE_TRY(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 200; ++i) {
      if (absl::Status status = CheckedLaunch(); !status.ok()) return status;
    }
    DETSHARE_TRY(cuStreamSynchronize(stream_));

    // The bursts fit into every queue, so the time is that of the call and not of a wait for room.
    std::vector<double> samples;
    for (int burst = 0; burst < 100; ++burst) {
      const auto start = Clock::now();
      for (int i = 0; i < 100; ++i) Launch();
      samples.push_back(MicrosecondsSince(start) / 100);
      DETSHARE_TRY(cuStreamSynchronize(stream_));
    }
    Add("launch, client side", Median(std::move(samples)));

    const auto start = Clock::now();
    for (int i = 0; i < options_.launches; ++i) {
      if (absl::Status status = CheckedLaunch(); !status.ok()) return status;
    }
    DETSHARE_TRY(cuStreamSynchronize(stream_));
    Add("launches per second", options_.launches / MicrosecondsSince(start) * 1000);
    return absl::OkStatus();
  }

  absl::Status RoundTrips() {
    CUevent event;
    DETSHARE_TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr small;
    char host[64] = {};
    DETSHARE_TRY(cuMemAlloc(&small, sizeof host));
    const std::pair<const char*, std::function<absl::Status()>> trips[] = {
        {"launch + synchronize",
         [&]() -> absl::Status {
           Launch();
           DETSHARE_TRY(cuStreamSynchronize(stream_));
           return absl::OkStatus();
         }},
        {"event record + query until done",
         [&]() -> absl::Status {
           DETSHARE_TRY(cuEventRecord(event, stream_));
           CUresult result;
           while ((result = driver_.cuEventQuery(event)) == CUDA_ERROR_NOT_READY) {
           }
           return driver_.Check(result, "cuEventQuery");
         }},
        {"64 B to the device",
         [&]() -> absl::Status {
           DETSHARE_TRY(cuMemcpyHtoD(small, host, sizeof host));
           return absl::OkStatus();
         }},
        {"64 B from the device",
         [&]() -> absl::Status {
           DETSHARE_TRY(cuMemcpyDtoH(host, small, sizeof host));
           return absl::OkStatus();
         }},
        {"allocate + free 2 MiB",
         [&]() -> absl::Status {
           CUdeviceptr block;
           DETSHARE_TRY(cuMemAlloc(&block, 2 << 20));
           DETSHARE_TRY(cuMemFree(block));
           return absl::OkStatus();
         }},
    };
    for (const auto& [name, body] : trips) {
      std::vector<double> samples;
      for (int i = 0; i < options_.round_trips; ++i) {
        const auto trip = Clock::now();
        if (absl::Status status = body(); !status.ok()) return status;
        samples.push_back(MicrosecondsSince(trip));
      }
      Add(name, Median(std::move(samples)));
    }
    return absl::OkStatus();
  }

  absl::Status BulkCopies() {
    const size_t bytes = options_.bulk_bytes;
    CUdeviceptr bulk;
    DETSHARE_TRY(cuMemAlloc(&bulk, bytes));
    const std::unique_ptr<void, void (*)(void*)> pageable(std::malloc(bytes), std::free);
    if (pageable == nullptr)
      return absl::ResourceExhaustedError("no host memory for the bulk copies");
    std::memset(pageable.get(), 1, bytes);
    void* pinned;
    DETSHARE_TRY(cuMemAllocHost(&pinned, bytes));
    std::memset(pinned, 1, bytes);
    const std::pair<const char*, std::function<CUresult()>> copies[] = {
        {"pageable to the device",
         [&] { return driver_.cuMemcpyHtoD(bulk, pageable.get(), bytes); }},
        {"pageable from the device",
         [&] { return driver_.cuMemcpyDtoH(pageable.get(), bulk, bytes); }},
        {"pinned to the device", [&] { return driver_.cuMemcpyHtoD(bulk, pinned, bytes); }},
        {"pinned from the device", [&] { return driver_.cuMemcpyDtoH(pinned, bulk, bytes); }},
    };
    for (const auto& [name, copy] : copies) {
      std::vector<double> samples;
      for (int i = 0; i < 5; ++i) {
        const auto trip = Clock::now();
        if (absl::Status status = driver_.Check(copy(), name); !status.ok()) return status;
        DETSHARE_TRY(cuCtxSynchronize());  // a copy to the device may still be running
        samples.push_back(MicrosecondsSince(trip));
      }
      Add(name, bytes / Median(std::move(samples)) / 1000);
    }
    DETSHARE_TRY(cuMemFreeHost(pinned));
    DETSHARE_TRY(cuMemFree(bulk));
    return absl::OkStatus();
  }

  std::vector<Measurement> TakeResults() { return std::move(results_); }

 private:
  CUresult Launch() {
    uint64_t pointer = 0;
    uint32_t count = 0;
    void* parameters[] = {&pointer, &count};
    return driver_.cuLaunchKernel(kernel_, 1, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr);
  }
  absl::Status CheckedLaunch() { return driver_.Check(Launch(), "cuLaunchKernel"); }
  void Add(const char* name, double value) { results_.push_back({name, value}); }

  const MeasureOptions& options_;
  Driver driver_;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  std::vector<Measurement> results_;
};

}  // namespace

const std::vector<Metric>& Metrics() {
  static const std::vector<Metric> metrics = {
      {"start-up to context", "ms", true, 1, 0},
      {"launch, client side", "us", true, 1, 0},
      {"launches per second", "k/s", false, 0, 0},
      {"launch + synchronize", "us", true, 1, 3},
      {"event record + query until done", "us", true, 0, 0},
      {"64 B to the device", "us", true, 1, 3},
      {"64 B from the device", "us", true, 1, 3},
      {"allocate + free 2 MiB", "us", true, 0, 0},
      {"pageable to the device", "GB/s", false, 1, 0},
      {"pageable from the device", "GB/s", false, 1, 0},
      {"pinned to the device", "GB/s", false, 0, 0},
      {"pinned from the device", "GB/s", false, 0, 0},
  };
  return metrics;
}

absl::StatusOr<std::vector<Measurement>> Measure(const MeasureOptions& options) {
  Run run(options);
  for (const auto step : {&Run::StartUp, &Run::Launches, &Run::RoundTrips, &Run::BulkCopies}) {
    if (absl::Status status = (run.*step)(); !status.ok()) return status;
  }
  return run.TakeResults();
}

}  // namespace detshare::bench
