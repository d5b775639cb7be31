#include "coroutine_runtime/memory_op.h"

#include <catch2/catch.hpp>

namespace detshare {
namespace {

MemoryOp Wait(MemoryOp::Operation operation, uint32_t condition, uint64_t value) {
  return {operation, condition, 0, value};
}

TEST_CASE("Greater-or-equal compares across the wrap of the numbers") {
  const MemoryOp narrow = Wait(MemoryOp::kWait32, MemoryOp::kGreaterOrEqual, 0xFFFFFFF0);
  CHECK(narrow.Satisfied(0xFFFFFFF0));
  CHECK(narrow.Satisfied(5));
  CHECK_FALSE(narrow.Satisfied(0xFFFFFFEF));
  CHECK_FALSE(narrow.Satisfied(0x7FFFFFFF));
  const MemoryOp wide = Wait(MemoryOp::kWait64, MemoryOp::kGreaterOrEqual, 10);
  CHECK(wide.Satisfied(10));
  CHECK_FALSE(wide.Satisfied(9));
  CHECK_FALSE(wide.Satisfied(UINT64_MAX));
}

TEST_CASE("A wait on 32 bits ignores the other bits") {
  CHECK(Wait(MemoryOp::kWait32, MemoryOp::kEqual, 3).Satisfied(0x100000003));
  CHECK_FALSE(Wait(MemoryOp::kWait64, MemoryOp::kEqual, 3).Satisfied(0x100000003));
  CHECK_FALSE(Wait(MemoryOp::kWait32, MemoryOp::kAnd, 1).Satisfied(uint64_t{1} << 32));
  CHECK_FALSE(Wait(MemoryOp::kWait32, MemoryOp::kNor, 0xFFFFFFFF).Satisfied(0));
}

TEST_CASE("For every wait that can end there is a word that ends it") {
  for (const auto operation : {MemoryOp::kWait32, MemoryOp::kWait64}) {
    for (uint32_t condition = 0; condition <= MemoryOp::kNor; ++condition) {
      for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{0x80000000}}) {
        const MemoryOp wait = Wait(operation, condition, value);
        const bool never = condition == MemoryOp::kAnd && value == 0;
        REQUIRE(wait.Satisfying().has_value() != never);
        if (!never) CHECK(wait.Satisfied(*wait.Satisfying()));
      }
    }
  }
  CHECK_FALSE(Wait(MemoryOp::kWait32, MemoryOp::kNor, 0xFFFFFFFF).Satisfying().has_value());
  CHECK_FALSE(Wait(MemoryOp::kWait64, MemoryOp::kNor, UINT64_MAX).Satisfying().has_value());
}

}  // namespace
}  // namespace detshare
