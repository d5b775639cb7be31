#include "client_shim/memory/host_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "client_shim/base/log.h"
#include "client_shim/memory/piece_pool.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/objects/waits.h"
#include "client_shim/transport/session.h"
#include "proto/wire/memory.h"

namespace detshare::shim {
namespace {

constexpr uint64_t kPageMask = kPageBytes - 1;

// Maps the daemon's file at `address` (0: anywhere). Returns null with errno on failure.
void* MapFile(const wire::cuMemHostAlloc_Reply& file, uint64_t address, int protection) {
  const int fd = session().OpenFile("pinned." + std::to_string(file.file));
  if (fd < 0) return nullptr;
  void* const wanted = reinterpret_cast<void*>(address);
  void* mapped = mmap(wanted, file.file_bytes, protection,
                      MAP_SHARED | (address != 0 ? MAP_FIXED_NOREPLACE : 0), fd, 0);
  const int saved = errno;
  close(fd);
  if (mapped != MAP_FAILED && address != 0 && mapped != wanted) {
    munmap(mapped, file.file_bytes);  // a kernel without MAP_FIXED_NOREPLACE
    mapped = MAP_FAILED;
  }
  errno = saved;
  return mapped == MAP_FAILED ? nullptr : mapped;
}

CUresult MakeFile(Context& context, uint64_t bytes, wire::cuMemHostAlloc_Reply* file) {
  const ContextId id = context.id.load(std::memory_order_acquire);
  const CUresult result = session().Call(Op::cuMemHostAlloc, context.device, id,
                                         wire::cuMemHostAlloc{bytes, 0, 0}, file);
  if (result != CUDA_SUCCESS) return result;
  if (file->file_bytes < bytes || file->file_bytes % kPageBytes != 0) return CUDA_ERROR_UNKNOWN;
  return CUDA_SUCCESS;
}

CUresult GiveBack(const Context& context, uint64_t window) {
  return session().Call(Op::cuMemFreeHost, context.device,
                        context.id.load(std::memory_order_acquire), wire::cuMemFreeHost{window});
}

// A mapping that the program shares with other processes.
struct SharedMapping {
  uint64_t begin = 0, end = 0;  // end 0: none
  uint64_t offset = 0;          // of `begin` in the file
  uint64_t device = 0, inode = 0;
  std::string name;  // its name in /dev/shm; empty: none
};

// Finds an open descriptor of this process for the file. A program that maps a file often keeps one
// open, even after the file's name is gone. Returns -1 if there is none.
int FindDescriptor(const SharedMapping& shared) {
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

// Reads what a line of /proc/self/maps says about a shared mapping.
SharedMapping ReadSharedMapping(const char* line, uint64_t begin, uint64_t end) {
  SharedMapping shared;
  shared.begin = begin;
  shared.end = end;
  unsigned int major = 0, minor = 0;
  int path = 0;
  sscanf(line, "%*s %*s %" SCNx64 " %x:%x %" SCNu64 " %n", &shared.offset, &major, &minor,
         &shared.inode, &path);
  shared.device = makedev(major, minor);
  constexpr char kFolder[] = "/dev/shm/";
  if (path != 0 && strncmp(line + path, kFolder, sizeof(kFolder) - 1) == 0) {
    shared.name = line + path + sizeof(kFolder) - 1;
    while (!shared.name.empty() && shared.name.back() == '\n') shared.name.pop_back();
  }
  return shared;
}

// Finds the protection of [address, address + bytes), if all of it is mapped and private.
// CUDA_ERROR_NOT_SUPPORTED: some of it is shared. If one shared mapping holds all of it, *shared is
// that mapping.
CUresult InspectRange(uint64_t address, uint64_t bytes, int* protection, SharedMapping* shared) {
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(fopen("/proc/self/maps", "re"), fclose);
  if (maps == nullptr) return CUDA_ERROR_UNKNOWN;
  uint64_t covered = address;
  *protection = -1;
  char line[4096 + 128];
  while (covered < address + bytes && fgets(line, sizeof(line), maps.get()) != nullptr) {
    uint64_t start, end;
    char permissions[5];
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &start, &end, permissions) != 3) continue;
    if (end <= covered) continue;
    if (start > covered) return CUDA_ERROR_INVALID_VALUE;
    if (permissions[3] == 's') {
      // A private copy in its place would separate the program from the processes that it shares
      // the memory with.
      if (start <= address && end >= address + bytes) *shared = ReadSharedMapping(line, start, end);
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    const int found = (permissions[0] == 'r' ? PROT_READ : 0) |
                      (permissions[1] == 'w' ? PROT_WRITE : 0) |
                      (permissions[2] == 'x' ? PROT_EXEC : 0);
    if ((found & PROT_READ) == 0) return CUDA_ERROR_INVALID_VALUE;
    if (*protection == -1) *protection = found;
    if (found != *protection) *protection |= found;
    covered = end;
  }
  return covered >= address + bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Copies [from, from + bytes) to `to` and moves that mapping over the range. Writes of other
// threads into the edge pages during that time are lost. So the edge pages come last, one by one.
bool CopyAndExchange(uint64_t from, std::byte* to, uint64_t bytes) {
  const auto exchange = [&](uint64_t offset, uint64_t length) {
    std::byte* const source = reinterpret_cast<std::byte*>(from + offset);
    memcpy(to + offset, source, length);
    return mremap(to + offset, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, source) != MAP_FAILED;
  };
  if (bytes <= 2 * kPageBytes) {
    for (uint64_t offset = 0; offset < bytes; offset += kPageBytes) {
      if (!exchange(offset, kPageBytes)) return false;
    }
    return true;
  }
  return exchange(kPageBytes, bytes - 2 * kPageBytes) && exchange(0, kPageBytes) &&
         exchange(bytes - kPageBytes, kPageBytes);
}

// Replaces the allocation's mapping with ordinary memory of this process alone, with the same
// contents.
bool MakeMappingPrivate(const Allocation& allocation) {
  if (allocation.mapping == 0) return true;
  void* mapped = mmap(nullptr, allocation.mapping_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  if (!CopyAndExchange(allocation.mapping, static_cast<std::byte*>(mapped),
                       allocation.mapping_bytes))
    return false;
  if ((allocation.protection & PROT_WRITE) == 0 && allocation.protection != 0) {
    mprotect(reinterpret_cast<void*>(allocation.mapping), allocation.mapping_bytes,
             allocation.protection);
  }
  return true;
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
                          const SharedMapping& shared) {
  const uint64_t first = start & ~kPageMask;
  const uint64_t end = (start + bytes + kPageMask) & ~kPageMask;
  const ContextId id = context.id.load(std::memory_order_acquire);
  const wire::cuMemHostRegister_v2 args{shared.begin,
                                        shared.end,
                                        shared.offset + (first - shared.begin),
                                        end - first,
                                        shared.device,
                                        shared.inode,
                                        FindDescriptor(shared),
                                        0};
  const ConstBuffer name{shared.name.data(), shared.name.size()};
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
  Allocation alias = allocation;
  alias.kind = MemoryKind::kRegisteredAlias;
  alias.address = allocation.gpu_address;
  pointers().Add(alias);
  return true;
}

}  // namespace

bool MapPinnedFile(uint32_t file, uint64_t address, uint64_t file_bytes) {
  const wire::cuMemHostAlloc_Reply named{address, file_bytes, file, 0};
  if (address % kPageBytes == 0 && file_bytes % kPageBytes == 0 &&
      address - session().pinned_base() < session().pinned_bytes() &&
      MapFile(named, address, PROT_READ | PROT_WRITE) != nullptr) {
    return true;
  }
  Log(LogLevel::kError, "cannot map pinned memory at %#" PRIx64 ": %s", address, strerror(errno));
  return false;
}

namespace {

using Block = PiecePool::Block;

CUresult MakeBlock(Context& context, uint64_t bytes, Block* block) {
  wire::cuMemHostAlloc_Reply file{};
  const CUresult result = MakeFile(context, bytes, &file);
  if (result != CUDA_SUCCESS) return result;
  *block = {file.address, file.file_bytes};
  if (MapPinnedFile(file.file, file.address, file.file_bytes)) return CUDA_SUCCESS;
  GiveBack(context, file.address);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// As with NVIDIA's driver, pinned and managed memory have no block in common.
struct HostPieces {
  PiecePool pinned{MakeBlock}, managed{MakeBlock};
};

HostPieces& host_pieces() {
  static HostPieces* const all = new HostPieces;
  return *all;
}

PiecePool& PiecesOf(MemoryKind kind) {
  return kind == MemoryKind::kManaged ? host_pieces().managed : host_pieces().pinned;
}

// The number of files of a session is limited. A program that has many large allocations gets the
// later ones as pieces, too, of blocks that grow with the memory it has.
constexpr uint32_t kOwnBlocks = 64;
constexpr uint64_t kBlocksAtLeast = 16;
// Of allocations that are no pieces. Relaxed: they only choose between the two ways.
std::atomic<uint32_t> own_blocks{0};
std::atomic<uint64_t> host_bytes{0};  // of all allocations

bool IsPiece(const Allocation& allocation) { return allocation.mapping == 0; }

void Count(const Allocation& allocation, int change) {
  own_blocks.fetch_add(IsPiece(allocation) ? 0 : change, std::memory_order_relaxed);
  host_bytes.fetch_add(change * allocation.bytes, std::memory_order_relaxed);
}

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
  const bool small = bytes <= PiecePool::kSmallBytes;
  const bool own = !small && own_blocks.load(std::memory_order_relaxed) < kOwnBlocks;
  CUresult result;
  if (own) {
    result = MakeBlock(context, bytes, &piece.block);
    piece.address = piece.block.address;
  } else {
    const uint64_t least = small ? PiecePool::kBlockBytes
                                 : host_bytes.load(std::memory_order_relaxed) / kBlocksAtLeast;
    result = PiecesOf(kind).Allocate(context, bytes, least, &piece);
    // There may be room for this piece alone.
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      result = PiecesOf(kind).Allocate(context, bytes, bytes, &piece);
  }
  if (result != CUDA_SUCCESS) return result;
  *address = AddHostMemory(context, kind, piece.address, bytes, flags, piece.block, !own);
  return CUDA_SUCCESS;
}

CUresult FreeHostBlockLater(void* address) {
  Allocation allocation;
  if (!pointers().Take(reinterpret_cast<uint64_t>(address), MemoryKind::kPinned, &allocation))
    return CUDA_ERROR_INVALID_VALUE;
  Count(allocation, -1);
  UnmapHostMemory(allocation);
  return session().Submit(Op::cuMemFreeHost, allocation.device, allocation.context,
                          wire::cuMemFreeHost{allocation.window});
}

CUresult FreeHostMemory(MemoryKind kind, uint64_t address) {
  Allocation allocation;
  if (!pointers().Take(address, kind, &allocation)) return CUDA_ERROR_INVALID_VALUE;
  Count(allocation, -1);
  if (IsPiece(allocation)) {
    // Earlier work may still use it.
    SynchronizeContexts();
    if (!PiecesOf(kind).Free(allocation.context, address, allocation.bytes))
      return session().sticky_error();
  }
  // Unmaps the memory before the daemon gives the address to another allocation. Work that still uses
  // the memory has the daemon's mapping.
  UnmapHostMemory(allocation);
  return session().Call(Op::cuMemFreeHost, allocation.device, allocation.context,
                        wire::cuMemFreeHost{allocation.window});
}

CUresult RegisterHostMemory(Context& context, void* address, uint64_t bytes, uint32_t flags) {
  const uint64_t start = reinterpret_cast<uint64_t>(address);
  const uint64_t first = start & ~kPageMask;
  const uint64_t end = (start + bytes + kPageMask) & ~kPageMask;
  if (start + bytes < start || end < start) return CUDA_ERROR_INVALID_VALUE;
  if (start - session().pinned_base() < session().pinned_bytes()) return CUDA_ERROR_INVALID_VALUE;
  if (pointers().OverlapsHostMemory(start, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  int protection;
  SharedMapping shared;
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
  wire::cuMemHostAlloc_Reply file{};
  result = MakeFile(context, end - first, &file);
  if (result != CUDA_SUCCESS) return result;
  auto* mapped = static_cast<std::byte*>(MapFile(file, 0, PROT_READ | PROT_WRITE));
  if (mapped == nullptr) {
    GiveBack(context, file.address);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Allocation allocation;
  allocation.kind = MemoryKind::kRegistered;
  allocation.device = context.device;
  allocation.context = context.id.load(std::memory_order_relaxed);
  allocation.context_handle = context.handle.load(std::memory_order_relaxed);
  allocation.address = allocation.host_address = start;
  allocation.gpu_address = file.address + (start - first);
  allocation.bytes = bytes;
  allocation.flags = flags;
  allocation.mapping = first;
  allocation.mapping_bytes = end - first;
  allocation.window = file.address;
  allocation.protection = protection;
  // Recorded before the exchange, so that two threads cannot exchange the same pages.
  if (!pointers().AddUnlessOverlapping(allocation)) {
    munmap(mapped, file.file_bytes);
    GiveBack(context, file.address);
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  const bool exchanged = CopyAndExchange(first, mapped, end - first);
  if (file.file_bytes > end - first)
    munmap(mapped + (end - first), file.file_bytes - (end - first));
  if (!exchanged) {
    Log(LogLevel::kError, "cannot exchange the pages of registered memory: %s", strerror(errno));
    pointers().Take(start, MemoryKind::kRegistered, &allocation);
    MakeMappingPrivate(allocation);
    GiveBack(context, file.address);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if ((protection & PROT_WRITE) == 0)
    mprotect(reinterpret_cast<void*>(first), end - first, protection);
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
  return session().Call(Op::cuMemFreeHost, allocation.device, allocation.context,
                        wire::cuMemFreeHost{allocation.window});
}

void UnmapHostMemory(const Allocation& allocation) {
  if (allocation.mapping == 0) return;
  if (allocation.kind != MemoryKind::kRegistered) {
    munmap(reinterpret_cast<void*>(allocation.mapping), allocation.mapping_bytes);
  } else if (!MakeMappingPrivate(allocation)) {
    Log(LogLevel::kError, "cannot make registered memory ordinary again: it stays shared");
  }
}

void ForgetMemoryOf(ContextId context) {
  for (const Allocation& allocation : pointers().TakeContext(context)) {
    if (allocation.kind != MemoryKind::kRegistered && !allocation.migrates) Count(allocation, -1);
    UnmapHostMemory(allocation);
  }
  host_pieces().pinned.Forget(context);
  host_pieces().managed.Forget(context);
}

void KeepRegisteredMemoryInChild() {
  pointers().ForEachInChild([](const Allocation& allocation) {
    if (allocation.kind == MemoryKind::kRegistered) MakeMappingPrivate(allocation);
  });
}

}  // namespace detshare::shim
