#include "client_shim/code/jit_options.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

namespace detshare::shim {
namespace {

void* Number(uintptr_t value) { return reinterpret_cast<void*>(value); }

TEST_CASE("Numbers go to the daemon, and buffers stay in the shim") {
  char info[16];
  CUjit_option options[] = {CU_JIT_MAX_REGISTERS,   CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_INFO_LOG_BUFFER, CU_JIT_TARGET_FROM_CUCONTEXT,
                            CU_JIT_WALL_TIME,       CU_JIT_LOG_VERBOSE};
  void* values[] = {Number(32), Number(sizeof(info)), info, nullptr, nullptr, Number(1)};
  JitOptions parsed;
  REQUIRE(parsed.Parse(6, options, values) == CUDA_SUCCESS);
  REQUIRE(parsed.plain().size() == 3);
  CHECK(parsed.plain()[0].option == CU_JIT_MAX_REGISTERS);
  CHECK(parsed.plain()[0].value == 32);
  CHECK(parsed.plain()[1].option == CU_JIT_TARGET_FROM_CUCONTEXT);
  CHECK(parsed.plain()[2].value == 1);
  CHECK(parsed.info_log_bytes() == sizeof(info));
  CHECK(parsed.error_log_bytes() == 0);
}

TEST_CASE("A log is written with its terminator, and its length into the size option") {
  char error[16];
  memset(error, 'x', sizeof(error));
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_WALL_TIME};
  void* values[] = {error, Number(sizeof(error)), nullptr};
  JitOptions parsed;
  REQUIRE(parsed.Parse(3, options, values) == CUDA_SUCCESS);
  parsed.WriteBack("ignored", "seven b", 1.5f);
  CHECK(std::string(error) == "seven b");
  CHECK(values[1] == Number(7));
  float milliseconds;
  memcpy(&milliseconds, &values[2], sizeof(milliseconds));
  CHECK(milliseconds == 1.5f);
}

TEST_CASE("A log that is too long is cut, and the size option has the buffer's size") {
  char error[8];
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {error, Number(sizeof(error))};
  JitOptions parsed;
  REQUIRE(parsed.Parse(2, options, values) == CUDA_SUCCESS);
  parsed.WriteBack("", "0123456789", 0);
  CHECK(std::string(error) == "0123456");
  CHECK(values[1] == Number(8));
}

TEST_CASE("Options that do not exist, or have no values, are invalid") {
  JitOptions parsed;
  CUjit_option options[] = {static_cast<CUjit_option>(63)};
  void* values[] = {nullptr};
  CHECK(parsed.Parse(1, options, values) == CUDA_ERROR_INVALID_VALUE);
  CHECK(parsed.Parse(1, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(parsed.Parse(0, nullptr, nullptr) == CUDA_SUCCESS);
}

TEST_CASE("A size without a log buffer is invalid") {
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {Number(100)};
  JitOptions parsed;
  CHECK(parsed.Parse(1, options, values) == CUDA_ERROR_INVALID_VALUE);
  CHECK(values[0] == Number(100));
}

}  // namespace
}  // namespace detshare::shim
