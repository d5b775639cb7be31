#include "client_shim/work/launch.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "proto/wire/launch.h"

namespace detshare::shim {
namespace {

struct Parameters {
  KernelInstance kernel;
  Parameters() {
    // (char, double, struct of 12 bytes), as a kernel's parameter space has them.
    kernel.parameters = {{0, 1}, {8, 8}, {16, 12}};
    kernel.parameter_bytes = 28;
  }
};

TEST_CASE("Parameters are packed at the kernel's offsets, with zeros between them") {
  Parameters p;
  char a = 'x';
  double b = 2.5;
  int c[3] = {1, 2, 3};
  void* params[] = {&a, &b, c};
  std::byte packed[28];
  memset(packed, 0xAA, sizeof(packed));
  PackParameters(p.kernel, params, nullptr, 0, packed);
  CHECK(packed[0] == std::byte{'x'});
  for (int i = 1; i < 8; ++i) CHECK(packed[i] == std::byte{0});
  CHECK(memcmp(packed + 8, &b, 8) == 0);
  CHECK(memcmp(packed + 16, c, 12) == 0);
}

TEST_CASE("The room behind the last parameter is zero") {
  Parameters p;
  p.kernel.parameter_bytes = 32;
  char a = 'x';
  double b = 2.5;
  int c[3] = {1, 2, 3};
  void* params[] = {&a, &b, c};
  std::byte packed[32];
  memset(packed, 0xAA, sizeof(packed));
  PackParameters(p.kernel, params, nullptr, 0, packed);
  for (int i = 28; i < 32; ++i) CHECK(packed[i] == std::byte{0});
}

TEST_CASE(
    "Parameters come from the array or from the buffer of extra, never from both or neither") {
  Parameters p;
  const void* buffer;
  size_t bytes;
  void* params[3] = {};
  char memory[28] = {};
  size_t size = sizeof(memory);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, memory, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CHECK(FindParameters(p.kernel, params, nullptr, &buffer, &bytes) == CUDA_SUCCESS);
  CHECK(buffer == nullptr);
  CHECK(FindParameters(p.kernel, nullptr, extra, &buffer, &bytes) == CUDA_SUCCESS);
  CHECK(buffer == memory);
  CHECK(bytes == sizeof(memory));
  CHECK(FindParameters(p.kernel, params, extra, &buffer, &bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(FindParameters(p.kernel, nullptr, nullptr, &buffer, &bytes) == CUDA_ERROR_INVALID_VALUE);
  size = 29;
  CHECK(FindParameters(p.kernel, nullptr, extra, &buffer, &bytes) ==
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  size = 8;
  CHECK(FindParameters(p.kernel, nullptr, extra, &buffer, &bytes) == CUDA_SUCCESS);
  memset(memory, 'x', sizeof(memory));
  std::byte packed[28];
  PackParameters(p.kernel, nullptr, buffer, bytes, packed);
  CHECK(packed[7] == std::byte{'x'});
  CHECK(packed[8] == std::byte{0});
  size = 0;
  CHECK(FindParameters(p.kernel, nullptr, extra, &buffer, &bytes) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("A kernel without parameters needs neither array nor buffer") {
  KernelInstance kernel;
  const void* buffer;
  size_t bytes;
  CHECK(FindParameters(kernel, nullptr, nullptr, &buffer, &bytes) == CUDA_SUCCESS);
  // A buffer that it gets must be empty.
  char memory[4] = {};
  size_t size = 0;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, memory, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CHECK(FindParameters(kernel, nullptr, extra, &buffer, &bytes) == CUDA_SUCCESS);
  size = 4;
  CHECK(FindParameters(kernel, nullptr, extra, &buffer, &bytes) ==
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

TEST_CASE(
    "Launch attributes that change results are kept, hints are ignored, unknown ones are refused") {
  CreateObjects();
  CUlaunchAttribute attributes[4];
  memset(attributes, 0, sizeof(attributes));
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[0].value.cooperative = 1;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[1].value.clusterDim.x = 2;
  attributes[1].value.clusterDim.y = attributes[1].value.clusterDim.z = 1;
  attributes[2].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[2].value.priority = -3;
  attributes[3].id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
  CUlaunchConfig config{};
  config.attrs = attributes;
  config.numAttrs = 4;
  LaunchRequest request;
  LaunchEvents events;
  CHECK(ParseAttributes(config, &request, &events) == CUDA_SUCCESS);
  CHECK(request.flags ==
        (wire::kLaunchCooperative | wire::kLaunchHasCluster | wire::kLaunchHasPriority));
  CHECK(request.cluster[0] == 2);
  CHECK(request.priority == -3);
  CHECK(events.count == 0);
  attributes[3].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  CHECK(ParseAttributes(config, &request, &events) == CUDA_ERROR_INVALID_HANDLE);
  attributes[3].id = static_cast<CUlaunchAttributeID>(77);
  CHECK(ParseAttributes(config, &request, &events) == CUDA_ERROR_INVALID_VALUE);
  attributes[3].id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
  attributes[3].value.preferredClusterDim.x = 4;
  CHECK(ParseAttributes(config, &request, &events) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  attributes[3].id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
  attributes[3].value.sharedMemCarveout = static_cast<unsigned int>(-1);
  CHECK(ParseAttributes(config, &request, &events) == CUDA_ERROR_INVALID_VALUE);
  attributes[3].id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
  CHECK(ParseAttributes(config, &request, &events) == CUDA_ERROR_NOT_SUPPORTED);
  config.attrs = nullptr;
  CHECK(ParseAttributes(config, &request, &events) == CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace detshare::shim
