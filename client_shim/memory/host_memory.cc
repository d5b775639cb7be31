#include "client_shim/memory/host_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "client_shim/base/log.h"
#include "client_shim/memory/page_exchange.h"
#include "client_shim/memory/piece_pool.h"
#include "client_shim/memory/process_mappings.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/objects/waits.h"
#include "client_shim/transport/session.h"
#include "proto/wire/memory.h"

namespace detshare::shim {
namespace {

constexpr uint64_t kPageMask = kPageBytes - 1;

CUresult GiveBack(const Context& context, uint64_t window) {
  return session().Call(Op::cuMemFreeHost, context.device,
                        context.id.load(std::memory_order_acquire), wire::cuMemFreeHost{window});
}

using Block = PiecePool::Block;

CUresult MakeBlock(Context& context, uint64_t bytes, Block* block) {
  wire::cuMemHostAlloc_Reply file{};
  const ContextId id = context.id.load(std::memory_order_acquire);
  const CUresult result = session().CallUnordered(Op::cuMemHostAlloc, context.device, id,
                                                  wire::cuMemHostAlloc{bytes, 0, 0}, &file);
  if (result != CUDA_SUCCESS) return result;
  if (file.file_bytes < bytes || file.file_bytes % kPageBytes != 0) return CUDA_ERROR_UNKNOWN;
  *block = {file.address, file.file_bytes};
  if (MapPinnedFile(file.file, file.address, file.file_bytes)) return CUDA_SUCCESS;
  GiveBack(context, file.address);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// The same, and finds out which file the block is.
CUresult MakeKnownBlock(Context& context, uint64_t bytes, Block* block) {
  const CUresult result = MakeBlock(context, bytes, block);
  if (result != CUDA_SUCCESS) return result;
  ProcessMappings mappings;
  ProcessMapping mapping;
  if (mappings.Find(block->address, &mapping) && mapping.begin <= block->address) {
    block->device = mapping.device;
    block->inode = mapping.inode;
  }
  return CUDA_SUCCESS;
}

// As with NVIDIA's driver, pinned and managed memory have no block in common.
struct HostPieces {
  PiecePool pinned{MakeBlock}, managed{MakeBlock};
  PiecePool registered{MakeKnownBlock};  // all of them are whole pages
};

HostPieces& host_pieces() {
  static HostPieces* const all = new HostPieces;
  return *all;
}

PiecePool& PiecesOf(MemoryKind kind) {
  if (kind == MemoryKind::kManaged) return host_pieces().managed;
  return kind == MemoryKind::kRegistered ? host_pieces().registered : host_pieces().pinned;
}

// The number of files of a session is limited. So blocks grow with the memory that the program has, and a
// program that has many large allocations gets the later ones as pieces, too.
constexpr uint32_t kOwnBlocks = 64;
constexpr uint64_t kBlocksAtLeast = 16;
// Of allocations that are no pieces. Relaxed: they only choose between the two ways.
std::atomic<uint32_t> own_blocks{0};
std::atomic<uint64_t> host_bytes{0};  // of all allocations

bool IsSmall(uint64_t bytes) { return bytes <= PiecePool::kSmallBytes; }

bool HasOwnBlock(uint64_t bytes) {
  return !IsSmall(bytes) && own_blocks.load(std::memory_order_relaxed) < kOwnBlocks;
}

CUresult AllocatePiece(Context& context, MemoryKind kind, uint64_t bytes, PiecePool::Piece* piece) {
  const uint64_t growing = host_bytes.load(std::memory_order_relaxed) / kBlocksAtLeast;
  const uint64_t least = IsSmall(bytes) ? std::max(growing, PiecePool::kBlockBytes) : growing;
  const CUresult result = PiecesOf(kind).Allocate(context, bytes, least, piece);
  // There may be room for this piece alone.
  return result == CUDA_ERROR_OUT_OF_MEMORY ? PiecesOf(kind).Allocate(context, bytes, bytes, piece)
                                            : result;
}

void Count(const Allocation& allocation, int change) {
  own_blocks.fetch_add(allocation.piece ? 0 : change, std::memory_order_relaxed);
  host_bytes.fetch_add(change * allocation.bytes, std::memory_order_relaxed);
}

// Gives an allocation's block, or the piece of it that begins at `address`, back. The program does not use
// it any more.
CUresult GiveBackMemory(const Allocation& allocation, uint64_t address, uint64_t bytes) {
  uint64_t block = allocation.window;
  if (allocation.piece) {
    block = PiecesOf(allocation.kind).Free(allocation.context, address, bytes);
    if (block == 0) return session().sticky_error();
  }
  return session().Call(Op::cuMemFreeHost, allocation.device, allocation.context,
                        wire::cuMemFreeHost{block});
}

// The same for registered memory.
CUresult GiveBackPages(const Allocation& allocation) {
  return GiveBackMemory(allocation, allocation.gpu_address & ~kPageMask, allocation.mapping_bytes);
}

// Finds an open descriptor of this process for the file. A program that maps a file often keeps one
// open, even after the file's name is gone. Returns -1 if there is none.
int FindDescriptor(const ProcessMapping& shared) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return -1;
  while (const dirent* const entry = readdir(folder.get())) {
    char* end;
    const long number = strtol(entry->d_name, &end, 10);
    struct stat file;
    if (end == entry->d_name || *end != '\0' || fstat(static_cast<int>(number), &file) != 0)
      continue;
    if (file.st_dev == shared.device && file.st_ino == shared.inode)
      return static_cast<int>(number);
  }
  return -1;
}

// The name in /dev/shm of a mapped file; "": it has none there.
std::string SharedName(const ProcessMapping& shared) {
  constexpr char kFolder[] = "/dev/shm/";
  const size_t folder = sizeof(kFolder) - 1;
  return shared.path.compare(0, folder, kFolder) == 0 ? shared.path.substr(folder) : "";
}

// Finds the protection of [address, address + bytes), if all of it is mapped and private.
// CUDA_ERROR_NOT_SUPPORTED: some of it is shared. If one shared mapping holds all of it, *shared is
// that mapping.
CUresult InspectRange(uint64_t address, uint64_t bytes, int* protection, ProcessMapping* shared) {
  ProcessMappings mappings;
  if (!mappings.ok()) return CUDA_ERROR_UNKNOWN;
  *protection = 0;
  for (uint64_t covered = address; covered < address + bytes;) {
    ProcessMapping mapping;
    if (!mappings.Find(covered, &mapping) || mapping.begin > covered)
      return CUDA_ERROR_INVALID_VALUE;
    if (mapping.shared) {
      // A private copy in its place would separate the program from the processes that it shares
      // the memory with.
      if (mapping.begin <= address && mapping.end >= address + bytes) *shared = mapping;
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if ((mapping.protection & PROT_READ) == 0) return CUDA_ERROR_INVALID_VALUE;
    *protection |= mapping.protection;
    covered = mapping.end;
  }
  return CUDA_SUCCESS;
}

// Exchanged pages may be read and written. Gives them the protection of those that they replace.
void RestoreProtection(uint64_t begin, uint64_t end, int protection) {
  if (protection != (PROT_READ | PROT_WRITE))
    mprotect(reinterpret_cast<void*>(begin), end - begin, protection);
}

// Replaces [begin, end) with ordinary memory of this process alone, with the same contents and
// protection.
bool MakePagesPrivate(uint64_t begin, uint64_t end, int protection) {
  const uint64_t bytes = end - begin;
  void* const pages = reinterpret_cast<void*>(begin);
  if ((protection & PROT_READ) == 0 && mprotect(pages, bytes, PROT_READ) != 0) return false;
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  if (!CopyAndExchange(begin, static_cast<std::byte*>(mapped), bytes)) return false;
  RestoreProtection(begin, end, protection);
  return true;
}

// Does so for the mapping of registered memory, as far as it is there. The program may have freed the
// memory, and other memory may be at its addresses since: that stays as it is. `mappings` has found
// nothing behind the mapping yet.
bool MakeMappingPrivate(const Allocation& allocation, ProcessMappings& mappings) {
  const uint64_t end = allocation.mapping + allocation.mapping_bytes;
  if (!mappings.ok() || allocation.file_inode == 0)
    return MakePagesPrivate(allocation.mapping, end, allocation.protection);
  // Where the file's beginning would be.
  const uint64_t origin =
      allocation.mapping - ((allocation.gpu_address & ~kPageMask) - allocation.window);
  bool done = true;
  ProcessMapping part;
  for (uint64_t at = allocation.mapping; at < end && mappings.Find(at, &part); at = part.end) {
    const uint64_t begin = std::max(at, part.begin);
    if (begin >= end) break;
    const bool ours = part.shared && part.device == allocation.file_device &&
                      part.inode == allocation.file_inode && part.begin - part.offset == origin;
    if (ours) done = MakePagesPrivate(begin, std::min(part.end, end), part.protection) && done;
  }
  return done;
}

// Removes the mapping of an allocation, as UnmapHostMemory() does. One `*mappings`, which the first
// call makes, serves registered memory in the order of its addresses: a text of all mappings is read
// once.
void Unmap(const Allocation& allocation, std::unique_ptr<ProcessMappings>* mappings) {
  if (allocation.mapping == 0) return;
  if (allocation.kind != MemoryKind::kRegistered) {
    munmap(reinterpret_cast<void*>(allocation.mapping), allocation.mapping_bytes);
    return;
  }
  if (*mappings == nullptr) *mappings = std::make_unique<ProcessMappings>();
  if (!MakeMappingPrivate(allocation, **mappings))
    Log(LogLevel::kError, "cannot make registered memory ordinary again: it stays shared");
}

// Registers memory by name only: the GPU does not reach it, and copies are staged.
CUresult RememberRegistration(Context& context, uint64_t start, uint64_t bytes, uint32_t flags) {
  Log(LogLevel::kInfo,
      "registered memory at %#" PRIx64 " stays out of the GPU's reach: copies of it are staged",
      start);
  Allocation allocation;
  allocation.kind = MemoryKind::kRegistered;
  allocation.device = context.device;
  allocation.context = context.id.load(std::memory_order_relaxed);
  allocation.context_handle = context.handle.load(std::memory_order_relaxed);
  allocation.address = allocation.host_address = start;
  allocation.bytes = bytes;
  allocation.flags = flags;
  return pointers().AddUnlessOverlapping(allocation) ? CUDA_SUCCESS
                                                     : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

// Asks the daemon to map the same file. Returns false if the daemon cannot, or if another thread
// registered the memory first.
bool RegisterSharedMemory(Context& context, uint64_t start, uint64_t bytes, uint32_t flags,
                          const ProcessMapping& shared) {
  const uint64_t first = start & ~kPageMask;
  const uint64_t end = (start + bytes + kPageMask) & ~kPageMask;
  const ContextId id = context.id.load(std::memory_order_acquire);
  const uint64_t first_page = (first - shared.begin) / kPageBytes;
  const wire::cuMemHostRegister_v2 args{
      shared.begin,
      shared.end,
      shared.offset + (first - shared.begin),
      end - first,
      shared.device,
      shared.inode,
      FindDescriptor(shared),
      static_cast<uint32_t>(std::min<uint64_t>(first_page, UINT32_MAX))};
  const std::string shared_name = SharedName(shared);
  const ConstBuffer name{shared_name.data(), shared_name.size()};
  std::string reply;
  const CUresult result = session().CallControl(Op::cuMemHostRegister_v2, context.device, id, &args,
                                                sizeof(args), {&name, 1}, &reply);
  wire::cuMemHostRegister_v2_Reply body;
  if (result != CUDA_SUCCESS || reply.size() < sizeof(body)) return false;
  memcpy(&body, reply.data(), sizeof(body));
  Allocation allocation;
  allocation.kind = MemoryKind::kRegistered;
  allocation.device = context.device;
  allocation.context = id;
  allocation.context_handle = context.handle.load(std::memory_order_relaxed);
  allocation.address = allocation.host_address = start;
  allocation.gpu_address = body.address + (start - first);
  allocation.bytes = bytes;
  allocation.flags = flags;
  allocation.window = body.address;
  if (!pointers().AddUnlessOverlapping(allocation)) {
    GiveBack(context, body.address);
    return false;
  }
  Count(allocation, 1);
  if (allocation.gpu_address == start) return true;
  Allocation alias = allocation;
  alias.kind = MemoryKind::kRegisteredAlias;
  alias.address = allocation.gpu_address;
  pointers().Add(alias);
  return true;
}

}  // namespace

bool MapPinnedFile(uint32_t file, uint64_t address, uint64_t file_bytes) {
  void* const wanted = reinterpret_cast<void*>(address);
  void* mapped = MAP_FAILED;
  errno = EINVAL;
  if (address % kPageBytes == 0 && file_bytes % kPageBytes == 0 &&
      address - session().pinned_base() < session().pinned_bytes()) {
    const int fd = session().OpenFile("pinned." + std::to_string(file));
    if (fd >= 0) {
      mapped =
          mmap(wanted, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
      const int saved = errno;
      close(fd);
      errno = saved;
    }
  }
  if (mapped == wanted) return true;
  Log(LogLevel::kError, "cannot map pinned memory at %#" PRIx64 ": %s", address, strerror(errno));
  if (mapped != MAP_FAILED) munmap(mapped, file_bytes);  // a kernel without MAP_FIXED_NOREPLACE
  return false;
}

namespace {

// Adds an allocation that is a block of its own, or a piece of one.
void* AddHostMemory(const Context& context, MemoryKind kind, uint64_t address, uint64_t bytes,
                    uint32_t flags, const Block& block, bool piece) {
  Allocation allocation;
  allocation.kind = kind;
  allocation.device = context.device;
  allocation.context = context.id.load(std::memory_order_relaxed);
  allocation.context_handle = context.handle.load(std::memory_order_relaxed);
  allocation.address = allocation.gpu_address = allocation.host_address = address;
  allocation.bytes = bytes;
  allocation.flags = flags;
  allocation.mapping = piece ? 0 : block.address;
  allocation.window = block.address;
  allocation.mapping_bytes = block.bytes;
  allocation.piece = piece;
  Count(allocation, 1);
  pointers().Add(allocation);
  return reinterpret_cast<void*>(address);
}

}  // namespace

CUresult AllocateHostBlock(Context& context, uint64_t bytes, uint32_t flags, void** address) {
  Block block;
  const CUresult result = MakeBlock(context, bytes, &block);
  if (result != CUDA_SUCCESS) return result;
  *address = AddHostMemory(context, MemoryKind::kPinned, block.address, bytes, flags, block,
                           /*piece=*/false);
  return CUDA_SUCCESS;
}

CUresult AllocateHostMemory(Context& context, MemoryKind kind, uint64_t bytes, uint32_t flags,
                            void** address) {
  PiecePool::Piece piece;
  const bool own = HasOwnBlock(bytes);
  CUresult result;
  if (own) {
    result = MakeBlock(context, bytes, &piece.block);
    piece.address = piece.block.address;
  } else {
    result = AllocatePiece(context, kind, bytes, &piece);
  }
  if (result != CUDA_SUCCESS) return result;
  *address = AddHostMemory(context, kind, piece.address, bytes, flags, piece.block, !own);
  return CUDA_SUCCESS;
}

void FreeHostBlockLater(ContextId context, void* address) {
  pointers().TakeAndFree(reinterpret_cast<uint64_t>(address), MemoryKind::kPinned, context,
                         [](const Allocation& allocation) {
                           Count(allocation, -1);
                           UnmapHostMemory(allocation);
                           session().Submit(Op::cuMemFreeHost, allocation.device,
                                            allocation.context,
                                            wire::cuMemFreeHost{allocation.window});
                         });
}

CUresult FreeHostMemory(MemoryKind kind, uint64_t address) {
  Allocation allocation;
  if (!pointers().Take(address, kind, &allocation)) return CUDA_ERROR_INVALID_VALUE;
  Count(allocation, -1);
  if (allocation.piece) SynchronizeContexts();  // earlier work may still use it
  // Unmaps the memory before the daemon gives the address to another allocation. Work that still uses
  // the memory has the daemon's mapping.
  UnmapHostMemory(allocation);
  return GiveBackMemory(allocation, address, allocation.bytes);
}

namespace {

// Makes the pages for registered memory, whose `mapping` is known, and maps them at *mapped, from where the
// caller moves them.
CUresult MakePages(Context& context, Allocation* allocation, std::byte** mapped) {
  const uint64_t bytes = allocation->mapping_bytes;
  PiecePool::Piece piece;
  allocation->piece = !HasOwnBlock(bytes);
  const CUresult result = allocation->piece
                              ? AllocatePiece(context, MemoryKind::kRegistered, bytes, &piece)
                              : MakeKnownBlock(context, bytes, &piece.block);
  if (result != CUDA_SUCCESS) return result;
  if (!allocation->piece) piece.address = piece.block.address;
  allocation->window = piece.block.address;
  allocation->file_device = piece.block.device;
  allocation->file_inode = piece.block.inode;
  allocation->gpu_address = piece.address + (allocation->address - allocation->mapping);
  void* pages = reinterpret_cast<void*>(piece.address);
  if (allocation->piece) {
    // A block stays where it is. With a size of 0, mremap(2) maps its pages a second time.
    pages = mremap(pages, 0, bytes, MREMAP_MAYMOVE);
  } else if (piece.block.bytes > bytes) {
    munmap(static_cast<std::byte*>(pages) + bytes, piece.block.bytes - bytes);
  }
  if (pages == MAP_FAILED) {
    GiveBackPages(*allocation);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *mapped = static_cast<std::byte*>(pages);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult RegisterHostMemory(Context& context, void* address, uint64_t bytes, uint32_t flags) {
  const uint64_t start = reinterpret_cast<uint64_t>(address);
  const uint64_t first = start & ~kPageMask;
  const uint64_t end = (start + bytes + kPageMask) & ~kPageMask;
  if (start + bytes < start || end < start) return CUDA_ERROR_INVALID_VALUE;
  Allocation known;
  if (pointers().Find(start, &known) && known.kind == MemoryKind::kPinned)
    return CUDA_ERROR_INVALID_VALUE;
  if (pointers().OverlapsHostMemory(start, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  int protection = 0;
  ProcessMapping shared;
  CUresult result = InspectRange(first, end - first, &protection, &shared);
  // Private memory is no memory of a device.
  if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0)
    return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
  if (shared.end != 0 && RegisterSharedMemory(context, start, bytes, flags, shared))
    return CUDA_SUCCESS;
  // A page can be exchanged only once, and a neighbour's registration may have exchanged it.
  if (result == CUDA_SUCCESS && pointers().OverlapsHostMemory(first, end - first))
    result = CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_ERROR_NOT_SUPPORTED && (flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0) {
    return RememberRegistration(context, start, bytes, flags);
  }
  if (result != CUDA_SUCCESS) return result;
  Allocation allocation;
  allocation.kind = MemoryKind::kRegistered;
  allocation.device = context.device;
  allocation.context = context.id.load(std::memory_order_relaxed);
  allocation.context_handle = context.handle.load(std::memory_order_relaxed);
  allocation.address = allocation.host_address = start;
  allocation.bytes = bytes;
  allocation.flags = flags;
  allocation.mapping = first;
  allocation.mapping_bytes = end - first;
  allocation.protection = protection;
  std::byte* mapped;
  result = MakePages(context, &allocation, &mapped);
  if (result != CUDA_SUCCESS) return result;
  // Recorded before the exchange, so that two threads cannot exchange the same pages.
  if (!pointers().AddUnlessOverlapping(allocation)) {
    munmap(mapped, end - first);
    GiveBackPages(allocation);
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  Count(allocation, 1);
  if (!CopyAndExchange(first, mapped, end - first)) {
    Log(LogLevel::kError, "cannot exchange the pages of registered memory: %s", strerror(errno));
    pointers().Take(start, MemoryKind::kRegistered, &allocation);
    Count(allocation, -1);
    UnmapHostMemory(allocation);
    RestoreProtection(first, end, protection);
    GiveBackPages(allocation);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  RestoreProtection(first, end, protection);
  Allocation alias = allocation;
  alias.kind = MemoryKind::kRegisteredAlias;
  alias.address = allocation.gpu_address;
  pointers().Add(alias);
  return CUDA_SUCCESS;
}

CUresult UnregisterHostMemory(void* address) {
  Allocation allocation, alias;
  if (!pointers().Take(reinterpret_cast<uint64_t>(address), MemoryKind::kRegistered, &allocation)) {
    // An address inside registered memory does not name it. Any other address is unknown.
    return pointers().Find(reinterpret_cast<uint64_t>(address), &allocation)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  if (allocation.window == 0) return CUDA_SUCCESS;
  pointers().Take(allocation.gpu_address, MemoryKind::kRegisteredAlias, &alias);
  // Earlier work may still write the memory, and the program keeps what it writes. The daemon may
  // reuse the file as soon as it is told.
  SynchronizeContexts();
  UnmapHostMemory(allocation);
  Count(allocation, -1);
  return GiveBackPages(allocation);
}

void UnmapHostMemory(const Allocation& allocation) {
  std::unique_ptr<ProcessMappings> mappings;
  Unmap(allocation, &mappings);
}

void ForgetMemoryOf(ContextId context) {
  std::unique_ptr<ProcessMappings> mappings;
  for (const Allocation& allocation : pointers().TakeContext(context)) {
    if (allocation.window != 0 && !allocation.migrates) Count(allocation, -1);
    Unmap(allocation, &mappings);
  }
  host_pieces().pinned.Forget(context);
  host_pieces().managed.Forget(context);
  host_pieces().registered.Forget(context);
}

void KeepRegisteredMemoryInChild() {
  std::unique_ptr<ProcessMappings> mappings;
  pointers().ForEachInChild([&](const Allocation& allocation) {
    if (allocation.kind == MemoryKind::kRegistered) Unmap(allocation, &mappings);
  });
}

}  // namespace detshare::shim
