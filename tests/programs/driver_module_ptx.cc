// Modules of the driver API from PTX text: loading with options and logs, functions, globals,
// launches with kernelParams and with a packed buffer, parameter layouts, and the errors for names
// that do not exist.
#include "check_driver.h"

const char kText[] = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .global .align 4 .u32 bias[4] = {10, 20, 30, 40};
.visible .const .align 4 .u32 factor = 3;

// out[i] = in[i] * factor + bias[i % 4] + small + (u32)wide
.visible .entry transform(
    .param .u64 out, .param .u64 in, .param .u32 count, .param .u8 small, .param .u64 wide)
{
    .reg .pred %p;
    .reg .u16 %h<2>;
    .reg .u32 %r<12>;
    .reg .u64 %d<9>;
    ld.param.u64 %d0, [out];
    ld.param.u64 %d1, [in];
    ld.param.u32 %r0, [count];
    ld.param.u8 %h0, [small];
    ld.param.u64 %d2, [wide];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p, %r4, %r0;
    @%p bra DONE;
    cvta.to.global.u64 %d0, %d0;
    cvta.to.global.u64 %d1, %d1;
    mul.wide.u32 %d3, %r4, 4;
    add.u64 %d1, %d1, %d3;
    add.u64 %d0, %d0, %d3;
    ld.global.u32 %r5, [%d1];
    ld.const.u32 %r6, [factor];
    and.b32 %r7, %r4, 3;
    mul.wide.u32 %d4, %r7, 4;
    mov.u64 %d5, bias;
    add.u64 %d5, %d5, %d4;
    ld.global.u32 %r8, [%d5];
    mad.lo.u32 %r9, %r5, %r6, %r8;
    cvt.u32.u16 %r10, %h0;
    add.u32 %r9, %r9, %r10;
    cvt.u32.u64 %r11, %d2;
    add.u32 %r9, %r9, %r11;
    st.global.u32 [%d0], %r9;
DONE:
    ret;
}
)";

const char kThree[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry zeta() { ret; }
.visible .entry alpha() { ret; }
.visible .entry mid() { ret; }
)";

// Modules list their kernels in the order of the image, libraries in the opposite order. Programs
// compare the addresses of names.
void ListKernels() {
  CUmodule modules[2];
  CUfunction functions[2][3];
  for (int i = 0; i < 2; ++i) {
    CHECK_CU(cuModuleLoadData(&modules[i], kThree));
    CHECK_CU(cuModuleEnumerateFunctions(functions[i], 3, modules[i]));
  }
  for (int k = 0; k < 3; ++k) {
    const char *name = nullptr, *same = nullptr;
    CHECK_CU(cuFuncGetName(&name, functions[0][k]));
    CHECK_CU(cuFuncGetName(&same, functions[1][k]));
    REQUIRE(name == same);
    std::printf("%s\n", name);
  }
  CUlibrary library = nullptr;
  CUkernel kernels[3];
  CHECK_CU(cuLibraryLoadData(&library, kThree, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK_CU(cuLibraryEnumerateKernels(kernels, 3, library));
  for (CUkernel kernel : kernels) {
    const char* name = nullptr;
    CHECK_CU(cuKernelGetName(&name, kernel));
    std::printf("%s\n", name);
  }
  CHECK_CU(cuLibraryUnload(library));
  for (CUmodule module : modules) CHECK_CU(cuModuleUnload(module));
}

constexpr unsigned kCount = 1000;

std::vector<unsigned> Expected(const std::vector<unsigned>& in, unsigned factor,
                               const unsigned (&bias)[4], unsigned added) {
  std::vector<unsigned> want(kCount);
  for (unsigned i = 0; i < kCount; ++i) want[i] = in[i] * factor + bias[i % 4] + added;
  return want;
}

int main() {
  CUdevice device = check::UsePrimaryContext();
  ListKernels();
  char info[4096] = "", errors[4096] = "";
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {info, reinterpret_cast<void*>(sizeof info), errors,
                    reinterpret_cast<void*>(sizeof errors)};
  CUmodule module = nullptr, second = nullptr, broken = nullptr;
  CHECK_CU(cuModuleLoadDataEx(&module, kText, 4, options, values));
  CHECK_CU(cuModuleLoadData(&second, kText));
  EXPECT_CU(cuModuleLoadData(&broken, ".version 7.0\n.target sm_75\n.address_size 64\nnonsense\n"),
            CUDA_ERROR_INVALID_PTX);

  CUfunction function = nullptr, none = nullptr;
  CHECK_CU(cuModuleGetFunction(&function, module, "transform"));
  EXPECT_CU(cuModuleGetFunction(&none, module, "missing"), CUDA_ERROR_NOT_FOUND);
  CUdeviceptr bias = 0, factor = 0, second_bias = 0, missing = 0;
  std::size_t bias_size = 0, factor_size = 0, size = 0;
  CHECK_CU(cuModuleGetGlobal(&bias, &bias_size, module, "bias"));
  CHECK_CU(cuModuleGetGlobal(&factor, &factor_size, module, "factor"));
  CHECK_CU(cuModuleGetGlobal(&second_bias, &size, second, "bias"));
  EXPECT_CU(cuModuleGetGlobal(&missing, &size, module, "missing"), CUDA_ERROR_NOT_FOUND);
  REQUIRE(bias_size == 16 && factor_size == 4);
  REQUIRE(bias != second_bias);

  const std::size_t offsets[] = {0, 8, 16, 20, 24}, sizes[] = {8, 8, 4, 1, 8};
  for (int i = 0; i < 5; ++i) {
    std::size_t offset = 0, parameter_size = 0;
    CHECK_CU(cuFuncGetParamInfo(function, i, &offset, &parameter_size));
    REQUIRE(offset == offsets[i] && parameter_size == sizes[i]);
  }
  std::size_t ignored = 0;
  EXPECT_CU(cuFuncGetParamInfo(function, 5, &ignored, &ignored), CUDA_ERROR_INVALID_VALUE);
  int threads = 0, registers = 0;
  CHECK_CU(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  CHECK_CU(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
  REQUIRE(threads >= 128 && threads <= 1024 && registers > 0);

  // After an error the results are zero.
  CUdeviceptr nowhere = 7;
  std::size_t no_bytes = 7;
  EXPECT_CU(cuModuleGetGlobal(&nowhere, &no_bytes, module, ""), CUDA_ERROR_INVALID_VALUE);
  REQUIRE(nowhere == 0 && no_bytes == 0);
  CUtexref texture = nullptr;
  EXPECT_CU(cuModuleGetTexRef(&texture, module, "transform"), CUDA_ERROR_NOT_FOUND);

  std::vector<unsigned> in(kCount), got(kCount);
  for (unsigned i = 0; i < kCount; ++i) in[i] = i * 2654435761u;
  CUdeviceptr device_in = 0, out = 0;
  CHECK_CU(cuMemAlloc(&device_in, kCount * 4));
  CHECK_CU(cuMemAlloc(&out, kCount * 4));
  CHECK_CU(cuMemcpyHtoD(device_in, in.data(), kCount * 4));
  unsigned count = kCount;
  unsigned char small = 200;
  unsigned long long wide = 0x1234567800000fffull;
  void* parameters[] = {&out, &device_in, &count, &small, &wide};
  CHECK_CU(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr));
  // The launch has copied the parameters.
  small = 0;
  wide = 0;
  CHECK_CU(cuMemcpyDtoH(got.data(), out, kCount * 4));
  check::Compare("parameters", got, Expected(in, 3, {10, 20, 30, 40}, 200 + 0xfff));

  // One buffer with all parameters at their offsets. Before the launch, only the globals of this
  // module were changed.
  const unsigned new_bias[4] = {1, 2, 3, 4}, new_factor = 9;
  CHECK_CU(cuMemcpyHtoD(bias, new_bias, sizeof new_bias));
  CHECK_CU(cuMemcpyHtoD(factor, &new_factor, sizeof new_factor));
  struct {
    CUdeviceptr out, in;
    unsigned count;
    unsigned char small;
    unsigned long long wide;
  } packed = {out, device_in, kCount, 7, 100};
  std::size_t packed_size = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &packed_size, CU_LAUNCH_PARAM_END};
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  CHECK_CU(cuLaunchKernel(function, 16, 1, 1, 64, 1, 1, 0, stream, nullptr, extra));
  CHECK_CU(cuMemcpyDtoHAsync(got.data(), out, kCount * 4, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  check::Compare("packed", got, Expected(in, 9, new_bias, 107));

  // The second copy of the module has its own globals.
  CUfunction other = nullptr;
  CHECK_CU(cuModuleGetFunction(&other, second, "transform"));
  wide = 5;
  CHECK_CU(cuLaunchKernel(other, 8, 1, 1, 128, 1, 1, 0, stream, parameters, nullptr));
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuMemcpyDtoH(got.data(), out, kCount * 4));
  check::Compare("second module", got, Expected(in, 3, {10, 20, 30, 40}, 5));

  CHECK_CU(cuStreamDestroy(stream));
  CHECK_CU(cuModuleUnload(module));
  CHECK_CU(cuModuleUnload(second));
  CHECK_CU(cuMemFree(device_in));
  CHECK_CU(cuMemFree(out));
  CHECK_CU(cuDevicePrimaryCtxRelease(device));
  return check::Ok();
}
