// The driver's linker. It links two PTX texts into one module; one text calls a function and reads
// a variable of the other. What is no PTX is refused and left out.
#include "check_driver.h"

const char kLibrary[] = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .global .align 4 .u32 rounds = 5;

.visible .func (.param .u32 result) collatz(.param .u32 start)
{
    .reg .pred %p<3>;
    .reg .u32 %r<5>;
    ld.param.u32 %r0, [start];
    mov.u32 %r1, 0;
LOOP:
    setp.le.u32 %p0, %r0, 1;
    @%p0 bra DONE;
    and.b32 %r2, %r0, 1;
    setp.eq.u32 %p1, %r2, 0;
    mad.lo.u32 %r3, %r0, 3, 1;
    shr.u32 %r4, %r0, 1;
    selp.u32 %r0, %r4, %r3, %p1;
    add.u32 %r1, %r1, 1;
    bra LOOP;
DONE:
    st.param.u32 [result], %r1;
    ret;
}
)";

const char kProgram[] = R"(
.version 7.0
.target sm_75
.address_size 64

.extern .global .align 4 .u32 rounds;
.extern .func (.param .u32 result) collatz(.param .u32 start);

.visible .entry lengths(.param .u64 out, .param .u32 count)
{
    .reg .pred %p;
    .reg .u32 %r<9>;
    .reg .u64 %d<4>;
    ld.param.u64 %d0, [out];
    ld.param.u32 %r0, [count];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p, %r4, %r0;
    @%p bra DONE;
    add.u32 %r5, %r4, 1;
    {
        .param .u32 argument;
        .param .u32 returned;
        st.param.u32 [argument], %r5;
        call.uni (returned), collatz, (argument);
        ld.param.u32 %r6, [returned];
    }
    ld.global.u32 %r7, [rounds];
    mad.lo.u32 %r8, %r6, %r7, %r4;
    cvta.to.global.u64 %d1, %d0;
    mul.wide.u32 %d2, %r4, 4;
    add.u64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r8;
DONE:
    ret;
}
)";

void NoKernels() {
  CUlinkState linker = nullptr;
  CHECK_CU(cuLinkCreate(0, nullptr, nullptr, &linker));
  void* image = nullptr;
  std::size_t size = 0;
  CHECK_CU(cuLinkComplete(linker, &image, &size));
  CUmodule module = nullptr;
  CHECK_CU(cuModuleLoadData(&module, image));
  unsigned count = 7;
  CHECK_CU(cuModuleGetFunctionCount(&count, module));
  REQUIRE(count == 0);
  CHECK_CU(cuModuleUnload(module));
  CHECK_CU(cuLinkDestroy(linker));
}

int main() {
  CUdevice device = check::UsePrimaryContext();
  NoKernels();
  CUlinkState linker = nullptr;
  CHECK_CU(cuLinkCreate(0, nullptr, nullptr, &linker));
  char text[] = "text";
  EXPECT_CU(cuLinkAddData(linker, CU_JIT_INPUT_PTX, text, sizeof text, "text", 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_IMAGE);
  // PTX may be called a fatbin.
  CHECK_CU(cuLinkAddData(linker, CU_JIT_INPUT_FATBINARY, const_cast<char*>(kLibrary),
                         sizeof kLibrary, "library.ptx", 0, nullptr, nullptr));
  CHECK_CU(cuLinkAddData(linker, CU_JIT_INPUT_PTX, const_cast<char*>(kProgram), sizeof kProgram,
                         "program.ptx", 0, nullptr, nullptr));
  void* image = nullptr;
  std::size_t size = 0;
  CHECK_CU(cuLinkComplete(linker, &image, &size));
  REQUIRE(image != nullptr && size > 0);
  CUmodule module = nullptr;
  CHECK_CU(cuModuleLoadData(&module, image));
  CHECK_CU(cuLinkDestroy(linker));

  constexpr unsigned kCount = 1500;
  CUfunction function = nullptr;
  CUdeviceptr out = 0, rounds = 0;
  CHECK_CU(cuModuleGetFunction(&function, module, "lengths"));
  CHECK_CU(cuModuleGetGlobal(&rounds, &size, module, "rounds"));
  REQUIRE(size == 4);
  CHECK_CU(cuMemAlloc(&out, kCount * 4));
  for (unsigned factor : {5u, 1000u}) {
    if (factor != 5) CHECK_CU(cuMemcpyHtoD(rounds, &factor, sizeof factor));
    unsigned count = kCount;
    void* parameters[] = {&out, &count};
    CHECK_CU(cuLaunchKernel(function, (kCount + 95) / 96, 1, 1, 96, 1, 1, 0, nullptr, parameters,
                            nullptr));
    std::vector<unsigned> got(kCount), want(kCount);
    CHECK_CU(cuMemcpyDtoH(got.data(), out, kCount * 4));
    for (unsigned i = 0; i < kCount; ++i) {
      unsigned length = 0;
      for (unsigned n = i + 1; n > 1; n = n % 2 == 0 ? n / 2 : n * 3 + 1) ++length;
      want[i] = length * factor + i;
    }
    check::Compare("lengths", got, want);
  }
  CHECK_CU(cuMemFree(out));
  CHECK_CU(cuModuleUnload(module));
  CHECK_CU(cuDevicePrimaryCtxRelease(device));
  return check::Ok();
}
