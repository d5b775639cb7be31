// Modules that are loaded and unloaded again and again, as programs do that compile small kernels
// as they go. Every load is new: variables have their first values, attributes their defaults. The
// kernels of an unloaded module may still be running.
#include <cstdio>
#include <string>
#include <thread>

#include "check_driver.h"

// out[0] += `step`, with the body's own statements in between.
std::string Text(int step, const std::string& declarations = "", const std::string& body = "") {
  return ".version 7.0\n.target sm_75\n.address_size 64\n" + declarations +
         ".visible .entry add(.param .u64 out)\n{\n.reg .u64 %d<4>;\n.reg .u32 %r<8>;\n"
         ".reg .pred %p;\nld.param.u64 %d0, [out];\ncvta.to.global.u64 %d0, %d0;\n" +
         body + "ld.global.u32 %r0, [%d0];\nadd.u32 %r0, %r0, " + std::to_string(step) +
         ";\nst.global.u32 [%d0], %r0;\nret;\n}\n";
}

CUdeviceptr Zeroed() {
  CUdeviceptr memory = 0;
  CHECK_CU(cuMemAlloc(&memory, 4));
  CHECK_CU(cuMemsetD32(memory, 0, 1));
  return memory;
}

unsigned Read(CUdeviceptr address) {
  unsigned value = 0;
  CHECK_CU(cuMemcpyDtoH(&value, address, 4));
  return value;
}

CUmodule Load(const std::string& text) {
  CUmodule module = nullptr;
  CHECK_CU(cuModuleLoadData(&module, text.c_str()));
  return module;
}

CUfunction Find(CUmodule module, const char* name = "add") {
  CUfunction function = nullptr;
  CHECK_CU(cuModuleGetFunction(&function, module, name));
  return function;
}

void Launch(CUfunction function, CUdeviceptr out, CUstream stream = nullptr) {
  void* parameters[] = {&out};
  CHECK_CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
}

// More images than anybody keeps, each several times.
void ManyImages(CUdeviceptr out, int images, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < images; ++i) {
      const CUmodule module = Load(Text(i));
      CUfunction none = nullptr;
      EXPECT_CU(cuModuleGetFunction(&none, module, "subtract"), CUDA_ERROR_NOT_FOUND);
      Launch(Find(module), out);
      CHECK_CU(cuModuleUnload(module));
    }
  }
}

void TwoOfOneImage() {
  const CUdeviceptr out = Zeroed();
  const CUmodule first = Load(Text(1000)), second = Load(Text(1000));
  REQUIRE(first != second);
  const CUfunction kernel = Find(second);
  Launch(Find(first), out);
  CHECK_CU(cuModuleUnload(first));
  Launch(kernel, out);
  const CUmodule third = Load(Text(1000));
  Launch(Find(third), out);
  Launch(kernel, out);
  CHECK_CU(cuModuleUnload(second));
  Launch(Find(third), out);
  CHECK_CU(cuModuleUnload(third));
  REQUIRE(Read(out) == 5000);
  CHECK_CU(cuMemFree(out));
  std::puts("two of one image");
}

// The kernel counts its launches in a variable of the module.
void Variables() {
  const std::string text =
      Text(0, ".global .u32 launches = 7;\n",
           "mov.u64 %d1, launches;\nld.global.u32 %r1, [%d1];\nadd.u32 %r1, %r1, 1;\n"
           "st.global.u32 [%d1], %r1;\nst.global.u32 [%d0], %r1;\n");
  const std::string constant = Text(0, ".const .u32 factor = 5;\n",
                                    "ld.const.u32 %r1, [factor];\nst.global.u32 [%d0], %r1;\n");
  const CUdeviceptr out = Zeroed();
  for (int round = 0; round < 3; ++round) {
    CUmodule module = Load(text);
    Launch(Find(module), out);
    Launch(Find(module), out);
    REQUIRE(Read(out) == 9);
    CHECK_CU(cuModuleUnload(module));
    module = Load(constant);
    Launch(Find(module), out);
    REQUIRE(Read(out) == 5);
    CUdeviceptr factor = 0;
    std::size_t bytes = 0;
    CHECK_CU(cuModuleGetGlobal(&factor, &bytes, module, "factor"));
    CHECK_CU(cuMemsetD32(factor, 6, 1));
    Launch(Find(module), out);
    REQUIRE(Read(out) == 6);
    CHECK_CU(cuModuleUnload(module));
  }
  CHECK_CU(cuMemFree(out));
  std::puts("variables");
}

void Attributes() {
  const CUfunction_attribute name = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  int first = 0, value = 0;
  for (int round = 0; round < 3; ++round) {
    const CUmodule module = Load(Text(77));
    const CUfunction kernel = Find(module);
    CHECK_CU(cuFuncGetAttribute(&value, name, kernel));
    if (round == 0) first = value;
    REQUIRE(value == first);
    CHECK_CU(cuFuncSetAttribute(kernel, name, 20000));
    CHECK_CU(cuFuncGetAttribute(&value, name, kernel));
    REQUIRE(value == 20000);
    CHECK_CU(cuModuleUnload(module));
  }
  std::puts("attributes");
}

// Unloads the module of a kernel that runs, and loads the same image.
void RunningKernel() {
  const std::string text =
      Text(3, "",
           "mov.u32 %r2, 200000;\nLOOP:\nsub.u32 %r2, %r2, 1;\nsetp.ne.u32 %p, %r2, 0;\n"
           "@%p bra LOOP;\n");
  const CUdeviceptr out = Zeroed();
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < 5; ++round) {
    const CUmodule module = Load(text);
    Launch(Find(module), out, stream);
    CHECK_CU(cuModuleUnload(module));
  }
  CHECK_CU(cuStreamSynchronize(stream));
  REQUIRE(Read(out) == 15);
  CHECK_CU(cuStreamDestroy(stream));
  CHECK_CU(cuMemFree(out));
  std::puts("running kernel");
}

void Options() {
  const std::string text = Text(9);
  const CUdeviceptr out = Zeroed();
  for (int round = 0; round < 4; ++round) {
    CUjit_option quick[] = {CU_JIT_OPTIMIZATION_LEVEL};
    void* level[] = {reinterpret_cast<void*>(static_cast<std::uintptr_t>(round % 2 * 4))};
    CUmodule module = nullptr;
    CHECK_CU(cuModuleLoadDataEx(&module, text.c_str(), 1, quick, level));
    Launch(Find(module), out);
    CHECK_CU(cuModuleUnload(module));
    char info[1024] = "";
    CUjit_option logs[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {info, reinterpret_cast<void*>(sizeof info)};
    CHECK_CU(cuModuleLoadDataEx(&module, text.c_str(), 2, logs, values));
    Launch(Find(module), out);
    CHECK_CU(cuModuleUnload(module));
  }
  REQUIRE(Read(out) == 72);
  CHECK_CU(cuMemFree(out));
  std::puts("options");
}

// The description of this kernel, with 200 parameters, and the names of these kernels are long.
void LongDescriptions() {
  std::string text = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry sum(";
  for (int i = 0; i < 200; ++i) text += ".param .u32 p" + std::to_string(i) + ", ";
  text +=
      ".param .u64 out)\n{\n.reg .u64 %d;\n.reg .u32 %r<2>;\nld.param.u64 %d, [out];\n"
      "cvta.to.global.u64 %d, %d;\nmov.u32 %r0, 0;\n";
  for (int i = 0; i < 200; ++i) {
    text += "ld.param.u32 %r1, [p" + std::to_string(i) + "];\nadd.u32 %r0, %r0, %r1;\n";
  }
  text += "st.global.u32 [%d], %r0;\nret;\n}\n";
  const std::string part(60, 'n');
  for (int i = 0; i < 40; ++i)
    text += ".visible .entry " + part + std::to_string(i) + "()\n{\nret;\n}\n";
  CUdeviceptr out = Zeroed();
  for (int round = 0; round < 2; ++round) {
    const CUmodule module = Load(text);
    unsigned count = 0;
    CHECK_CU(cuModuleGetFunctionCount(&count, module));
    REQUIRE(count == 41);
    std::vector<CUfunction> functions(count);
    CHECK_CU(cuModuleEnumerateFunctions(functions.data(), count, module));
    for (const CUfunction function : functions) {
      const char* name = nullptr;
      CHECK_CU(cuFuncGetName(&name, function));
      REQUIRE(std::string(name) == "sum" || std::string(name).compare(0, 60, part) == 0);
    }
    std::vector<unsigned> values(200, round + 2);
    std::vector<void*> parameters;
    for (unsigned& value : values) parameters.push_back(&value);
    parameters.push_back(&out);
    CHECK_CU(cuLaunchKernel(Find(module, "sum"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters.data(),
                            nullptr));
    REQUIRE(Read(out) == 200u * (round + 2));
    CHECK_CU(cuModuleUnload(module));
  }
  CHECK_CU(cuMemFree(out));
  std::puts("long descriptions");
}

int main() {
  const CUdevice device = check::UsePrimaryContext();
  CUcontext context = nullptr;
  CHECK_CU(cuCtxGetCurrent(&context));
  CUdeviceptr out = Zeroed();
  ManyImages(out, 100, 3);
  REQUIRE(Read(out) == 3 * 4950);
  std::puts("many images");
  TwoOfOneImage();
  Variables();
  Attributes();
  RunningKernel();
  Options();
  LongDescriptions();

  std::vector<std::thread> threads;
  std::vector<CUdeviceptr> sums;
  for (int i = 0; i < 4; ++i) sums.push_back(Zeroed());
  for (const CUdeviceptr sum : sums) {
    threads.emplace_back([=] {
      CHECK_CU(cuCtxSetCurrent(context));
      ManyImages(sum, 10, 10);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const CUdeviceptr sum : sums) REQUIRE(Read(sum) == 450);
  std::puts("threads");

  // The modules end with their context.
  Load(Text(1));
  CHECK_CU(cuModuleUnload(Load(Text(2))));
  CHECK_CU(cuDevicePrimaryCtxReset(device));
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
  CHECK_CU(cuCtxSetCurrent(context));
  out = Zeroed();
  ManyImages(out, 3, 2);
  REQUIRE(Read(out) == 6);
  std::puts("context");
  return check::Ok();
}
