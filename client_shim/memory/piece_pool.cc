#include "client_shim/memory/piece_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace detshare::shim {
namespace {

constexpr uint64_t kUnit = 512;

constexpr uint64_t InUnits(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

void Unmap(const PiecePool::Block& block) {
  munmap(reinterpret_cast<void*>(block.address), block.bytes);
}

}  // namespace

uint64_t PiecePool::Chunk::Take(uint64_t bytes) {
  if (bytes > free_bytes) return 0;
  const auto room = std::find_if(free.begin(), free.end(), [bytes](const auto& range) {
    return range.second - range.first >= bytes;
  });
  if (room == free.end()) return 0;
  const auto [begin, end] = *room;
  const auto next = free.erase(room);
  if (begin + bytes < end) free.emplace_hint(next, begin + bytes, end);
  free_bytes -= bytes;
  return begin;
}

void PiecePool::Chunk::Give(uint64_t begin, uint64_t bytes) {
  uint64_t end = begin + bytes;
  auto next = free.upper_bound(begin);
  if (next != free.end() && next->first == end) {
    end = next->second;
    next = free.erase(next);
  }
  if (next != free.begin() && std::prev(next)->second == begin) {
    std::prev(next)->second = end;
  } else {
    free.emplace_hint(next, begin, end);
  }
  free_bytes += bytes;
}

CUresult PiecePool::Allocate(Context& context, uint64_t bytes, uint64_t block_bytes, Piece* piece) {
  if (bytes > UINT64_MAX - kUnit) return CUDA_ERROR_OUT_OF_MEMORY;
  bytes = InUnits(bytes);
  const std::lock_guard lock(mutex_);
  std::vector<Chunk>& chunks = chunks_[context.id.load(std::memory_order_acquire)];
  for (Chunk& chunk : chunks) {
    piece->address = chunk.Take(bytes);
    piece->block = chunk.block;
    if (piece->address != 0) return CUDA_SUCCESS;
  }
  Chunk chunk;
  const CUresult result = make_(context, std::max(bytes, block_bytes), &chunk.block);
  if (result != CUDA_SUCCESS) return result;
  chunk.Give(chunk.block.address, chunk.block.bytes);
  piece->address = chunk.Take(bytes);
  piece->block = chunk.block;
  chunks.push_back(std::move(chunk));
  return CUDA_SUCCESS;
}

uint64_t PiecePool::Free(ContextId context, uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto own = chunks_.find(context);
  if (own == chunks_.end()) return 0;  // the context ends
  std::vector<Chunk>& chunks = own->second;
  const auto chunk = std::find_if(chunks.begin(), chunks.end(), [address](const Chunk& one) {
    return address - one.block.address < one.block.bytes;
  });
  if (chunk == chunks.end()) return 0;
  chunk->Give(address, InUnits(bytes));
  if (!chunk->empty()) return 0;
  const auto stays = [](const Chunk& one) { return one.empty() && one.block.bytes == kBlockBytes; };
  if (std::count_if(chunks.begin(), chunks.end(), stays) == 1 && stays(*chunk)) return 0;
  const Block block = chunk->block;
  Unmap(block);
  chunks.erase(chunk);
  return block.address;
}

void PiecePool::Forget(ContextId context) {
  const std::lock_guard lock(mutex_);
  const auto own = chunks_.find(context);
  if (own == chunks_.end()) return;
  for (const Chunk& chunk : own->second) Unmap(chunk.block);
  chunks_.erase(own);
}

}  // namespace detshare::shim
