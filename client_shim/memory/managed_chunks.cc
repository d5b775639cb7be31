#include "client_shim/memory/managed_chunks.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "client_shim/memory/managed_mapping.h"
#include "client_shim/transport/session.h"
#include "proto/wire/memory.h"

namespace detshare::shim {
namespace {

constexpr uint64_t kUnit = 512;
constexpr uint64_t kChunkBytes = uint64_t{2} << 20;

constexpr uint64_t InUnits(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

struct Chunk {
  ManagedMapping mapping;
  uint64_t free_bytes = 0;
  std::map<uint64_t, uint64_t> free;  // begin and end of what is free, which never touch each other

  bool empty() const { return free_bytes == mapping.bytes; }
  bool Holds(uint64_t address) const { return address - mapping.address < mapping.bytes; }

  uint64_t Take(uint64_t bytes) {
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
  void Give(uint64_t begin, uint64_t bytes) {
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
};

struct Chunks {
  std::mutex mutex;  // guards the rest
  std::map<ContextId, std::vector<Chunk>> of_context;
};

Chunks& chunks() {
  static Chunks* const all = new Chunks;
  return *all;
}

void Unmap(const ManagedMapping& mapping) {
  munmap(reinterpret_cast<void*>(mapping.address), mapping.bytes);
}

}  // namespace

uint64_t AllocateManagedPiece(Context& context, uint64_t bytes) {
  bytes = InUnits(bytes);
  const std::lock_guard lock(chunks().mutex);
  std::vector<Chunk>& own = chunks().of_context[context.id.load(std::memory_order_acquire)];
  for (Chunk& chunk : own) {
    if (const uint64_t address = chunk.Take(bytes); address != 0) return address;
  }
  Chunk chunk;
  if (!MapManaged(context, kChunkBytes, &chunk.mapping)) return 0;
  chunk.Give(chunk.mapping.address, chunk.mapping.bytes);
  const uint64_t address = chunk.Take(bytes);
  own.push_back(std::move(chunk));
  return address;
}

void FreeManagedPiece(uint16_t device, ContextId context, uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(chunks().mutex);
  const auto found = chunks().of_context.find(context);
  if (found == chunks().of_context.end()) return;  // the context ends
  std::vector<Chunk>& own = found->second;
  const auto chunk = std::find_if(own.begin(), own.end(),
                                  [address](const Chunk& one) { return one.Holds(address); });
  if (chunk == own.end()) return;
  chunk->Give(address, InUnits(bytes));
  if (!chunk->empty() || own.size() == 1) return;
  const uint64_t window = chunk->mapping.address;
  Unmap(chunk->mapping);
  own.erase(chunk);
  session().Call(Op::cuMemFreeHost, device, context, wire::cuMemFreeHost{window});
}

void ForgetManagedPieces(ContextId context) {
  const std::lock_guard lock(chunks().mutex);
  const auto own = chunks().of_context.find(context);
  if (own == chunks().of_context.end()) return;
  for (const Chunk& chunk : own->second) Unmap(chunk.mapping);
  chunks().of_context.erase(own);
}

}  // namespace detshare::shim
