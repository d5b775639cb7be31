// Tensor maps. With them kernels let the tensor memory accelerator fetch boxes of a matrix, inside
// and across the border, and store them elsewhere. Maps are made again for the same tensor and for
// others, and moved.
#include "../check_driver.h"

constexpr int kColumns = 64, kRows = 32;  // of a box

__device__ unsigned Shared(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Fetches the box at (x, y) and stores it at the same place of another tensor.
__global__ void CopyBox(const __grid_constant__ CUtensorMap from,
                        const __grid_constant__ CUtensorMap to, int x, int y, float* raw) {
  __shared__ alignas(1024) float box[kRows * kColumns];
  __shared__ alignas(8) unsigned long long barrier;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(Shared(&barrier)));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(Shared(&barrier)),
                 "r"(static_cast<unsigned>(sizeof box)));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(Shared(box)),
        "l"(&from), "r"(x), "r"(y), "r"(Shared(&barrier))
        : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(Shared(&barrier))
        : "memory");
  }
  for (int i = threadIdx.x; i < kRows * kColumns; i += blockDim.x) raw[i] = box[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to),
        "r"(x), "r"(y), "r"(Shared(box))
        : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

CUtensorMap Map(CUdeviceptr tensor, int width, int height, int box_columns,
                CUtensorMapSwizzle swizzle) {
  CUtensorMap map;
  const cuuint64_t dimensions[] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(height)};
  const cuuint64_t strides[] = {width * sizeof(float)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_columns), kRows};
  const cuuint32_t steps[] = {1, 1};
  CHECK_CU(cuTensorMapEncodeTiled(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, reinterpret_cast<void*>(tensor), dimensions,
      strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

int main() {
  check::UsePrimaryContext();
  constexpr int kWidth = 200, kHeight = 100;
  std::vector<float> host(kWidth * kHeight);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i);
  float* const a = check::Upload(host);
  float* const b = check::Zeroed<float>(host.size());
  float* const raw = check::Zeroed<float>(kRows * kColumns);
  const auto address = [](float* p) { return reinterpret_cast<CUdeviceptr>(p); };

  const CUtensorMap from = Map(address(a), kWidth, kHeight, kColumns, CU_TENSOR_MAP_SWIZZLE_NONE);
  const CUtensorMap again = Map(address(a), kWidth, kHeight, kColumns, CU_TENSOR_MAP_SWIZZLE_NONE);
  REQUIRE(std::memcmp(&from, &again, sizeof from) == 0);
  const CUtensorMap to = Map(address(b), kWidth, kHeight, kColumns, CU_TENSOR_MAP_SWIZZLE_NONE);
  REQUIRE(std::memcmp(&from, &to, sizeof from) != 0);
  CUtensorMap moved = from;
  CHECK_CU(cuTensorMapReplaceAddress(&moved, b));
  REQUIRE(std::memcmp(&moved, &to, sizeof to) == 0);

  std::vector<float> want(host.size(), 0.0f), want_raw(kRows * kColumns);
  const struct {
    const char* name;
    int x, y;
  } kBoxes[] = {{"inside", 24, 40}, {"across the border", 160, 80}};
  for (const auto& place : kBoxes) {
    CopyBox<<<1, 128>>>(from, to, place.x, place.y, raw);
    CHECK(cudaGetLastError());
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kColumns; ++c) {
        const int x = place.x + c, y = place.y + r;
        const bool inside = x < kWidth && y < kHeight;
        want_raw[r * kColumns + c] = inside ? host[y * kWidth + x] : 0.0f;
        if (inside) want[y * kWidth + x] = host[y * kWidth + x];
      }
    }
    check::Compare(place.name, check::Download(raw, want_raw.size()), want_raw);
  }
  check::Compare("stored", check::Download(b, want.size()), want);

  // A box of 128-byte rows, swizzled: the row determines the order of its 16-byte pieces.
  CUtensorMap map;
  const cuuint64_t dimensions[] = {kWidth, kHeight};
  const cuuint64_t strides[] = {kWidth * sizeof(float)};
  const cuuint32_t box[] = {32, kRows};
  const cuuint32_t steps[] = {1, 1};
  CHECK_CU(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, a, dimensions, strides,
                                  box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  REQUIRE(std::memcmp(&map, &from, sizeof map) != 0);

  // Maps that no device can describe.
  EXPECT_ERROR_CU(cuTensorMapEncodeTiled(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, reinterpret_cast<char*>(a) + 4, dimensions, strides,
      box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  EXPECT_ERROR_CU(
      cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 6, a, dimensions, strides, box,
                             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));

  // Pixels of images: 16 channels, 8 x 6 pixels, 2 images.
  const cuuint64_t image[] = {16, 8, 6, 2};
  const cuuint64_t image_strides[] = {64, 512, 3072};
  const int lower[] = {-1, -1}, upper[] = {-1, -1};
  const cuuint32_t image_steps[] = {1, 1, 1, 1};
  CHECK_CU(cuTensorMapEncodeIm2col(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, a, image, image_strides, lower, upper, 16, 32,
      image_steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  CHECK(cudaFree(a));
  CHECK(cudaFree(b));
  CHECK(cudaFree(raw));
  return check::Ok();
}
