// Copies of boxes of tensors, compared element by element with the definition. tensor_copies of the
// test programs compares the definition with real GPUs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "server/backends/soft/ptx/tensor_map.h"
#include "tests/server/backends/soft/ptx/ptx_harness.h"
#include "tests/test_file.h"

namespace detshare::soft::ptx::testing {
namespace {

struct TensorPlace {
  int rank = 2;
  int at[5] = {};
};

TensorMapBytes Map(const void* tensor, TensorType type, std::vector<uint32_t> dimensions,
                   std::vector<uint16_t> box, TensorSwizzle swizzle = TensorSwizzle::kNone) {
  TensorMapBytes map;
  map.address = reinterpret_cast<uint64_t>(tensor);
  map.rank = static_cast<uint8_t>(dimensions.size());
  map.type = static_cast<uint8_t>(type);
  map.swizzle = static_cast<uint8_t>(swizzle);
  uint64_t stride = SizeOf(ElementType(type));
  for (size_t i = 0; i < dimensions.size(); ++i) {
    map.last[i] = dimensions[i] - 1;
    map.box[i] = box[i];
    map.element_strides[i] = 1;
    stride = (stride * dimensions[i] + 15) / 16 * 16;
    if (i + 1 < dimensions.size()) map.strides[i] = stride;
  }
  return map;
}

struct TensorFixture {
  static constexpr uint32_t kWords = 4096;

  Memory memory;
  Program program{&memory, ReadTestFile("tests/server/backends/soft/ptx/bulk_kernels.ptx")};
  uint32_t* loaded = memory.New<uint32_t>(kWords + 1);

  Fault Load(const TensorMapBytes& map, const TensorPlace& place, uint32_t bytes) {
    return RunBox("tensor_load", AddMap(map).Add(place).Add(bytes).Add(loaded).Add(kWords));
  }
  Fault Store(const TensorMapBytes& map, const TensorPlace& place, const uint32_t* box) {
    return RunBox("tensor_store", AddMap(map).Add(place).Add(box).Add(kWords));
  }
  bool arrived() const { return loaded[kWords] == 1; }

  static Params AddMap(const TensorMapBytes& map) {
    struct alignas(128) Aligned {
      TensorMapBytes map;
    };
    return Params().Add(Aligned{map});
  }
  Fault RunBox(std::string_view kernel, const Params& params) {
    LaunchConfig config = Config(1, 32, params);
    config.dynamic_shared_bytes = kWords * 4;
    return program.Run(kernel, std::move(config)).fault;
  }
};

// The elements of a box by the definition: calls f(element of the box, index in the tensor or -1
// outside of it, in bytes) in the order of shared memory.
template <class F>
void ForBox(const TensorMapBytes& map, const TensorPlace& place, F f) {
  const int64_t size = SizeOf(ElementType(static_cast<TensorType>(map.type)));
  std::array<int64_t, 5> counts{1, 1, 1, 1, 1};
  for (size_t d = 0; d < map.rank; ++d) {
    const int64_t stride = d == 0 ? 1 : map.element_strides[d];
    counts[d] = (map.box[d] + stride - 1) / stride;
  }
  uint32_t element = 0;
  for (int64_t e = 0; e < counts[4]; ++e) {
    for (int64_t d = 0; d < counts[3]; ++d) {
      for (int64_t c = 0; c < counts[2]; ++c) {
        for (int64_t b = 0; b < counts[1]; ++b) {
          for (int64_t a = 0; a < counts[0]; ++a) {
            const std::array<int64_t, 5> index{a, b, c, d, e};
            int64_t at = 0;
            for (size_t i = 0; i < map.rank && at >= 0; ++i) {
              const int64_t step = i == 0 ? 1 : map.element_strides[i];
              const int64_t x = place.at[i] + index[i] * step;
              const bool inside = x >= 0 && x <= map.last[i];
              at =
                  inside ? at + x * (i == 0 ? size : static_cast<int64_t>(map.strides[i - 1])) : -1;
            }
            f(element++, at);
          }
        }
      }
    }
  }
}

template <class T>
void CheckLoad(TensorFixture& fixture, const TensorMapBytes& map, const TensorPlace& place,
               T outside = 0) {
  const TensorBox box(map);
  REQUIRE(fixture.Load(map, place, static_cast<uint32_t>(box.payload_bytes())).ToString() ==
          Fault{}.ToString());
  CHECK(fixture.arrived());
  const uint8_t* const tensor = reinterpret_cast<const uint8_t*>(map.address);
  const uint8_t* const shared = reinterpret_cast<const uint8_t*>(fixture.loaded);
  ForBox(map, place, [&](uint32_t element, int64_t at) {
    const uint64_t row = element / map.box[0], column = element % map.box[0] * sizeof(T);
    const uint64_t place_of_piece =
        Swizzled(row * box.pitch + column / 16 * 16, static_cast<TensorSwizzle>(map.swizzle));
    T got, want = outside;
    std::memcpy(&got, shared + place_of_piece + column % 16, sizeof(T));
    if (at >= 0) std::memcpy(&want, tensor + at, sizeof(T));
    INFO("element " << element);
    REQUIRE(got == want);
  });
}

TEST_CASE_METHOD(TensorFixture, "Boxes of tensors of every rank are fetched") {
  std::vector<uint32_t> dimensions, strides;
  std::vector<uint16_t> box;
  const uint32_t kDimensions[] = {40, 10, 5, 4, 3};
  const uint16_t kBox[] = {8, 6, 3, 3, 2};
  uint32_t* tensor = memory.New<uint32_t>(40 * 10 * 5 * 4 * 3);
  std::iota(tensor, tensor + 40 * 10 * 5 * 4 * 3, 1);
  for (int rank = 1; rank <= 5; ++rank) {
    dimensions.push_back(kDimensions[rank - 1]);
    box.push_back(kBox[rank - 1]);
    const TensorMapBytes map = Map(tensor, TensorType::kU32, dimensions, box);
    INFO("rank " << rank);
    CheckLoad<uint32_t>(*this, map, {rank, {4, 1, 1, 1, 1}});
    CheckLoad<uint32_t>(*this, map, {rank, {36, 7, 3, 2, 2}});      // across the upper borders
    CheckLoad<uint32_t>(*this, map, {rank, {-4, -2, -1, -1, -1}});  // across the lower borders
    CheckLoad<uint32_t>(*this, map, {rank, {400, 0, 0, 0, 0}});     // outside
  }
}

TEST_CASE_METHOD(TensorFixture, "Swizzles exchange the 16-byte pieces of rows") {
  uint16_t* tensor = memory.New<uint16_t>(128 * 64);
  std::iota(tensor, tensor + 128 * 64, uint16_t{0});
  for (const auto& [swizzle, span] :
       {std::pair{TensorSwizzle::k32, 32}, {TensorSwizzle::k64, 64}, {TensorSwizzle::k128, 128}}) {
    for (int row : {span, span / 2}) {  // shorter rows lie as far apart as full ones
      const auto columns = static_cast<uint16_t>(row / 2);
      const TensorMapBytes map = Map(tensor, TensorType::kU16, {128, 64}, {columns, 20}, swizzle);
      CHECK(TensorBox(map).pitch == static_cast<uint32_t>(span));
      CheckLoad<uint16_t>(*this, map, {2, {8, 3}});
      CheckLoad<uint16_t>(*this, map, {2, {120, 50}});
    }
  }
}

TEST_CASE_METHOD(TensorFixture, "Strides of elements skip rows") {
  uint32_t* tensor = memory.New<uint32_t>(16 * 40);
  std::iota(tensor, tensor + 16 * 40, 0);
  TensorMapBytes map = Map(tensor, TensorType::kS32, {16, 40}, {4, 8});
  map.element_strides[0] = 2;  // has no effect
  map.element_strides[1] = 3;
  CheckLoad<uint32_t>(*this, map, {2, {4, 1}});
  CheckLoad<uint32_t>(*this, map, {2, {4, 36}});
}

TEST_CASE_METHOD(TensorFixture, "Elements outside of a tensor are NaN where the map says so") {
  float* tensor = memory.New<float>(16 * 8);
  std::fill_n(tensor, 16 * 8, 1.5f);
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    TensorMapBytes map = Map(tensor, type, {16, 4}, {16, 8});
    map.fill = 1;
    if (type == TensorType::kF32) {
      CheckLoad<uint32_t>(*this, map, {2, {4, 1}}, 0x7ff77ff7);
    } else {
      CheckLoad<uint16_t>(*this, map, {2, {8, 1}}, 0x7ff7);
    }
  }
}

TEST_CASE_METHOD(TensorFixture, "Loads as tf32 round to the nearest, ties to even") {
  uint32_t* tensor = memory.New<uint32_t>(8);
  const uint32_t kIn[] = {1,          0x80000001, 0x3f801fff, 0x3f801000,
                          0x3f801001, 0x3f803000, 0x7f800001, 0x7fc12345};
  // What an H100 loads.
  const uint32_t kWant[] = {0,          0x80000000, 0x3f802000, 0x3f800000,
                            0x3f802000, 0x3f804000, 0x7fffe000, 0x7fffe000};
  std::copy_n(kIn, 8, tensor);
  for (const TensorType type : {TensorType::kTF32, TensorType::kTF32Ftz}) {
    REQUIRE(Load(Map(tensor, type, {8}, {8}), {1, {0}}, 32).kind == FaultKind::kNone);
    for (int i = 0; i < 8; ++i) CHECK(loaded[i] == kWant[i]);
  }
}

TEST_CASE_METHOD(TensorFixture, "Stores of boxes change nothing outside of the tensor") {
  constexpr uint32_t kWidth = 20, kHeight = 12;
  uint32_t* box = memory.New<uint32_t>(kWords);
  std::iota(box, box + kWords, 1000);
  uint32_t* tensor = memory.New<uint32_t>(kWidth * kHeight);
  for (const TensorSwizzle swizzle : {TensorSwizzle::kNone, TensorSwizzle::k64}) {
    const TensorMapBytes map = Map(tensor, TensorType::kU32, {kWidth, kHeight}, {16, 8}, swizzle);
    for (const TensorPlace& place : {TensorPlace{2, {4, 2}}, {2, {8, 10}}, {2, {8, 3000}}}) {
      std::fill_n(tensor, kWidth * kHeight, 7u);
      std::vector<uint32_t> want(kWidth * kHeight, 7);
      ForBox(map, place, [&](uint32_t element, int64_t at) {
        const uint64_t byte = Swizzled(element / 4 * 16, swizzle) + element % 4 * 4;
        if (at >= 0) want[static_cast<size_t>(at) / 4] = box[byte / 4];
      });
      REQUIRE(Store(map, place, box).kind == FaultKind::kNone);
      for (uint32_t i = 0; i < want.size(); ++i) REQUIRE(tensor[i] == want[i]);
    }
  }
}

TEST_CASE_METHOD(TensorFixture, "Reductions of boxes follow the type of the map") {
  const auto add = [&](const TensorMapBytes& map, const void* box) {
    return RunBox("tensor_add", AddMap(map).Add(0).Add(0).Add(box).Add(kWords)).kind;
  };
  float* box = memory.New<float>(kWords);
  std::iota(box, box + kWords, 0.5f);
  float* tensor = memory.New<float>(64);
  std::fill_n(tensor, 64, 100.0f);
  REQUIRE(add(Map(tensor, TensorType::kF32, {8, 8}, {4, 2}), box) == FaultKind::kNone);
  for (int i = 0; i < 64; ++i) {
    const int row = i / 8, column = i % 8;
    const bool inside = row < 2 && column < 4;
    CHECK(tensor[i] == (inside ? 100.5f + static_cast<float>(row * 4 + column) : 100.0f));
  }
  CHECK(add(Map(tensor, TensorType::kU8, {32, 8}, {16, 2}), box) == FaultKind::kIllegalInstruction);
}

TEST_CASE_METHOD(TensorFixture, "Copies of boxes fault where maps are wrong or memory is missing") {
  uint32_t* tensor = memory.New<uint32_t>(16 * 16);
  const TensorMapBytes good = Map(tensor, TensorType::kU32, {16, 16}, {4, 4});
  CHECK(Load(good, {2, {0, 0}}, 64).kind == FaultKind::kNone);
  CHECK(Load(good, {3, {0, 0, 0}}, 64).kind == FaultKind::kIllegalInstruction);
  CHECK(Load(good, {2, {-3, 0}}, 64).kind == FaultKind::kIllegalInstruction);
  TensorMapBytes map = good;
  map.magic = 0;
  CHECK(Load(map, {2, {0, 0}}, 64).kind == FaultKind::kIllegalInstruction);
  map = good;
  map.box[1] = 257;
  CHECK(Load(map, {2, {0, 0}}, 64).kind == FaultKind::kIllegalInstruction);
  map = good;
  map.last[1] = 16;  // one row more than the memory has
  CHECK(Load(map, {2, {0, 12}}, 64).kind == FaultKind::kNone);
  CHECK(Load(map, {2, {0, 13}}, 64).kind == FaultKind::kIllegalAddress);
  CHECK(Store(map, {2, {0, 13}}, tensor).kind == FaultKind::kIllegalAddress);
  // A load may begin before the tensor, and a store may not.
  const uint32_t* const box = memory.New<uint32_t>(kWords);
  for (const TensorPlace& place : {TensorPlace{2, {-4, 0}}, {2, {0, -1}}}) {
    CHECK(Load(good, place, 64).kind == FaultKind::kNone);
    CHECK(Store(good, place, box).kind == FaultKind::kIllegalInstruction);
  }
  // The box does not fit into shared memory.
  map = Map(tensor, TensorType::kU32, {16, 16, 16}, {16, 256, 256});
  CHECK(Load(map, {3, {0, 0, 0}}, 64).kind == FaultKind::kIllegalAddress);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
