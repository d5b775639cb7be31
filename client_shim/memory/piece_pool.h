// Pieces of larger blocks of memory, in units of 512 bytes, as NVIDIA's driver gives out pinned and
// managed memory. A new piece may have the contents of a piece that was freed.
//
// Blocks belong to contexts. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "client_shim/objects/objects.h"

namespace detshare::shim {

class PiecePool {
 public:
  // Memory of the daemon that this process has mapped.
  struct Block {
    uint64_t address = 0, bytes = 0;
    uint64_t device = 0, inode = 0;  // of its file (ProcessMapping), if its maker has found them
  };
  struct Piece {
    uint64_t address = 0;
    Block block;
  };
  // Pieces of at most kSmallBytes share blocks of kBlockBytes, which are as large as those of NVIDIA's
  // driver.
  static constexpr uint64_t kSmallBytes = uint64_t{1} << 20, kBlockBytes = uint64_t{2} << 20;

  // Makes a block of at least `bytes` for the context, and maps it.
  using MakeBlock = CUresult (*)(Context& context, uint64_t bytes, Block* block);
  explicit PiecePool(MakeBlock make) : make_(make) {}

  // Allocates a piece. If no block has room, makes one of `block_bytes` or more. Errors are those of
  // MakeBlock.
  CUresult Allocate(Context& context, uint64_t bytes, uint64_t block_bytes, Piece* piece);
  // Frees a piece of the context. No work uses it. Returns the address of its block if that has no pieces
  // any more and is unmapped: the caller gives it back to the daemon. Otherwise 0. One block of
  // kBlockBytes stays.
  uint64_t Free(ContextId context, uint64_t address, uint64_t bytes);
  // Unmaps the context's blocks. Its work is complete. The daemon frees them with the context.
  void Forget(ContextId context);

 private:
  struct Chunk {
    Block block;
    uint64_t free_bytes = 0;
    std::map<uint64_t, uint64_t> free;  // begin and end of each range between pieces

    bool empty() const { return free_bytes == block.bytes; }
    uint64_t Take(uint64_t bytes);  // 0: no room
    void Give(uint64_t begin, uint64_t bytes);
  };

  const MakeBlock make_;
  std::mutex mutex_;  // guards the rest
  std::map<ContextId, std::vector<Chunk>> chunks_;
};

}  // namespace detshare::shim
