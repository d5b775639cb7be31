// Pieces of blocks: where they lie, and which blocks stay.
#include "client_shim/memory/piece_pool.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>
#include <set>

namespace detshare::shim {
namespace {

using Block = PiecePool::Block;
using Piece = PiecePool::Piece;

constexpr uint64_t kBlock = PiecePool::kBlockBytes;

std::set<uint64_t> made;       // the addresses of all blocks
CUresult next = CUDA_SUCCESS;  // what the next call for a block returns

CUresult MakeBlock(Context&, uint64_t bytes, Block* block) {
  if (next != CUDA_SUCCESS) return next;
  block->bytes = (bytes + 4095) / 4096 * 4096;
  void* const memory = mmap(nullptr, block->bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  block->address = reinterpret_cast<uint64_t>(memory);
  made.insert(block->address);
  return CUDA_SUCCESS;
}

bool Mapped(uint64_t address) {
  unsigned char resident;
  return mincore(reinterpret_cast<void*>(address), 4096, &resident) == 0;
}

struct Pool {
  Pool() {
    made.clear();
    next = CUDA_SUCCESS;
    context.id.store(1, std::memory_order_relaxed);
  }
  ~Pool() {
    pool.Forget(1);
    pool.Forget(2);
  }
  Piece Allocate(uint64_t bytes, uint64_t block_bytes = kBlock) {
    Piece piece;
    REQUIRE(pool.Allocate(context, bytes, block_bytes, &piece) == CUDA_SUCCESS);
    CHECK(piece.address % 512 == 0);
    CHECK(piece.address - piece.block.address + bytes <= piece.block.bytes);
    return piece;
  }
  Context context;
  PiecePool pool{MakeBlock};
};

TEST_CASE("Pieces lie one after the other in units of 512 bytes") {
  Pool pool;
  const uint64_t first = pool.Allocate(1).address;
  CHECK(pool.Allocate(512).address == first + 512);
  CHECK(pool.Allocate(513).address == first + 1024);
  CHECK(pool.Allocate(5000).address == first + 2048);
  CHECK(made.size() == 1);
  CHECK(pool.pool.Free(1, first + 1024, 513) == 0);
  CHECK(pool.Allocate(100).address == first + 1024);
  CHECK(pool.Allocate(600).address != first + 1536);
}

TEST_CASE("A piece that fits no block gets one of its own size") {
  Pool pool;
  const Piece small = pool.Allocate(1);
  const Piece large = pool.Allocate(3 * kBlock);
  CHECK(large.block.bytes == 3 * kBlock);
  CHECK(made.size() == 2);
  CHECK(pool.pool.Free(1, large.address, 3 * kBlock) == large.block.address);
  CHECK_FALSE(Mapped(large.block.address));
  CHECK(Mapped(small.block.address));
}

TEST_CASE("One block without pieces stays, so that a small allocation is cheap the next time") {
  Pool pool;
  const Piece one = pool.Allocate(kBlock / 2 + 1);
  const Piece two = pool.Allocate(kBlock / 2 + 1);
  REQUIRE(made.size() == 2);
  CHECK(pool.pool.Free(1, one.address, kBlock / 2 + 1) == 0);
  CHECK(pool.pool.Free(1, two.address, kBlock / 2 + 1) == two.block.address);
  CHECK(Mapped(one.block.address));
  CHECK_FALSE(Mapped(two.block.address));
  CHECK(pool.Allocate(1).address == one.address);
}

TEST_CASE("Each context has blocks of its own, which end with it") {
  Pool pool;
  const Piece one = pool.Allocate(1);
  pool.context.id.store(2, std::memory_order_relaxed);
  const Piece two = pool.Allocate(1);
  CHECK(one.block.address != two.block.address);
  pool.pool.Forget(1);
  CHECK_FALSE(Mapped(one.block.address));
  CHECK(Mapped(two.block.address));
  CHECK(pool.pool.Free(1, one.address, 1) == 0);
  CHECK(pool.pool.Free(2, one.address, 1) == 0);
}

TEST_CASE("An error for a block is the piece's, and leaves nothing") {
  Pool pool;
  Piece piece;
  next = CUDA_ERROR_OUT_OF_MEMORY;
  CHECK(pool.pool.Allocate(pool.context, 1, kBlock, &piece) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(pool.pool.Allocate(pool.context, UINT64_MAX, kBlock, &piece) == CUDA_ERROR_OUT_OF_MEMORY);
  next = CUDA_SUCCESS;
  CHECK(made.empty());
  pool.Allocate(1);
}

TEST_CASE("Random pieces never overlap, and free room is used again") {
  Pool pool;
  std::minstd_rand random(7);
  std::map<uint64_t, uint64_t> pieces;  // begin and size
  for (int step = 0; step < 5000; ++step) {
    if (!pieces.empty() && random() % 2 == 0) {
      auto piece = pieces.lower_bound(
          std::prev(pieces.end())->first -
          random() % (std::prev(pieces.end())->first - pieces.begin()->first + 1));
      pool.pool.Free(1, piece->first, piece->second);
      pieces.erase(piece);
    } else {
      const uint64_t size = 1 + random() % (random() % 10 == 0 ? 900'000 : 5'000);
      const Piece piece = pool.Allocate(size);
      const auto after = pieces.lower_bound(piece.address);
      CHECK((after == pieces.end() || piece.address + size <= after->first));
      CHECK((after == pieces.begin() ||
             std::prev(after)->first + std::prev(after)->second <= piece.address));
      pieces.emplace(piece.address, size);
    }
  }
  for (const auto& [address, size] : pieces) pool.pool.Free(1, address, size);
  int left = 0;
  for (const uint64_t block : made) left += Mapped(block);
  CHECK(left <= 1);
}

}  // namespace
}  // namespace detshare::shim
