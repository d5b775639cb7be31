// Queries of the device. Properties and attributes must agree with each other and with the
// guarantees of the programming model.
#include "check.h"

int Attribute(cudaDeviceAttr attribute) {
  int value = -1;
  CHECK(cudaDeviceGetAttribute(&value, attribute, 0));
  return value;
}

int main() {
  int count = 0, device = -1, runtime = 0, driver = 0;
  CHECK(cudaGetDeviceCount(&count));
  REQUIRE(count >= 1);
  CHECK(cudaGetDevice(&device));
  REQUIRE(device == 0);
  CHECK(cudaSetDevice(0));
  CHECK(cudaRuntimeGetVersion(&runtime));
  CHECK(cudaDriverGetVersion(&driver));
  REQUIRE(runtime == CUDART_VERSION && driver / 1000 >= runtime / 1000);

  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, 0));
  REQUIRE(std::strlen(p.name) > 0);
  REQUIRE(p.major == Attribute(cudaDevAttrComputeCapabilityMajor));
  REQUIRE(p.minor == Attribute(cudaDevAttrComputeCapabilityMinor));
  REQUIRE(p.multiProcessorCount == Attribute(cudaDevAttrMultiProcessorCount));
  REQUIRE(p.maxThreadsPerBlock == Attribute(cudaDevAttrMaxThreadsPerBlock));
  REQUIRE(static_cast<int>(p.sharedMemPerBlock) == Attribute(cudaDevAttrMaxSharedMemoryPerBlock));
  REQUIRE(static_cast<int>(p.sharedMemPerBlockOptin) ==
          Attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  REQUIRE(static_cast<int>(p.sharedMemPerMultiprocessor) ==
          Attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
  REQUIRE(p.regsPerBlock == Attribute(cudaDevAttrMaxRegistersPerBlock));
  REQUIRE(p.maxThreadsPerMultiProcessor == Attribute(cudaDevAttrMaxThreadsPerMultiProcessor));
  REQUIRE(p.pciBusID == Attribute(cudaDevAttrPciBusId));
  REQUIRE(p.l2CacheSize == Attribute(cudaDevAttrL2CacheSize));
  REQUIRE(p.warpSize == 32 && Attribute(cudaDevAttrWarpSize) == 32);
  REQUIRE(p.maxThreadsPerBlock == 1024);
  REQUIRE(p.maxThreadsDim[0] == 1024 && p.maxThreadsDim[1] == 1024 && p.maxThreadsDim[2] == 64);
  REQUIRE(p.maxGridSize[0] == 0x7fffffff && p.maxGridSize[1] == 65535 && p.maxGridSize[2] == 65535);
  REQUIRE(p.sharedMemPerBlock == 48 * 1024);
  REQUIRE(p.multiProcessorCount >= 1 && p.major >= 7);
  REQUIRE(p.totalGlobalMem >= std::size_t{256} << 20);
  REQUIRE(p.unifiedAddressing == 1 && p.canMapHostMemory == 1 && p.cooperativeLaunch == 1);
  REQUIRE(Attribute(cudaDevAttrMemoryPoolsSupported) == 1);
  std::printf("properties and attributes agree\n");

  char bus[64] = "";
  int by_bus = -1;
  CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
  CHECK(cudaDeviceGetByPCIBusId(&by_bus, bus));
  REQUIRE(by_bus == 0);
  int domain = -1, bus_number = -1, device_number = -1;
  REQUIRE(std::sscanf(bus, "%x:%x:%x", &domain, &bus_number, &device_number) == 3);
  REQUIRE(domain == p.pciDomainID && bus_number == p.pciBusID && device_number == p.pciDeviceID);
  std::printf("the device is found by its bus id\n");

  // The second query returns the same values.
  cudaDeviceProp again;
  CHECK(cudaGetDeviceProperties(&again, 0));
  REQUIRE(std::memcmp(&p.uuid, &again.uuid, sizeof p.uuid) == 0);
  REQUIRE(std::strcmp(p.name, again.name) == 0 && p.totalGlobalMem == again.totalGlobalMem);
  int access = -1;
  cudaError_t error = cudaDeviceCanAccessPeer(&access, 0, 0);
  std::printf("access to itself as a peer: %s, %d\n", cudaGetErrorName(error), access);
  cudaGetLastError();
  std::size_t limit = 0;
  CHECK(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
  REQUIRE(limit >= 1024);
  CHECK(cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize));
  REQUIRE(limit >= 1 << 16);
  std::printf("limits are there\n");
  return check::Ok();
}
