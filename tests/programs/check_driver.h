// Checked calls of the driver API for the test programs that link libcuda directly.
#pragma once

#include <cuda.h>

#include "check.h"

// Ends the program unless `call` returns CUDA_SUCCESS. Names the call and its error.
#define CHECK_CU(call) ::check::ExpectDriver((call), CUDA_SUCCESS, #call, __FILE__, __LINE__)

// Ends the program unless `call` returns exactly `want`.
#define EXPECT_CU(call, want) ::check::ExpectDriver((call), (want), #call, __FILE__, __LINE__)

// Prints the error that `call` returns. Ends the program if `call` succeeds.
#define EXPECT_ERROR_CU(call) ::check::ExpectSomeError((call), #call, __FILE__, __LINE__)

namespace check {

inline const char* Name(CUresult result) {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) return "an unknown error";
  return name;
}

inline void ExpectDriver(CUresult got, CUresult want, const char* text, const char* file,
                         int line) {
  if (got == want) return;
  std::printf("%s:%d: %s: got %s (%d), want %s (%d)\n", BaseName(file), line, text, Name(got),
              static_cast<int>(got), Name(want), static_cast<int>(want));
  std::fflush(stdout);
  std::_Exit(1);
}

inline void ExpectSomeError(CUresult got, const char* text, const char* file, int line) {
  if (got == CUDA_SUCCESS) Fail("succeeded but should not", text, file, line);
  std::printf("line %d: %s\n", line, Name(got));
}

// Initialises the driver and makes the first device's primary context current.
inline CUdevice UsePrimaryContext() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CHECK_CU(cuInit(0));
  CHECK_CU(cuDeviceGet(&device, 0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
  CHECK_CU(cuCtxSetCurrent(context));
  return device;
}

}  // namespace check
