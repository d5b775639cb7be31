// Bulk asynchronous copies, asynchronous stores and stores of matrices, compared with references on
// the host.
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>

#include "server/backends/soft/ptx/half.h"
#include "tests/server/backends/soft/ptx/ptx_harness.h"
#include "tests/test_file.h"

namespace detshare::soft::ptx::testing {
namespace {

const std::string& BulkKernels() {
  static const std::string* const kText =
      new std::string(ReadTestFile("tests/server/backends/soft/ptx/bulk_kernels.ptx"));
  return *kText;
}

struct BulkFixture {
  Memory memory;
  Program program{&memory, BulkKernels()};

  Result MustRun(std::string_view kernel, LaunchConfig config) {
    Result result = program.Run(kernel, std::move(config));
    REQUIRE(result.fault.ToString() == Fault{}.ToString());
    return result;
  }
  FaultKind FaultOf(std::string_view kernel, LaunchConfig config) {
    return program.Run(kernel, std::move(config)).fault.kind;
  }
};

LaunchConfig Clusters(uint32_t blocks, uint32_t cluster, uint32_t threads, const Params& params) {
  LaunchConfig config = Config(blocks, threads, params);
  config.cluster = {cluster, 1, 1};
  return config;
}

TEST_CASE_METHOD(BulkFixture, "Bulk copies move bytes to shared memory and back") {
  constexpr uint32_t kBytes = 4096 + 16;
  int* in = memory.New<int>(kBytes / 4);
  int* out = memory.New<int>(kBytes / 4);
  std::iota(in, in + kBytes / 4, -100);
  LaunchConfig config = Config(1, 64, Params().Add(in).Add(out).Add(kBytes));
  config.dynamic_shared_bytes = kBytes;
  const Result result = MustRun("bulk_round_trip", config);
  for (uint32_t i = 0; i < kBytes / 4; ++i) REQUIRE(out[i] == 2 * in[i]);
  CHECK(result.counters.global_bytes_read == kBytes);
  CHECK(result.counters.global_bytes_written == kBytes);
}

TEST_CASE_METHOD(BulkFixture, "Bulk copies fault where they may not access") {
  char* from = memory.New<char>(512);
  const auto fault = [&](const char* address, uint32_t offset, uint32_t bytes) {
    return FaultOf("bulk_load", Config(1, 1, Params().Add(address).Add(offset).Add(bytes)));
  };
  CHECK(fault(from, 0, 512) == FaultKind::kNone);
  CHECK(fault(from, 0, 0) == FaultKind::kNone);
  CHECK(fault(from + 16, 0, 512) == FaultKind::kIllegalAddress);
  CHECK(fault(from, 1 << 20, 16) == FaultKind::kIllegalAddress);
  CHECK(fault(from + 8, 0, 16) == FaultKind::kMisalignedAddress);
  CHECK(fault(from, 4, 16) == FaultKind::kMisalignedAddress);
  CHECK(fault(from, 0, 24) == FaultKind::kIllegalInstruction);
}

template <class T>
void CheckReduction(BulkFixture& fixture, std::string_view kernel, std::function<T(T, T)> combine) {
  constexpr uint32_t kCount = 128 / sizeof(T);
  T* values = fixture.memory.New<T>(kCount);
  T* out = fixture.memory.New<T>(kCount);
  std::vector<T> want(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    values[i] = static_cast<T>(i % 3 == 0 ? T(0) - T(i) : T(5 * i + 1));
    out[i] = static_cast<T>(i % 2 == 0 ? T(100) : T(i * i));
    want[i] = combine(out[i], values[i]);
  }
  LaunchConfig config = Config(1, 32, Params().Add(out).Add(values).Add(uint32_t{128}));
  config.dynamic_shared_bytes = 128;
  INFO(kernel);
  fixture.MustRun(kernel, config);
  for (uint32_t i = 0; i < kCount; ++i) CHECK(out[i] == want[i]);
}

TEST_CASE_METHOD(BulkFixture, "Bulk reductions combine every value with memory") {
  CheckReduction<uint32_t>(*this, "bulk_add_u32", [](uint32_t a, uint32_t b) { return a + b; });
  CheckReduction<uint64_t>(*this, "bulk_add_u64", [](uint64_t a, uint64_t b) { return a + b; });
  CheckReduction<float>(*this, "bulk_add_f32", [](float a, float b) { return a + b; });
  CheckReduction<int32_t>(*this, "bulk_min_s32", [](int a, int b) { return std::min(a, b); });
  CheckReduction<int64_t>(*this, "bulk_max_s64",
                          [](int64_t a, int64_t b) { return std::max(a, b); });
  CheckReduction<uint32_t>(*this, "bulk_inc_u32",
                           [](uint32_t a, uint32_t b) { return a >= b ? 0 : a + 1; });
  CheckReduction<uint32_t>(*this, "bulk_and_b32", [](uint32_t a, uint32_t b) { return a & b; });
  CheckReduction<uint64_t>(*this, "bulk_xor_b64", [](uint64_t a, uint64_t b) { return a ^ b; });
  CheckReduction<uint16_t>(*this, "bulk_add_f16", [](uint16_t a, uint16_t b) {
    return FloatToHalf(HalfToFloat(a) + HalfToFloat(b));
  });
}

TEST_CASE_METHOD(BulkFixture, "Blocks of a cluster send bytes to each other's shared memory") {
  constexpr uint32_t kBlocks = 8, kCluster = 4;
  uint32_t* out = memory.New<uint32_t>(kBlocks * 32);
  MustRun("bulk_ring", Clusters(kBlocks, kCluster, 32, Params().Add(out)));
  for (uint32_t i = 0; i < kBlocks * 32; ++i) {
    const uint32_t sender = (i / 32 % kCluster + kCluster - 1) % kCluster;
    CHECK(out[i] == 2 * (sender * 100 + i % 32));
  }
}

TEST_CASE_METHOD(BulkFixture, "A multicast reaches the blocks that its mask names") {
  uint32_t* in = memory.New<uint32_t>(32);
  uint32_t* out = memory.New<uint32_t>(4 * 32);
  std::iota(in, in + 32, 1000);
  for (uint32_t mask : {0xfu, 0xau, 0x1u, 0x0u}) {
    MustRun("bulk_multicast", Clusters(4, 4, 32, Params().Add(in).Add(out).Add(mask)));
    for (uint32_t i = 0; i < 4 * 32; ++i)
      CHECK(out[i] == ((mask >> i / 32 & 1) != 0 ? in[i % 32] : 7));
  }
  CHECK(FaultOf("bulk_multicast", Clusters(4, 4, 32, Params().Add(in).Add(out).Add(0x10u))) ==
        FaultKind::kIllegalInstruction);
}

TEST_CASE_METHOD(BulkFixture,
                 "Asynchronous stores and reductions arrive at the barrier of a block") {
  constexpr uint32_t kCluster = 4;
  uint32_t* out = memory.New<uint32_t>(kCluster * 65);
  MustRun("async_stores", Clusters(kCluster, kCluster, 32, Params().Add(out)));
  for (uint32_t block = 0; block < kCluster; ++block) {
    const uint32_t* const got = out + block * 65;
    const uint32_t sender = (block + kCluster - 1) % kCluster * 1000;
    const uint32_t adder = (block + kCluster - 2) % kCluster * 1000;
    for (uint32_t i = 0; i < 32; ++i) {
      CHECK(got[2 * i] == sender + i);
      CHECK(got[2 * i + 1] == ~(sender + i));
    }
    CHECK(got[64] == 32 * adder + 31 * 16);
  }
}

TEST_CASE_METHOD(BulkFixture, "Matrices are stored, loaded and transposed") {
  uint32_t* in = memory.New<uint32_t>(4 * 32);
  uint32_t* out = memory.New<uint32_t>(9 * 32);
  const auto element = [](uint32_t matrix, uint32_t row, uint32_t column) {
    return 1000 * matrix + 10 * row + column;
  };
  for (uint32_t i = 0; i < 4 * 32; ++i) {
    const uint32_t lane = i % 32, row = lane / 4, column = lane % 4 * 2;
    in[i] = element(i / 32, row, column) | element(i / 32, row, column + 1) << 16;
  }
  MustRun("matrices", Config(1, 32, Params().Add(in).Add(out)));
  const uint16_t* const stored = reinterpret_cast<const uint16_t*>(out);
  for (uint32_t i = 0; i < 4 * 64; ++i) CHECK(stored[i] == element(i / 64, i / 8 % 8, i % 8));
  for (uint32_t i = 0; i < 4 * 32; ++i) CHECK(out[128 + i] == in[i]);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = lane / 4, column = lane % 4 * 2;
    CHECK(out[256 + lane] == (element(0, column, row) | element(0, column + 1, row) << 16));
  }
}

TEST_CASE("Forms of bulk copies that do not exist are refused") {
  const auto refused = [](const std::string& instruction) {
    const auto module = Module::Parse(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k() {\n"
        ".reg .b64 %a;\n.reg .b32 %n;\n.reg .b16 %m;\n" +
        instruction + "\nret; }");
    INFO(instruction << ": " << module.status().ToString());
    return !module.ok() &&
           module.status().message().find("unknown instruction 'cp") != absl::string_view::npos;
  };
  const std::string load = "cp.async.bulk.shared::cluster.global";
  CHECK_FALSE(refused(load + ".mbarrier::complete_tx::bytes [%a], [%a], %n, [%a];"));
  CHECK_FALSE(
      refused(load + ".mbarrier::complete_tx::bytes.L2::cache_hint [%a], [%a], %n, [%a], %a;"));
  CHECK_FALSE(refused("cp.async.bulk.prefetch.L2.global [%a], 16;"));
  CHECK(refused(load + ".bulk_group [%a], [%a], %n;"));
  CHECK(refused(
      "cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes [%a], [%a], %n, [%a];"));
  CHECK(refused("cp.async.bulk.global.global.bulk_group [%a], [%a], %n;"));
  CHECK(refused("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%a], [%a], %n, %m;"));
  const std::string reduce = "cp.reduce.async.bulk.global.shared::cta.bulk_group";
  CHECK_FALSE(refused(reduce + ".add.f64 [%a], [%a], %n;"));
  CHECK(refused(reduce + ".add.b32 [%a], [%a], %n;"));
  CHECK(refused(reduce + ".inc.f32 [%a], [%a], %n;"));
  CHECK(refused(reduce + ".exch.b32 [%a], [%a], %n;"));
  CHECK(refused("cp.async.bulk.tensor.6d.global.shared::cta.tile.bulk_group [%a, {%n}], [%a];"));
  CHECK(refused("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%a, {%n}], [%a];"));
  CHECK(
      refused("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
              "[%a], [%a, {%n, %n, %n}], [%a], {%m};"));
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
