// The files that a session shares with its client, and the daemon's mappings of them: the session
// file (SharedRegion) and pinned host memory (PinnedWindow).
//
// The daemon makes each file with mode 0600 in a directory of its own and gives it to the client's
// user. The client may truncate the file, so all mappings are guarded (sigbus_guard.h).
//
// The space of a file is allocated when the file is made, so that a full file system is an error of
// the call and not a signal later. A session's staging area may be large and is often not used, so
// its space is allocated in slices while the session is young.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/quota.h"
#include "proto/ring_abi.h"
#include "server/base/sigbus_guard.h"
#include "server/shared_memory/owner.h"

namespace detshare {

// A mapped file of the session. The file stays until the session's directory is removed, or until
// Remove(). One thread at a time uses it.
class MappedFile {
 public:
  // Makes `path` with `bytes` (whole pages) of zeros and maps it. If `address` is not 0, maps it
  // there; nothing may be mapped there before. Allocates the space of the first `allocated` bytes,
  // and checks that the file system has room for the rest. Returns ResourceExhausted if the file
  // system or the address space is full.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Create(const std::string& path, uint64_t bytes,
                                                            uint64_t address, Owner owner,
                                                            uint64_t allocated = UINT64_MAX);
  // Maps a part of an existing file at `address`, where nothing may be mapped. Does not close `fd`.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Adopt(int fd, uint64_t offset, uint64_t bytes,
                                                           uint64_t address);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  uint8_t* data() const;
  uint64_t size() const;
  // Allocates the space of the next bytes, from `offset`, of a file whose space is not all allocated.
  // Returns ResourceExhausted if there is none, and NotFound if the file was removed.
  absl::Status Allocate(uint64_t offset, uint64_t bytes);
  // Removes the file's name. The mapping stays.
  void Remove();

 private:
  MappedFile();
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
  std::string path_;
  int unfinished_ = -1;  // the file, while some of its space is not allocated
};

// Sizes of the parts of the session file, in bytes and counts.
struct RegionSizes {
  uint64_t ring_bytes = 1 << 20;  // a power of two, at least 2 * kMaxRecordBytes
  uint32_t reply_count = 256;
  uint64_t output_bytes = 4 << 20;  // takes memory as text comes
  uint32_t fence_count = 32768;
  uint64_t staging_bytes = 16 << 20;  // whole pages
};

// The session file (proto/ring_abi.h). This object holds the daemon's copy of the layout; the
// daemon never reads the layout back from the file.
class SharedRegion {
 public:
  static absl::StatusOr<std::unique_ptr<SharedRegion>> Create(const std::string& path,
                                                              const RegionSizes& sizes,
                                                              Owner owner);

  SessionHeader* header() const { return reinterpret_cast<SessionHeader*>(file_->data()); }
  uint8_t* ring() const { return file_->data() + ring_offset_; }
  ReplySlot* replies() const { return reinterpret_cast<ReplySlot*>(file_->data() + reply_offset_); }
  Fence* fences() const { return reinterpret_cast<Fence*>(file_->data() + fence_offset_); }
  uint8_t* staging() const { return file_->data() + staging_offset_; }
  // The memory that the GPU must reach. device_part() is fences and the first part of the staging
  // area, which the GPU must reach from the start. late_part() is the rest of the staging area,
  // which the GPU must reach from its first use. Both are whole pages. A staged copy lies in one of
  // the two parts.
  std::span<uint8_t> device_part() const {
    return {file_->data() + fence_offset_, staging_offset_ + first_staging_ - fence_offset_};
  }
  std::span<uint8_t> late_part() const {
    return {file_->data() + staging_offset_ + first_staging_,
            file_->size() - staging_offset_ - first_staging_};
  }
  uint64_t first_staging() const { return first_staging_; }
  // Allocates the space of the next slice of the file. Takes a fraction of a millisecond. Called
  // until complete(). Errors as MappedFile::Allocate().
  absl::Status AllocateSlice();
  bool complete() const { return allocated_ == file_->size(); }

  const RegionSizes& sizes() const { return sizes_; }
  uint64_t file_bytes() const { return file_->size(); }
  // Returns whether the client took pages of the file away.
  bool damaged() const { return guard_->tripped(); }

  // Writes a reply into reply slot `slot` (below sizes().reply_count) and wakes its waiter. The slot
  // gets the size of `data`, and at most kReplyDataBytes of it.
  void Reply(uint32_t slot, int result, std::span<const uint8_t> data);
  // How many replies Reply() has written.
  uint64_t replies_sent() const { return replies_sent_; }
  // Replies with `result` to every slot that waits, and tells later waiters that the session is
  // closed. Called at the end of a session.
  void ReplyAll(int result);
  // Lets every waiter on a fence go on.
  void ForceFences();
  // Appends a piece of text for the program's standard output, or with kTextIsError for its standard
  // error. Returns false if there is no room: the text is lost, as CUDA loses what overflows its
  // buffer. Calls must not overlap.
  bool Print(std::string_view text, uint32_t kind = 0);

 private:
  SharedRegion() = default;

  RegionSizes sizes_;
  uint64_t ring_offset_ = 0, reply_offset_ = 0, output_offset_ = 0, fence_offset_ = 0,
           staging_offset_ = 0;
  uint64_t first_staging_ = 0;
  uint64_t allocated_ = 0;        // bytes of the file whose space is allocated
  uint64_t output_position_ = 0;  // bytes ever written to the output ring
  uint64_t replies_sent_ = 0;
  std::unique_ptr<MappedFile> file_;
  std::unique_ptr<SigbusGuard> guard_;
};

// The pinned host memory of a session: files `pinned.<n>`, each mapped at a fixed address in the
// session's window. One thread at a time uses it. Freed files are kept, with their registration,
// for later allocations of the same size, because unregistering memory drains the device.
class PinnedWindow {
 public:
  struct Limits {
    // Files in use and kept files together. The window is a limit, too.
    uint64_t bytes = UINT64_MAX;
    uint64_t kept_bytes = uint64_t{512} << 20;  // files kept for later allocations
    // The number of mappings of a process is limited: all sessions together have less than 65536.
    uint32_t files = 1000;
  };
  struct Allocation {
    uint64_t address = 0;
    uint64_t file_bytes = 0;
    uint32_t file = 0;
    bool fresh = false;  // the caller must register it with the device
  };

  // Each file, in use or kept, takes its bytes of `quota`. null: there is no quota.
  PinnedWindow(std::string directory, uint64_t base, uint64_t bytes, Owner owner,
               const Limits& limits, std::shared_ptr<Quota> quota = nullptr);

  // Allocates at least `bytes` (not 0). Returns ResourceExhausted beyond the window's limits, and
  // the quota's error beyond the quota. After the latter, dropping kept files (FreeKept()) may make
  // room.
  absl::StatusOr<Allocation> Allocate(uint64_t bytes);
  // Maps whole pages of another file, such as a client's, instead: at `wanted` if that is a place in the
  // window where nothing else is, otherwise anywhere in it. The file is not kept when it is freed. Does
  // not close `fd`.
  absl::StatusOr<Allocation> Adopt(int fd, uint64_t offset, uint64_t bytes, uint64_t wanted);
  // Returns the allocation in use whose first byte is `address`, or null.
  const Allocation* Find(uint64_t address) const;
  // Frees the allocation at `address`. By then no work touches it. Returns the addresses of files
  // that are dropped instead of kept. The caller unregisters them and then calls Drop() for each.
  std::vector<uint64_t> Free(uint64_t address);
  // Gives up all kept files and returns their addresses. The caller treats them as those of Free().
  std::vector<uint64_t> FreeKept();
  // Unmaps a file and removes it. It is unregistered by then.
  void Drop(uint64_t address);
  // Returns the addresses of all files, in use or kept.
  std::vector<uint64_t> All() const;

  uint64_t bytes_in_use() const { return in_use_; }
  uint64_t base() const { return base_; }
  uint64_t window_bytes() const { return bytes_; }
  bool damaged() const { return guard_.tripped(); }

 private:
  absl::StatusOr<QuotaCharge> Charge(uint64_t bytes);
  // Returns an address where `bytes` fit. ResourceExhausted beyond the limits.
  absl::StatusOr<uint64_t> FindPlace(uint64_t bytes) const;
  // Whether whole pages from `address` on are in the window, and no file is there.
  bool IsFree(uint64_t address, uint64_t bytes) const;

  struct File {
    Allocation allocation;
    bool used = false;
    bool adopted = false;
    QuotaCharge charge;
    std::unique_ptr<MappedFile> mapping;
  };

  const std::string directory_;
  const uint64_t base_, bytes_;
  const Owner owner_;
  const Limits limits_;
  const std::shared_ptr<Quota> quota_;
  std::map<uint64_t, File> files_;          // by address
  std::multimap<uint64_t, uint64_t> kept_;  // file_bytes -> address
  uint64_t in_use_ = 0, kept_bytes_ = 0;
  uint32_t next_file_ = 0;
  SigbusGuard guard_;
};

// Makes the directory `path` with mode 0711; its parents exist. The daemon owns it, so that no
// client can put a file where the daemon will make one. Clients reach files in it by names that
// they know. An existing directory is an error.
absl::Status MakeSharedDirectory(const std::string& path);

}  // namespace detshare
