#include "tools/bench/driver_measure.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

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

#define DETSHARE_TRY(call)                                                                   \
  do {                                                                                       \
    if (absl::Status status = driver.Check(driver.call, #call); !status.ok()) return status; \
  } while (false)

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
  Driver driver;
  std::vector<Measurement> out;
  const auto begin = Clock::now();
  if (absl::Status status = driver.Open(options.library); !status.ok()) return status;
  CUdevice device;
  CUcontext context;
  DETSHARE_TRY(cuInit(0));
  DETSHARE_TRY(cuDeviceGet(&device, 0));
  DETSHARE_TRY(cuDevicePrimaryCtxRetain(&context, device));
  DETSHARE_TRY(cuCtxSetCurrent(context));
  out.push_back({"start-up to context", MicrosecondsSince(begin) / 1000});

  CUmodule module;
  CUfunction kernel;
  CUstream stream;
  DETSHARE_TRY(cuModuleLoadData(&module, kNullKernel));
  DETSHARE_TRY(cuModuleGetFunction(&kernel, module, "null_kernel"));
  DETSHARE_TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  uint64_t pointer = 0;
  uint32_t count = 0;
  void* parameters[] = {&pointer, &count};
  const auto launch = [&] {
    return driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  };
  for (int i = 0; i < 200; ++i) {
    if (absl::Status status = driver.Check(launch(), "cuLaunchKernel"); !status.ok()) return status;
  }
  DETSHARE_TRY(cuStreamSynchronize(stream));

  // Bursts that fit into every queue, so that the time is that of the call and not of a wait for
  // room.
  std::vector<double> samples;
  for (int burst = 0; burst < 100; ++burst) {
    const auto start = Clock::now();
    for (int i = 0; i < 100; ++i) launch();
    samples.push_back(MicrosecondsSince(start) / 100);
    DETSHARE_TRY(cuStreamSynchronize(stream));
  }
  out.push_back({"launch, client side", Median(samples)});

  auto start = Clock::now();
  for (int i = 0; i < options.launches; ++i) {
    if (absl::Status status = driver.Check(launch(), "cuLaunchKernel"); !status.ok()) return status;
  }
  DETSHARE_TRY(cuStreamSynchronize(stream));
  out.push_back({"launches per second", options.launches / MicrosecondsSince(start) * 1000});

  const auto round_trips = [&](const char* name,
                               const std::function<absl::Status()>& body) -> absl::Status {
    samples.clear();
    for (int i = 0; i < options.round_trips; ++i) {
      const auto trip = Clock::now();
      if (absl::Status status = body(); !status.ok()) return status;
      samples.push_back(MicrosecondsSince(trip));
    }
    out.push_back({name, Median(samples)});
    return absl::OkStatus();
  };
  CUevent event;
  DETSHARE_TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUdeviceptr small;
  char host[64] = {};
  DETSHARE_TRY(cuMemAlloc(&small, sizeof host));
  const std::pair<const char*, std::function<absl::Status()>> trips[] = {
      {"launch + synchronize",
       [&]() -> absl::Status {
         launch();
         return driver.Check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
       }},
      {"event record + query until done",
       [&]() -> absl::Status {
         DETSHARE_TRY(cuEventRecord(event, stream));
         CUresult result;
         while ((result = driver.cuEventQuery(event)) == CUDA_ERROR_NOT_READY) {
         }
         return driver.Check(result, "cuEventQuery");
       }},
      {"64 B to the device",
       [&] { return driver.Check(driver.cuMemcpyHtoD(small, host, sizeof host), "cuMemcpyHtoD"); }},
      {"64 B from the device",
       [&] { return driver.Check(driver.cuMemcpyDtoH(host, small, sizeof host), "cuMemcpyDtoH"); }},
      {"allocate + free 2 MiB",
       [&]() -> absl::Status {
         CUdeviceptr block;
         DETSHARE_TRY(cuMemAlloc(&block, 2 << 20));
         DETSHARE_TRY(cuMemFree(block));
         return absl::OkStatus();
       }},
  };
  for (const auto& [name, body] : trips) {
    if (absl::Status status = round_trips(name, body); !status.ok()) return status;
  }

  CUdeviceptr bulk;
  DETSHARE_TRY(cuMemAlloc(&bulk, options.bulk_bytes));
  std::unique_ptr<char, void (*)(void*)> pageable(
      static_cast<char*>(std::malloc(options.bulk_bytes)), std::free);
  if (pageable == nullptr)
    return absl::ResourceExhaustedError("no host memory for the bulk copies");
  std::memset(pageable.get(), 1, options.bulk_bytes);
  void* pinned;
  DETSHARE_TRY(cuMemAllocHost(&pinned, options.bulk_bytes));
  std::memset(pinned, 1, options.bulk_bytes);
  const auto bulk_copy = [&](const char* name,
                             const std::function<CUresult()>& copy) -> absl::Status {
    samples.clear();
    for (int i = 0; i < 5; ++i) {
      const auto trip = Clock::now();
      if (absl::Status status = driver.Check(copy(), name); !status.ok()) return status;
      DETSHARE_TRY(cuCtxSynchronize());  // a copy to the device may still be running
      samples.push_back(MicrosecondsSince(trip));
    }
    out.push_back({name, options.bulk_bytes / Median(samples) / 1000});
    return absl::OkStatus();
  };
  const std::pair<const char*, std::function<CUresult()>> copies[] = {
      {"pageable to the device",
       [&] { return driver.cuMemcpyHtoD(bulk, pageable.get(), options.bulk_bytes); }},
      {"pageable from the device",
       [&] { return driver.cuMemcpyDtoH(pageable.get(), bulk, options.bulk_bytes); }},
      {"pinned to the device",
       [&] { return driver.cuMemcpyHtoD(bulk, pinned, options.bulk_bytes); }},
      {"pinned from the device",
       [&] { return driver.cuMemcpyDtoH(pinned, bulk, options.bulk_bytes); }},
  };
  for (const auto& [name, copy] : copies) {
    if (absl::Status status = bulk_copy(name, copy); !status.ok()) return status;
  }
  DETSHARE_TRY(cuMemFreeHost(pinned));
  DETSHARE_TRY(cuMemFree(bulk));
  return out;
}

}  // namespace detshare::bench
