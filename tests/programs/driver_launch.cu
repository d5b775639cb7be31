// Libraries, kernels and launches of the driver API: cuLibraryLoadData, kernels as functions,
// cuLaunchKernelEx with attributes, three-dimensional grids, occupancy, and the errors of
// impossible launches.
#include "check_driver.h"

const char kText[] = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .global .align 4 .u32 launches;
.extern .shared .align 16 .b8 dynamic[];

// out[linear thread] = tid.x + 10 tid.y + 100 tid.z + 1000 ctaid.x + 10000 ctaid.y + 100000 ctaid.z
.visible .entry indices(.param .u64 out)
{
    .reg .u32 %r<40>;
    .reg .u64 %d<4>;
    .reg .pred %p;
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %tid.y;
    mov.u32 %r2, %tid.z;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %ntid.y;
    mov.u32 %r5, %ntid.z;
    mov.u32 %r6, %ctaid.x;
    mov.u32 %r7, %ctaid.y;
    mov.u32 %r8, %ctaid.z;
    mov.u32 %r9, %nctaid.x;
    mov.u32 %r10, %nctaid.y;
    mad.lo.u32 %r11, %r2, %r4, %r1;
    mad.lo.u32 %r12, %r11, %r3, %r0;      // thread in block
    mad.lo.u32 %r13, %r8, %r10, %r7;
    mad.lo.u32 %r14, %r13, %r9, %r6;      // block in grid
    mul.lo.u32 %r15, %r3, %r4;
    mul.lo.u32 %r16, %r15, %r5;           // threads of a block
    mad.lo.u32 %r17, %r14, %r16, %r12;
    mad.lo.u32 %r18, %r1, 10, %r0;
    mad.lo.u32 %r18, %r2, 100, %r18;
    mad.lo.u32 %r18, %r6, 1000, %r18;
    mad.lo.u32 %r18, %r7, 10000, %r18;
    mad.lo.u32 %r18, %r8, 100000, %r18;
    ld.param.u64 %d0, [out];
    cvta.to.global.u64 %d0, %d0;
    mul.wide.u32 %d1, %r17, 4;
    add.u64 %d2, %d0, %d1;
    st.global.u32 [%d2], %r18;
    setp.ne.u32 %p, %r17, 0;
    @%p bra DONE;
    red.global.add.u32 [launches], 1;
DONE:
    ret;
}

// Reverses the block's values through dynamic shared memory.
.visible .entry reverse(.param .u64 data)
{
    .reg .u32 %r<8>;
    .reg .u64 %d<4>;
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0;
    ld.param.u64 %d0, [data];
    cvta.to.global.u64 %d0, %d0;
    mul.wide.u32 %d1, %r3, 4;
    add.u64 %d2, %d0, %d1;
    ld.global.u32 %r4, [%d2];
    sub.u32 %r5, %r1, %r0;
    sub.u32 %r5, %r5, 1;
    shl.b32 %r5, %r5, 2;
    mov.u32 %r6, dynamic;
    add.u32 %r5, %r5, %r6;
    st.shared.u32 [%r5], %r4;
    bar.sync 0;
    shl.b32 %r7, %r0, 2;
    add.u32 %r7, %r7, %r6;
    ld.shared.u32 %r4, [%r7];
    st.global.u32 [%d2], %r4;
    ret;
}
)";

// A library looks at its code when it is first used.
void WrongCode() {
  const char kWrong[] =
      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry x() { bad; }\n";
  CUlibrary library = nullptr;
  CHECK_CU(cuLibraryLoadData(&library, kWrong, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned kernels = 7;
  CHECK_CU(cuLibraryGetKernelCount(&kernels, library));
  REQUIRE(kernels == 0);
  CUkernel kernel = nullptr;
  EXPECT_CU(cuLibraryGetKernel(&kernel, library, "x"), CUDA_ERROR_INVALID_PTX);
  CUmodule module = nullptr;
  EXPECT_CU(cuLibraryGetModule(&module, library), CUDA_ERROR_INVALID_PTX);
  CUdeviceptr memory = 0;
  std::size_t size = 0;
  EXPECT_CU(cuLibraryGetGlobal(&memory, &size, library, "y"), CUDA_ERROR_INVALID_PTX);
  CHECK_CU(cuLibraryUnload(library));
  CHECK_CU(cuLibraryLoadData(&library, "no code", nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_CU(cuLibraryGetKernel(&kernel, library, "x"), CUDA_ERROR_INVALID_IMAGE);
  CHECK_CU(cuLibraryUnload(library));
}

int main() {
  CUdevice device = check::UsePrimaryContext();
  WrongCode();
  CUlibrary library = nullptr;
  CUkernel indices = nullptr, reverse = nullptr, missing = nullptr;
  CHECK_CU(cuLibraryLoadData(&library, kText, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK_CU(cuLibraryGetKernel(&indices, library, "indices"));
  CHECK_CU(cuLibraryGetKernel(&reverse, library, "reverse"));
  void* unified = nullptr;
  EXPECT_CU(cuLibraryGetUnifiedFunction(&unified, library, "indices"), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuLibraryGetKernel(&missing, library, "missing"), CUDA_ERROR_NOT_FOUND);
  CUfunction function = nullptr;
  CHECK_CU(cuKernelGetFunction(&function, indices));
  CUdeviceptr launches = 0;
  std::size_t size = 0;
  CHECK_CU(cuLibraryGetGlobal(&launches, &size, library, "launches"));
  REQUIRE(size == 4);
  unsigned kernels = 0;
  CHECK_CU(cuLibraryGetKernelCount(&kernels, library));
  REQUIRE(kernels == 2);
  const char* name = nullptr;
  CHECK_CU(cuKernelGetName(&name, reverse));
  std::printf("kernel: %s\n", name);
  CHECK_CU(cuFuncGetName(&name, function));
  std::printf("function: %s\n", name);

  // The same three-dimensional launch of a function, of a kernel, and with a configuration.
  constexpr unsigned kCount = 3 * 4 * 2 * 5 * 3 * 2;
  std::vector<unsigned> want(kCount);
  unsigned n = 0;
  for (unsigned bz = 0; bz < 2; ++bz) {
    for (unsigned by = 0; by < 4; ++by) {
      for (unsigned bx = 0; bx < 3; ++bx) {
        for (unsigned z = 0; z < 2; ++z) {
          for (unsigned y = 0; y < 3; ++y) {
            for (unsigned x = 0; x < 5; ++x) {
              want[n++] = x + 10 * y + 100 * z + 1000 * bx + 10000 * by + 100000 * bz;
            }
          }
        }
      }
    }
  }
  CUstream stream = nullptr;
  int least = 0, greatest = 0;
  CHECK_CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  CHECK_CU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
  CUdeviceptr out = 0;
  CHECK_CU(cuMemAlloc(&out, kCount * 4));
  void* parameters[] = {&out};
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[0].value.priority = least;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[1].value.cooperative = 1;
  CUlaunchConfig config = {};
  config.gridDimX = 3;
  config.gridDimY = 4;
  config.gridDimZ = 2;
  config.blockDimX = 5;
  config.blockDimY = 3;
  config.blockDimZ = 2;
  config.hStream = stream;
  config.attrs = attributes;
  for (int way = 0; way < 4; ++way) {
    CHECK_CU(cuMemsetD8Async(out, 0xff, kCount * 4, stream));
    CUfunction callee = way == 0 ? function : reinterpret_cast<CUfunction>(indices);
    if (way < 2) {
      CHECK_CU(cuLaunchKernel(callee, 3, 4, 2, 5, 3, 2, 0, stream, parameters, nullptr));
    } else {
      config.numAttrs = way == 2 ? 0 : 2;
      CHECK_CU(cuLaunchKernelEx(&config, callee, parameters, nullptr));
    }
    std::vector<unsigned> got(kCount);
    CHECK_CU(cuMemcpyDtoHAsync(got.data(), out, kCount * 4, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    check::Compare("indices", got, want);
  }
  unsigned counted = 0;
  CHECK_CU(cuMemcpyDtoH(&counted, launches, sizeof counted));
  REQUIRE(counted == 4);

  // Dynamic shared memory beyond 48 KiB, by the kernel's own attribute.
  constexpr unsigned kThreads = 120, kBlocks = 3;
  std::vector<unsigned> data(kThreads * kBlocks), reversed(kThreads * kBlocks);
  for (unsigned i = 0; i < data.size(); ++i) data[i] = i * i;
  for (unsigned i = 0; i < data.size(); ++i) {
    reversed[i] = data[i / kThreads * kThreads + kThreads - 1 - i % kThreads];
  }
  CUdeviceptr device_data = 0;
  CHECK_CU(cuMemAlloc(&device_data, data.size() * 4));
  void* reverse_parameters[] = {&device_data};
  auto* reverse_function = reinterpret_cast<CUfunction>(reverse);
  EXPECT_ERROR_CU(cuLaunchKernel(reverse_function, kBlocks, 1, 1, kThreads, 1, 1, 60000, stream,
                                 reverse_parameters, nullptr));
  CHECK_CU(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, reverse,
                                device));
  int allowed = 0;
  CHECK_CU(cuKernelGetAttribute(&allowed, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, reverse,
                                device));
  REQUIRE(allowed == 60000);
  for (unsigned shared : {kThreads * 4, 60000u}) {
    CHECK_CU(cuMemcpyHtoD(device_data, data.data(), data.size() * 4));
    CHECK_CU(cuLaunchKernel(reverse_function, kBlocks, 1, 1, kThreads, 1, 1, shared, nullptr,
                            reverse_parameters, nullptr));
    std::vector<unsigned> got(data.size());
    CHECK_CU(cuMemcpyDtoH(got.data(), device_data, data.size() * 4));
    check::Compare("reversed", got, reversed);
  }

  int blocks = 0;
  CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, 0));
  REQUIRE(blocks >= 1);
  int grid = 0, block = 0;
  CHECK_CU(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, nullptr, 0, 0));
  REQUIRE(grid >= 1 && block >= 32 && block <= 1024);

  EXPECT_ERROR_CU(cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, stream, parameters, nullptr));
  EXPECT_ERROR_CU(cuLaunchKernel(function, 0, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  EXPECT_ERROR_CU(cuLaunchKernel(function, 1, 70000, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuStreamDestroy(stream));
  CHECK_CU(cuMemFree(out));
  CHECK_CU(cuMemFree(device_data));
  CHECK_CU(cuLibraryUnload(library));
  CHECK_CU(cuDevicePrimaryCtxRelease(device));
  return check::Ok();
}
