// The first GPU of the machine, and sessions on it that tests make by hand. For tests of the
// backend of real GPUs.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/backends/cuda/cuda_backend.h"
#include "tests/server/text_output.h"

namespace detshare {

inline constexpr char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64

.visible .global .align 4 .u32 counter = 7;

// out[i] = value + i
.visible .entry iota(.param .u64 out, .param .u32 value, .param .u32 count) {
  .reg .pred %p;
  .reg .u32 %r<8>;
  .reg .u64 %a<4>;
  ld.param.u64 %a0, [out];
  ld.param.u32 %r0, [value];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p, %r5, %r1;
  @%p ret;
  cvta.to.global.u64 %a0, %a0;
  mul.wide.u32 %a1, %r5, 4;
  add.u64 %a1, %a0, %a1;
  add.u32 %r6, %r0, %r5;
  st.global.u32 [%a1], %r6;
  ret;
}

// out[block] = SM, after some time so that blocks spread
.visible .entry where(.param .u64 out, .param .u64 cycles) {
  .reg .pred %p;
  .reg .u32 %r<4>;
  .reg .u64 %a<8>;
  ld.param.u64 %a0, [out];
  ld.param.u64 %a1, [cycles];
  mov.u64 %a2, %clock64;
again:
  mov.u64 %a3, %clock64;
  sub.u64 %a4, %a3, %a2;
  setp.lt.u64 %p, %a4, %a1;
  @%p bra again;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %smid;
  cvta.to.global.u64 %a0, %a0;
  mul.wide.u32 %a5, %r0, 4;
  add.u64 %a5, %a0, %a5;
  st.global.u32 [%a5], %r1;
  ret;
}

// Ends when all blocks have come
.visible .entry meet(.param .u64 count) {
  .reg .pred %p;
  .reg .u32 %r<4>;
  .reg .u64 %a<2>;
  ld.param.u64 %a0, [count];
  cvta.to.global.u64 %a0, %a0;
  atom.global.add.u32 %r0, [%a0], 1;
  mov.u32 %r1, %nctaid.x;
wait:
  ld.volatile.global.u32 %r2, [%a0];
  setp.lt.u32 %p, %r2, %r1;
  @%p bra wait;
  ret;
}
)";

inline constexpr char kPrintingPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[10] = {118, 97, 108, 117, 101, 32, 37, 117, 10, 0};

.visible .entry say(.param .u32 value) {
  .local .align 8 .b8 frame[8];
  .reg .u32 %r<4>;
  .reg .u64 %a<4>;
  ld.param.u32 %r0, [value];
  mov.u64 %a0, frame;
  cvta.local.u64 %a0, %a0;
  st.u32 [%a0], %r0;
  mov.u64 %a1, text;
  cvta.global.u64 %a1, %a1;
  {
    .param .b64 format;
    .param .b64 arguments;
    .param .b32 result;
    st.param.b64 [format], %a1;
    st.param.b64 [arguments], %a0;
    call.uni (result), vprintf, (format, arguments);
    ld.param.b32 %r1, [result];
  }
  ret;
}
)";

// Where sessions' memory begins. The backend keeps the 2 MiB in front of it.
inline constexpr DeviceAddress kBase = 0x0600'0020'0000;
inline constexpr uint64_t kMiB = 1 << 20;

// The first GPU, made once for the process. Null if there is none; the warning gives the reason.
inline Device* Gpu() {
  static absl::StatusOr<std::vector<std::unique_ptr<Device>>> devices = CreateCudaDevices({});
  if (!devices.ok()) {
    INFO(devices.status().ToString());
    REQUIRE(devices.status().code() == absl::StatusCode::kNotFound);
    WARN("SKIPPED, no GPU: " << devices.status().ToString());
    return nullptr;
  }
  return devices->front().get();
}

#define REQUIRE_OK(expression)                        \
  do {                                                \
    const absl::Status status_of_call = (expression); \
    INFO(status_of_call.ToString());                  \
    REQUIRE(status_of_call.ok());                     \
  } while (false)

// A session made by hand: an address space, host memory that the GPU reaches, and a queue.
struct Session {
  Device& device;
  std::unique_ptr<AddressSpace> space;
  std::unique_ptr<Queue> queue;
  char* host = nullptr;
  uint64_t host_bytes;
  std::atomic<uint64_t>* fence = nullptr;  // in the last page of `host`
  uint64_t last_value = 0;
  const std::shared_ptr<TextOutput> output = std::make_shared<TextOutput>();

  explicit Session(Device& device, uint64_t host_bytes = 40 * kMiB, int slot = 0)
      : device(device), host_bytes(host_bytes) {
    auto made = device.CreateAddressSpace(kBase - 2 * kMiB + (uint64_t(slot) << 40), 1ull << 40);
    REQUIRE_OK(made.status());
    space = *std::move(made);
    REQUIRE(space->base() == kBase + (uint64_t(slot) << 40));
    space->set_output(output);
    queue = *device.whole().CreateQueue(0);
    void* memory =
        mmap(nullptr, host_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    host = static_cast<char*>(memory);
    std::memset(host, 0, host_bytes);
    REQUIRE_OK(space->RegisterHost(host, host_bytes));
    fence = reinterpret_cast<std::atomic<uint64_t>*>(host + host_bytes - 4096);
  }
  ~Session() {
    queue.reset();
    space.reset();
    munmap(host, host_bytes);
  }

  DeviceAddress host_address() const { return reinterpret_cast<DeviceAddress>(host); }
  template <typename T>
  T* host_as() {
    return reinterpret_cast<T*>(host);
  }

  static bool Reached(const std::atomic<uint64_t>& fence, uint64_t value) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (fence.load(std::memory_order_acquire) < value) {
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }
  void Finish(Queue& on) {
    REQUIRE_OK(on.WriteFence(*space, fence, ++last_value));
    REQUIRE(Reached(*fence, last_value));
  }
  void Finish() { Finish(*queue); }

  std::unique_ptr<Library> Load(std::string_view image) {
    CompileLogs logs;
    logs.error_limit = 4096;
    auto library = device.LoadLibrary(
        *space, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(image.data()), image.size()),
        {}, logs, nullptr);
    INFO(logs.error);
    REQUIRE_OK(library.status());
    return *std::move(library);
  }
  void Copy(DeviceAddress to, DeviceAddress from, uint64_t bytes) {
    CopyRequest request;
    request.destination = to;
    request.source = from;
    request.width = bytes;
    REQUIRE_OK(queue->Copy(*space, request));
  }
};

// Packs kernel parameters at their natural alignment.
class Parameters {
 public:
  template <typename T>
  Parameters& Add(T value) {
    bytes_.resize((bytes_.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T));
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
    return *this;
  }
  operator absl::Span<const std::byte>() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

inline LaunchShape Shape(uint32_t grid, uint32_t block) {
  LaunchShape shape;
  shape.grid.x = grid;
  shape.block.x = block;
  return shape;
}

inline double MicrosecondsEach(int count, const std::function<void()>& function) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) function();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return took.count() / count;
}

}  // namespace detshare
