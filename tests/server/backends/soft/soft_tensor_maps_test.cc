// Which tensor maps the software GPU can describe.
#include "server/backends/soft/soft_tensor_maps.h"

#include <cuda.h>

#include <catch2/catch.hpp>

#include "coroutine_runtime/status_cuda.h"

namespace detshare::soft {
namespace {

TensorMapRequest Matrix() {
  TensorMapRequest request;
  request.data_type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  request.rank = 2;
  request.address = 0x7000000000;
  request.dimensions = {64, 32};
  request.strides = {256};
  request.box = {16, 8};
  request.element_strides = {1, 1};
  return request;
}

int ErrorOf(const TensorMapRequest& request) {
  return CudaResultOf(SoftTensorMaps().Encode(request).status());
}

template <class F>
int ErrorAfter(F change) {
  TensorMapRequest request = Matrix();
  change(request);
  return ErrorOf(request);
}

TEST_CASE("A tensor map follows from its request") {
  SoftTensorMaps maps;
  const auto first = maps.Encode(Matrix());
  REQUIRE(first.ok());
  CHECK(*maps.Encode(Matrix()) == *first);
  TensorMapRequest moved = Matrix();
  moved.address += 4096;
  CHECK(*maps.ReplaceAddress(*first, moved.address) == *maps.Encode(moved));
  CHECK(*maps.Encode(moved) != *first);
}

TEST_CASE("Tensor maps of the largest values are accepted") {
  CHECK(ErrorAfter([](auto& r) { r.dimensions[1] = uint64_t{1} << 32; }) == 0);
  CHECK(ErrorAfter([](auto& r) { r.strides[0] = (uint64_t{1} << 40) - 16; }) == 0);
  CHECK(ErrorAfter([](auto& r) { r.box = {256, 256}; }) == 0);
  CHECK(ErrorAfter([](auto& r) { r.element_strides = {8, 8}; }) == 0);
  CHECK(ErrorAfter([](auto& r) { r.out_of_bounds_fill = 1; }) == 0);
}

TEST_CASE("Tensor maps that no device can describe are refused") {
  const int invalid = kCudaErrorInvalidValue;
  CHECK(ErrorAfter([](auto& r) { r.rank = 0; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.rank = 6; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.data_type = 13; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.address += 8; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.dimensions[0] = 0; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.dimensions[1] = (uint64_t{1} << 32) + 1; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.strides[0] = 24; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.strides[0] = uint64_t{1} << 40; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.box[0] = 0; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.box[0] = 3; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.box[1] = 257; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.box[1] = 65537; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.element_strides[1] = 0; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.element_strides[1] = 9; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.swizzle = 9; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.l2_promotion = 9; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.interleave = 9; }) == invalid);
  CHECK(ErrorAfter([](auto& r) { r.out_of_bounds_fill = 2; }) == invalid);
  CHECK(ErrorAfter([](auto& r) {
          r.out_of_bounds_fill = 1;
          r.data_type = CU_TENSOR_MAP_DATA_TYPE_INT32;
        }) == invalid);
  CHECK(ErrorAfter([](auto& r) {
          r.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
          r.box[0] = 12;
        }) == invalid);
  CHECK(CudaResultOf(SoftTensorMaps().ReplaceAddress(TensorMap{}, 0x1000).status()) == invalid);
}

TEST_CASE("Tensor maps that only real GPUs have are not supported") {
  CHECK(ErrorAfter([](auto& r) { r.kind = TensorMapRequest::Kind::kIm2col; }) ==
        kCudaErrorNotSupported);
  CHECK(ErrorAfter([](auto& r) { r.interleave = CU_TENSOR_MAP_INTERLEAVE_16B; }) ==
        kCudaErrorNotSupported);
}

}  // namespace
}  // namespace detshare::soft
