// Tensor maps (compute capability 9.0): boxes of tensors of 1 to 5 dimensions are fetched, inside
// and across borders, with every swizzle and fill, and stored or added elsewhere. A kernel changes
// a map.
#include <algorithm>
#include <array>
#include <cuda/ptx>
#include <string>

#include "check_driver.h"

namespace ptx = cuda::ptx;

constexpr int kBoxBytes = 16384;

template <int kRank>
struct Place {
  int at[kRank];
};

// Fetches the box at a place, writes the shared memory to `raw`, and stores the box at a place of
// another tensor or adds it there.
template <int kRank>
__global__ void CopyBox(const __grid_constant__ CUtensorMap from,
                        const __grid_constant__ CUtensorMap to, const CUtensorMap* changed,
                        Place<kRank> place, Place<kRank> target, unsigned bytes, bool add,
                        unsigned char* raw) {
  __shared__ alignas(1024) unsigned char box[kBoxBytes];
  __shared__ std::uint64_t barrier;
  for (int i = threadIdx.x; i < kBoxBytes; i += blockDim.x) box[i] = 0xee;
  if (threadIdx.x == 0) ptx::mbarrier_init(&barrier, 1);
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    const CUtensorMap* map = &from;
    if (changed != nullptr) {
      map = changed;
      ptx::fence_proxy_tensormap_generic(ptx::sem_acquire, ptx::scope_sys, changed,
                                         ptx::n32_t<128>{});
    }
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier,
                                   bytes);
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, box, map, place.at, &barrier);
  }
  __syncthreads();
  while (!ptx::mbarrier_try_wait_parity(&barrier, 0)) {
  }
  for (int i = threadIdx.x; i < kBoxBytes; i += blockDim.x) raw[i] = box[i];
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    if (add) {
      ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &to,
                                       target.at, box);
    } else {
      ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &to, target.at, box);
    }
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
  }
}

// Makes the map of a matrix of floats out of the map of another tensor.
__global__ void ChangeMap(const __grid_constant__ CUtensorMap old, CUtensorMap* changed,
                          float* matrix, int width, int height, int columns, int rows) {
  __shared__ alignas(128) CUtensorMap map;
  if (threadIdx.x == 0) {
    map = old;
    ptx::tensormap_replace_global_address(ptx::space_shared, &map, matrix);
    ptx::tensormap_replace_rank(ptx::space_shared, &map, 2 - 1);
    ptx::tensormap_replace_box_dim(ptx::space_shared, &map, ptx::n32_t<0>{}, columns);
    ptx::tensormap_replace_box_dim(ptx::space_shared, &map, ptx::n32_t<1>{}, rows);
    ptx::tensormap_replace_global_dim(ptx::space_shared, &map, ptx::n32_t<0>{}, width);
    ptx::tensormap_replace_global_dim(ptx::space_shared, &map, ptx::n32_t<1>{}, height);
    ptx::tensormap_replace_global_stride(ptx::space_shared, &map, ptx::n32_t<0>{},
                                         width * sizeof(float));
    ptx::tensormap_replace_element_size(ptx::space_shared, &map, ptx::n32_t<0>{}, 1);
    ptx::tensormap_replace_element_size(ptx::space_shared, &map, ptx::n32_t<1>{}, 1);
    ptx::tensormap_replace_elemtype(ptx::space_shared, &map, ptx::n32_t<7>{});           // f32
    ptx::tensormap_replace_interleave_layout(ptx::space_shared, &map, ptx::n32_t<0>{});  // none
    ptx::tensormap_replace_swizzle_mode(ptx::space_shared, &map, ptx::n32_t<3>{});  // 128 bytes
    ptx::tensormap_replace_fill_mode(ptx::space_shared, &map, ptx::n32_t<1>{});     // NaN
  }
  __syncwarp();
  ptx::tensormap_cp_fenceproxy(ptx::sem_release, ptx::scope_sys, changed, &map, ptx::n32_t<128>{});
}

struct Tensor {
  CUtensorMapDataType type;
  int element_bytes;
  std::vector<cuuint64_t> dimensions;
  std::vector<cuuint32_t> box, steps;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;

  int rank() const { return static_cast<int>(dimensions.size()); }
  // Of a dimension, in bytes. Rows are padded to 16 bytes.
  std::size_t stride(int dimension) const {
    std::size_t bytes = element_bytes;
    for (int i = 0; i < dimension; ++i) bytes = (bytes * dimensions[i] + 15) / 16 * 16;
    return bytes;
  }
  std::size_t bytes() const { return stride(rank()); }
  int count(int dimension) const {
    return (box[dimension] + steps[dimension] - 1) / steps[dimension];
  }
  int box_bytes() const {
    int bytes = element_bytes * box[0];
    for (int i = 1; i < rank(); ++i) bytes *= count(i);
    return bytes;
  }
  CUtensorMap Map(void* address) const {
    std::array<cuuint64_t, 4> strides{};  // the driver takes no null pointer, even if it needs none
    for (int i = 1; i < rank(); ++i) strides[i - 1] = stride(i);
    CUtensorMap map;
    CHECK_CU(cuTensorMapEncodeTiled(&map, type, rank(), address, dimensions.data(), strides.data(),
                                    box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                    swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, fill));
    return map;
  }
  // The place of a byte of the box in shared memory. Rows lie as far apart as the swizzle reaches,
  // and it exchanges their pieces of 16 bytes.
  int Swizzled(int byte) const {
    const int span = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16 << swizzle;
    if (span == 0) return byte;
    const int row = element_bytes * static_cast<int>(box[0]);
    const int place = byte / row * span + byte % row;
    return place ^ (place / 128 % (span / 16)) * 16;
  }
};

// Copies a box and compares shared memory and the other tensor with what they should be. The box is
// stored where it came from, or at the tensor's begin if it came from before that: the hardware
// (H100, driver 580) refuses to store there (CUDA_ERROR_ILLEGAL_INSTRUCTION).
template <int kRank>
void Copy(const std::string& name, const Tensor& tensor, const Place<kRank>& place,
          bool add = false, const CUtensorMap* changed = nullptr, void* from = nullptr) {
  REQUIRE(tensor.rank() == kRank);
  std::vector<unsigned char> in(tensor.bytes()), out(tensor.bytes(), 0x11);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i % 251);
  unsigned char* const own = from == nullptr ? check::Upload(in) : nullptr;
  if (from != nullptr) CHECK(cudaMemcpy(from, in.data(), in.size(), cudaMemcpyDefault));
  unsigned char* const to = check::Upload(out);
  unsigned char* const raw = check::Zeroed<unsigned char>(kBoxBytes);
  void* const source = from == nullptr ? own : from;
  Place<kRank> target = place;
  for (int& at : target.at) at = std::max(at, 0);
  CopyBox<kRank><<<1, 128>>>(tensor.Map(source), tensor.Map(to), changed, place, target,
                             tensor.box_bytes(), add, raw);
  CHECK(cudaGetLastError());

  std::vector<unsigned char> want(kBoxBytes, 0xee);
  std::array<int, 5> index{};
  const int size = tensor.element_bytes;
  for (int at = 0; at < tensor.box_bytes(); at += size) {
    // The offset of this element of the box from the tensor's begin, or -1 if it lies outside.
    const auto offset_at = [&](const Place<kRank>& box) {
      long offset = 0;
      for (int d = 0; d < kRank; ++d) {
        const long x = box.at[d] + index[d] * (d == 0 ? 1 : static_cast<long>(tensor.steps[d]));
        if (x < 0 || x >= static_cast<long>(tensor.dimensions[d])) return -1L;
        offset += x * static_cast<long>(tensor.stride(d));
      }
      return offset;
    };
    const long source_offset = offset_at(place), target_offset = offset_at(target);
    unsigned char element[8];
    for (int byte = 0; byte < size; ++byte) {
      unsigned char& value = want[tensor.Swizzled(at + byte)];
      if (source_offset >= 0) {
        value = in[source_offset + byte];
      } else if (tensor.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) {
        value = 0;
      } else {
        value = byte % 2 == 0 ? 0xf7 : 0x7f;
      }
      element[byte] = value;
    }
    if (target_offset >= 0 && !add) std::memcpy(&out[target_offset], element, size);
    if (target_offset >= 0 && add) {
      unsigned sum, value;
      std::memcpy(&sum, &out[target_offset], sizeof sum);
      std::memcpy(&value, element, sizeof value);
      sum += value;
      std::memcpy(&out[target_offset], &sum, sizeof sum);
    }
    for (int d = 0; d < kRank; ++d) {
      if (++index[d] < (d == 0 ? static_cast<int>(tensor.box[0]) : tensor.count(d))) break;
      index[d] = 0;
    }
  }
  check::Compare((name + ", shared memory").c_str(), check::Download(raw, want.size()), want);
  check::Compare((name + ", other tensor").c_str(), check::Download(to, out.size()), out);
  if (own != nullptr) CHECK(cudaFree(own));
  CHECK(cudaFree(to));
  CHECK(cudaFree(raw));
}

int main() {
  check::UsePrimaryContext();
  Tensor tensor{CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, {}, {}, {}};
  const auto add_dimension = [&](int size, int box) {
    tensor.dimensions.push_back(size);
    tensor.box.push_back(box);
    tensor.steps.push_back(1);
  };
  // A hardware copy across the end of a row writes whole pieces of 16 bytes.
  add_dimension(104, 24);
  Copy<1>("1 dimension", tensor, {{16}});
  Copy<1>("1 dimension, across the end", tensor, {{88}});
  add_dimension(21, 6);
  Copy<2>("2 dimensions", tensor, {{40, 7}});
  Copy<2>("2 dimensions, before the begin", tensor, {{-8, -3}});
  Copy<2>("2 dimensions, outside", tensor, {{8, 3000}});
  add_dimension(9, 4);
  Copy<3>("3 dimensions", tensor, {{40, 17, 6}});
  add_dimension(6, 3);
  Copy<4>("4 dimensions", tensor, {{80, 17, -1, 4}});
  add_dimension(4, 2);
  Copy<5>("5 dimensions", tensor, {{80, 17, 2, 4, 3}});

  Tensor matrix{CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, {72, 50}, {8, 20}, {1, 1}};
  for (int swizzle = CU_TENSOR_MAP_SWIZZLE_32B; swizzle <= CU_TENSOR_MAP_SWIZZLE_128B; ++swizzle) {
    matrix.swizzle = static_cast<CUtensorMapSwizzle>(swizzle);
    const std::string name = "swizzle of " + std::to_string(16 << swizzle) + " bytes";
    matrix.box[0] = 4 << swizzle;
    Copy<2>(name, matrix, {{8, 3}});
    matrix.box[0] = 2 << swizzle;
    Copy<2>(name + ", short rows", matrix, {{64, 40}});
  }
  matrix.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  matrix.steps[1] = 3;
  Copy<2>("every third row", matrix, {{4, 5}});
  matrix.steps[1] = 1;
  matrix.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
  Copy<2>("NaN outside", matrix, {{-4, 40}});

  Tensor integers{CU_TENSOR_MAP_DATA_TYPE_UINT32, 4, {40, 30}, {16, 8}, {1, 1}};
  Copy<2>("added", integers, {{12, 4}}, true);
  Copy<2>("added across the border", integers, {{32, 26}}, true);

  matrix.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  matrix.box = {32, 12};
  float* const a = check::Zeroed<float>(matrix.bytes() / sizeof(float));
  CUtensorMap* changed;
  CHECK(cudaMalloc(&changed, sizeof *changed));
  ChangeMap<<<1, 32>>>(tensor.Map(a), changed, a, 72, 50, 32, 12);
  CHECK(cudaGetLastError());
  Copy<2>("a changed map", matrix, {{48, 45}}, false, changed, a);
  CHECK(cudaFree(a));
  CHECK(cudaFree(changed));
  return check::Ok();
}
