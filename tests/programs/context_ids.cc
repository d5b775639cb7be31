// A private call of CUDA's libraries: the id of a context. cuBLAS asks for that of no context in
// threads that have none yet, and makes one current afterwards.
#include <cstring>
#include <thread>

#include "check_driver.h"

using GetContextId = CUresult (*)(CUcontext, unsigned long long*);

GetContextId Find() {
  constexpr unsigned char kIdentity[] = {0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48,
                                         0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2};
  CUuuid id;
  std::memcpy(id.bytes, kIdentity, sizeof(id.bytes));
  const void* table = nullptr;
  CHECK_CU(cuGetExportTable(&table, &id));
  return reinterpret_cast<GetContextId>(static_cast<void* const*>(table)[4]);
}

int main() {
  CHECK_CU(cuInit(0));
  const GetContextId get_id = Find();
  unsigned long long none = 77, named = 0, current = 0, known = 0;
  CHECK_CU(get_id(nullptr, &none));
  std::printf("no context: %llu\n", none);
  CUcontext context = nullptr;
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK_CU(get_id(context, &named));
  CHECK_CU(cuCtxSetCurrent(context));
  CHECK_CU(get_id(nullptr, &current));
  CHECK_CU(cuCtxGetId(context, &known));
  std::printf("a context: %s, current: %s\n", named == known ? "its id" : "another id",
              current == known  ? "its id"
              : current == none ? "none"
                                : "another id");
  std::thread([&] {
    unsigned long long other = 77;
    CHECK_CU(get_id(nullptr, &other));
    std::printf("another thread: %s\n", other == none ? "none" : "an id");
    // The runtime then makes the context current.
    CHECK(cudaFree(nullptr));
    CHECK_CU(get_id(nullptr, &other));
    std::printf("with a context: %s\n", other == known  ? "its id"
                                        : other == none ? "none"
                                                        : "another id");
  }).join();
  CHECK_CU(cuDevicePrimaryCtxRelease(0));
  return check::Ok();
}
