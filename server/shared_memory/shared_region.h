// The files that a session shares with its client, and the daemon's mappings of them.
//
// Files are made with mode 0600, in a directory of the daemon's, and given to the peer's user, who
// may do with them what it likes: all mappings are guarded against truncation (sigbus_guard.h).
// Their space is allocated when they are made, so that a full file system is an error of the call
// and not a signal later; that of a session's staging area, which may be large and is often not
// used, comes in slices while its session is young.
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

namespace detshare {

struct Owner {
  uid_t uid = 0;
  gid_t gid = 0;
};

// A file of the session, mapped. The file stays until the session's directory is removed, or until
// Remove().
class MappedFile {
 public:
  // Makes `path` with `bytes` (whole pages) of zeros and maps it, at `address` when that is not 0:
  // nothing may be mapped there. ResourceExhausted when the file system or the address space is
  // full.
  // Of the space only the first `allocated` bytes are taken at once, and the file system must have
  // room for the rest.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Create(const std::string& path, uint64_t bytes,
                                                            uint64_t address, Owner owner,
                                                            uint64_t allocated = UINT64_MAX);
  // Maps a part of a file that is there already, at `address`, where nothing is mapped.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Adopt(int fd, uint64_t offset, uint64_t bytes,
                                                           uint64_t address);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  uint8_t* data() const;
  uint64_t size() const;
  // Takes the space of [offset, offset + bytes). ResourceExhausted when there is none.
  absl::Status Allocate(uint64_t offset, uint64_t bytes);
  // Removes the file's name; the mapping stays.
  void Remove();

 private:
  MappedFile();
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
  std::string path_;
};

// Sizes of the parts of the session file, in bytes and counts.
struct RegionSizes {
  uint64_t ring_bytes = 1 << 20;  // a power of two, at least 2 * kMaxRecordBytes
  uint32_t reply_count = 256;
  uint64_t output_bytes = 256 << 10;
  uint32_t fence_count = 32768;
  uint64_t staging_bytes = 16 << 20;  // whole pages
};

// The session file. The daemon's view of the layout is here; it never reads it back.
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
  // What the GPU must reach: fences and the beginning of the staging area from the start, the rest
  // of that when it is first used. Whole pages; a copy lies in one of them.
  std::span<uint8_t> device_part() const {
    return {file_->data() + fence_offset_, staging_offset_ + first_staging_ - fence_offset_};
  }
  std::span<uint8_t> late_part() const {
    return {file_->data() + staging_offset_ + first_staging_,
            file_->size() - staging_offset_ - first_staging_};
  }
  uint64_t first_staging() const { return first_staging_; }
  // Takes the space of the next slice of the file, which costs a fraction of a millisecond, until
  // complete().
  absl::Status AllocateSlice();
  bool complete() const { return allocated_ == file_->size(); }

  const RegionSizes& sizes() const { return sizes_; }
  uint64_t file_bytes() const { return file_->size(); }
  // Whether the client took pages of the file away.
  bool damaged() const { return guard_->tripped(); }

  // Writes a reply into a reply slot (below sizes().reply_count) and wakes its waiter. At most
  // kReplyDataBytes of data.
  void Reply(uint32_t slot, int result, std::span<const uint8_t> data);
  // Answers every slot that waits, and every later waiter sees `closed`. For the end of a session.
  void ReplyAll(int result);
  // Lets every waiter on a fence go on.
  void ForceFences();
  // Appends what a kernel printed. False when there is no room: the text is lost, as CUDA loses
  // what overflows its buffer. Calls must not overlap.
  bool Print(std::string_view text);

 private:
  SharedRegion() = default;

  RegionSizes sizes_;
  uint64_t ring_offset_ = 0, reply_offset_ = 0, output_offset_ = 0, fence_offset_ = 0,
           staging_offset_ = 0;
  uint64_t first_staging_ = 0;
  uint64_t allocated_ = 0;        // of the file
  uint64_t output_position_ = 0;  // bytes ever written
  std::unique_ptr<MappedFile> file_;
  std::unique_ptr<SigbusGuard> guard_;
};

// The pinned host memory of a session: files `pinned.<n>`, each mapped at a fixed address in the
// session's window. Freed files are kept for later allocations of the same size, with their
// registration, since taking one back drains the device.
class PinnedWindow {
 public:
  struct Limits {
    uint64_t bytes = uint64_t{64} << 30;        // in use and kept together
    uint64_t kept_bytes = uint64_t{512} << 20;  // in files that nobody uses
    uint32_t files = 1000;  // mappings are scarce: all sessions together have less than 65536
  };
  struct Allocation {
    uint64_t address = 0;
    uint64_t file_bytes = 0;
    uint32_t file = 0;
    bool fresh = false;  // has to be registered with the device
  };

  // `quota`: all files, in use or kept, are taken of it; null: of nothing.
  PinnedWindow(std::string directory, uint64_t base, uint64_t bytes, Owner owner,
               const Limits& limits, std::shared_ptr<Quota> quota = nullptr);

  // At least `bytes` (not 0). ResourceExhausted beyond the limits, the quota's error beyond that:
  // files that nobody uses may then make room.
  absl::StatusOr<Allocation> Allocate(uint64_t bytes);
  // Maps whole pages of somebody else's file instead, which is not kept when it is freed.
  absl::StatusOr<Allocation> Adopt(int fd, uint64_t offset, uint64_t bytes);
  // An allocation whose first byte is `address` and that is in use.
  const Allocation* Find(uint64_t address) const;
  // No work touches it any more. Returns the addresses of files that are dropped instead of kept;
  // the caller takes their registrations back and then calls Drop().
  std::vector<uint64_t> Free(uint64_t address);
  // The addresses of all files that nobody uses and that are kept no longer, as by Free().
  std::vector<uint64_t> FreeKept();
  // Unmaps a file and removes it. Its registration is gone.
  void Drop(uint64_t address);
  // All files, in use or kept.
  std::vector<uint64_t> All() const;

  uint64_t bytes_in_use() const { return in_use_; }
  uint64_t base() const { return base_; }
  uint64_t window_bytes() const { return bytes_; }
  bool damaged() const { return guard_.tripped(); }

 private:
  absl::StatusOr<QuotaCharge> Charge(uint64_t bytes);
  // Where `bytes` fit. ResourceExhausted beyond the limits.
  absl::StatusOr<uint64_t> FindPlace(uint64_t bytes) const;

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

// Makes `path` (its parents exist) with mode 0711: the daemon's own, so that no client can put a
// file of its own choice where the daemon will make one; clients reach in by names that they know.
// An existing one is an error.
absl::Status MakeSharedDirectory(const std::string& path);
// Removes `path` and everything in it, without following links. A path that does not exist is fine.
void RemoveTree(const std::string& path);

}  // namespace detshare
