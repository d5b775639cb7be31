// Virtual memory management: physical memory that is mapped at reserved addresses, at two places at
// once, that grows in place as in allocators with expandable segments, and whose access changes.
#include "check_driver.h"

__global__ void Fill(unsigned* out, std::size_t count, unsigned factor) {
  std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = static_cast<unsigned>(i) * factor + 1;
}

__global__ void Sum(const unsigned* in, std::size_t count, unsigned long long* sum) {
  std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) atomicAdd(sum, static_cast<unsigned long long>(in[i]));
}

unsigned long long SumOf(CUdeviceptr memory, std::size_t count) {
  unsigned long long* sum = check::Zeroed<unsigned long long>(1);
  Sum<<<(count + 255) / 256, 256>>>(reinterpret_cast<unsigned*>(memory), count, sum);
  CHECK(cudaGetLastError());
  const unsigned long long value = check::Download(sum, 1)[0];
  CHECK(cudaFree(sum));
  return value;
}

void Refused(const char* what, CUresult result) {
  std::printf("%s: %s\n", what, result == CUDA_SUCCESS ? "accepted" : "refused");
}

unsigned long long AccessAt(CUdeviceptr address) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  unsigned long long flags = 99;
  CHECK_CU(cuMemGetAccess(&flags, &location, address));
  return flags;
}

// Where the driver is lenient or strict in a way that its documentation does not tell (seen with
// driver 580 on an H100).
void Unusual(CUmemAllocationProp properties, std::size_t unit) {
  CUdeviceptr range = 0, base = 0;
  std::size_t bytes = 0;
  EXPECT_CU(cuMemAddressReserve(&range, unit + unit / 2, 32 * unit, 0, 0),
            CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemAddressReserve(&range, 4 * unit, 0, 0, 0));

  // Nothing is mapped yet.
  unsigned long long flags = 99;
  EXPECT_CU(cuMemGetAccess(&flags, &properties.location, range), CUDA_ERROR_INVALID_VALUE);
  REQUIRE(flags == 0);
  CHECK_CU(cuMemUnmap(range, unit));
  CHECK_CU(cuMemUnmap(range + 4096, 2 * unit));
  CUmemLocation unknown = {static_cast<CUmemLocationType>(5), 0};
  flags = 99;
  EXPECT_CU(cuMemGetAccess(&flags, &unknown, range), CUDA_ERROR_INVALID_DEVICE);
  REQUIRE(flags == 99);

  // What the driver does not know of a usage is dropped.
  CUmemGenericAllocationHandle memory = 0;
  properties.allocFlags.usage = 2;
  properties.allocFlags.gpuDirectRDMACapable = 2;
  CHECK_CU(cuMemCreate(&memory, 2 * unit, &properties, 0));
  CUmemAllocationProp kept = {};
  CHECK_CU(cuMemGetAllocationPropertiesFromHandle(&kept, memory));
  REQUIRE(kept.allocFlags.usage == 0 && kept.allocFlags.gpuDirectRDMACapable == 1);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32_KMT;
  CUmemGenericAllocationHandle none = 0;
  EXPECT_CU(cuMemCreate(&none, unit, &properties, 0), CUDA_ERROR_INVALID_VALUE);

  EXPECT_CU(cuMemMap(range + unit, unit, 0, memory, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_CU(cuMemMap(range + unit, 2 * unit, 1, memory, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_CU(cuMemMap(range + 4096, 2 * unit, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemMap(range + unit, 2 * unit, 0, memory, 0));

  // Memory without access has no address range. Its attributes name the reserved range.
  EXPECT_CU(cuMemGetAddressRange(&base, &bytes, range + unit), CUDA_ERROR_NOT_FOUND);
  CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READ};
  access.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  EXPECT_CU(cuMemSetAccess(range + unit, 2 * unit, &access, 1), CUDA_ERROR_NOT_SUPPORTED);
  access.location = properties.location;
  CHECK_CU(cuMemSetAccess(range + unit, 2 * unit, &access, 1));
  CHECK_CU(cuMemGetAddressRange(&base, &bytes, range + unit + 64));
  REQUIRE(base == range + unit && bytes == 2 * unit);
  CHECK_CU(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, range + unit + 64));
  CHECK_CU(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, range + unit + 64));
  REQUIRE(base == range && bytes == 4 * unit);
  CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
  CHECK_CU(cuMemGetAccess(&flags, &host, range + unit));
  REQUIRE(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_CU(cuMemUnmap(range + unit, unit), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemUnmap(range + unit, 2 * unit));
  CHECK_CU(cuMemRelease(memory));
  CHECK_CU(cuMemAddressFree(range, 4 * unit));
  EXPECT_CU(cuMemUnmap(range, unit), CUDA_ERROR_INVALID_VALUE);
}

int main() {
  check::UsePrimaryContext();
  int supported = 0;
  CHECK_CU(
      cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  REQUIRE(supported == 1);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  std::size_t unit = 0;
  CHECK_CU(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  REQUIRE(unit != 0 && (unit & (unit - 1)) == 0);
  const std::size_t per_unit = unit / sizeof(unsigned);
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

  // For kernels, copies and memsets two adjacent pieces are one range.
  CUdeviceptr range = 0;
  CHECK_CU(cuMemAddressReserve(&range, 8 * unit, 0, 0, 0));
  CUmemGenericAllocationHandle first = 0, second = 0;
  CHECK_CU(cuMemCreate(&first, unit, &properties, 0));
  CHECK_CU(cuMemCreate(&second, 2 * unit, &properties, 0));
  CHECK_CU(cuMemMap(range, unit, 0, first, 0));
  CHECK_CU(cuMemMap(range + unit, 2 * unit, 0, second, 0));
  std::printf("access before: %llu\n", AccessAt(range));
  CHECK_CU(cuMemSetAccess(range, 3 * unit, &access, 1));
  std::printf("access: %llu %llu\n", AccessAt(range), AccessAt(range + 3 * unit - 1));
  std::size_t count = 3 * per_unit;
  Fill<<<(count + 255) / 256, 256>>>(reinterpret_cast<unsigned*>(range), count, 3);
  CHECK(cudaGetLastError());
  std::vector<unsigned> got(count), want(count);
  for (std::size_t i = 0; i < count; ++i) want[i] = static_cast<unsigned>(i) * 3 + 1;
  CHECK(cudaMemcpy(got.data(), reinterpret_cast<void*>(range), count * sizeof(unsigned),
                   cudaMemcpyDeviceToHost));
  REQUIRE(got == want);
  std::printf("one range: %llu\n", SumOf(range, count));

  // The first piece at a second address.
  CUdeviceptr alias = 0;
  CHECK_CU(cuMemAddressReserve(&alias, 2 * unit, 0, 0, 0));
  CHECK_CU(cuMemMap(alias, unit, 0, first, 0));
  CHECK_CU(cuMemSetAccess(alias, unit, &access, 1));
  std::printf("alias: %llu\n", SumOf(alias, per_unit));
  Fill<<<(per_unit + 255) / 256, 256>>>(reinterpret_cast<unsigned*>(alias), per_unit, 5);
  CHECK(cudaDeviceSynchronize());
  for (std::size_t i = 0; i < per_unit; ++i) want[i] = static_cast<unsigned>(i) * 5 + 1;
  std::printf("written through the alias: %llu\n", SumOf(range, per_unit));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  CHECK_CU(cuMemSetAccess(alias, unit, &access, 1));
  std::printf("access of the alias: %llu\n", AccessAt(alias));
  std::printf("read-only alias: %llu\n", SumOf(alias, per_unit));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

  // Growing in place keeps the contents.
  CUmemGenericAllocationHandle third = 0;
  CHECK_CU(cuMemCreate(&third, unit, &properties, 0));
  CHECK_CU(cuMemMap(range + 3 * unit, unit, 0, third, 0));
  CHECK_CU(cuMemSetAccess(range + 3 * unit, unit, &access, 1));
  CHECK_CU(cuMemsetD32(range + 3 * unit - 4, 7, 1 + per_unit));
  count += per_unit;
  want.resize(count, 7);
  want[3 * per_unit - 1] = 7;
  got.resize(count);
  CHECK_CU(cuMemcpyDtoH(got.data(), range, count * sizeof(unsigned)));
  REQUIRE(got == want);
  std::printf("grown: %llu\n", SumOf(range, count));

  // Handles count their references. A mapping keeps memory that has no reference.
  CUmemGenericAllocationHandle again = 0;
  CHECK_CU(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range + unit / 2)));
  REQUIRE(again == first);
  CUmemAllocationProp found{};
  CHECK_CU(cuMemGetAllocationPropertiesFromHandle(&found, again));
  REQUIRE(found.type == properties.type && found.location.type == properties.location.type &&
          found.location.id == 0);
  CHECK_CU(cuMemRelease(again));
  CHECK_CU(cuMemRelease(second));
  CHECK_CU(cuMemRelease(third));

  Refused("an offset", cuMemMap(range + 4 * unit, unit, unit, first, 0));
  Refused("more than there is", cuMemMap(range + 4 * unit, 2 * unit, 0, first, 0));
  Refused("what is mapped", cuMemMap(range, unit, 0, first, 0));
  Refused("a part", cuMemUnmap(range + unit, unit));
  Refused("an odd size", cuMemCreate(&again, unit - 1, &properties, 0));
  Refused("ordinary freeing", cuMemFree(range));

  // Unmaps everything at once. The first piece keeps its contents, because its handle exists.
  CHECK_CU(cuMemUnmap(range, 4 * unit));
  Refused("access to nothing", cuMemSetAccess(range, unit, &access, 1));
  CHECK_CU(cuMemUnmap(alias, unit));
  CHECK_CU(cuMemMap(range + 6 * unit, unit, 0, first, 0));
  CHECK_CU(cuMemSetAccess(range + 6 * unit, unit, &access, 1));
  std::printf("moved: %llu\n", SumOf(range + 6 * unit, per_unit));
  CHECK_CU(cuMemUnmap(range + 6 * unit, unit));
  CHECK_CU(cuMemRelease(first));
  CHECK_CU(cuMemAddressFree(alias, 2 * unit));
  CHECK_CU(cuMemAddressFree(range, 8 * unit));

  // A wanted address is used if it is free.
  CUdeviceptr hinted = 0;
  CHECK_CU(cuMemAddressReserve(&hinted, unit, 0, range, 0));
  REQUIRE(hinted == range);
  CHECK_CU(cuMemAddressFree(hinted, unit));
  CHECK_CU(cuMemAddressReserve(&hinted, unit, 64 * unit, 0, 0));
  REQUIRE(hinted % (64 * unit) == 0);
  CHECK_CU(cuMemAddressFree(hinted, unit));
  Unusual(properties, unit);
  return check::Ok();
}
