#include "server/shared_memory/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/fresh_address.h"
#include "policy/status_macros.h"
#include "server/base/errno_text.h"
#include "server/base/futex.h"
#include "server/shared_memory/access_list.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace detshare {
namespace {

namespace ipc = boost::interprocess;

constexpr uint64_t kFirstStagingGranule = 64 << 10;
constexpr uint64_t kAllocatedSlice = 2 << 20;

constexpr uint64_t RoundUp(uint64_t value, uint64_t granule) {
  return (value + granule - 1) / granule * granule;
}

absl::Status ErrnoStatus(int error, const std::string& what) {
  const std::string text = absl::StrCat(what, ": ", ErrnoText(error));
  if (error == ENOSPC || error == ENOMEM || error == EDQUOT || error == EMFILE || error == ENFILE) {
    return absl::ResourceExhaustedError(text);
  }
  return absl::InternalError(text);
}

// Makes a file of a session. Returns -1 and sets errno on failure. The directory of a session's files
// may be shared with a container in which the client is root. There the client can put symbolic
// links in place of the daemon's directories. So this follows no link at the last two names of the
// path.
int CreateIn(const std::string& path) {
  const size_t slash = path.rfind('/');
  const int directory =
      open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return -1;
  const int fd = openat(directory, path.c_str() + slash + 1,
                        O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  const int error = errno;
  close(directory);
  errno = error;
  return fd;
}

// Gives the file to its user, or lets the user use it if this process may give nothing away.
bool Give(int fd, Owner owner) {
  if (owner.uid == geteuid() || fchown(fd, owner.uid, owner.gid) == 0) return true;
  return errno == EPERM && LetUserUse(fd, owner.uid);
}

void RemoveIn(const std::string& path) {
  const size_t slash = path.rfind('/');
  const int directory =
      open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return;
  unlinkat(directory, path.c_str() + slash + 1, 0);
  close(directory);
}

// An open file that mapped_region can map. A path to it would be checked again, and the file may be
// one that this process could not open itself.
struct OpenFile {
  int fd;
  ipc::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
};

ipc::mapped_region MapAnywhere(OpenFile file, uint64_t bytes) {
  try {
    return ipc::mapped_region(file, ipc::read_write, 0, bytes, FreshAddress(bytes));
  } catch (const ipc::interprocess_exception&) {
    // Another mapping is at the address.
    return ipc::mapped_region(file, ipc::read_write, 0, bytes);
  }
}

}  // namespace

struct MappedFile::Mapping {
  ipc::mapped_region region;
};

MappedFile::MappedFile() = default;
MappedFile::~MappedFile() {
  if (unfinished_ >= 0) close(unfinished_);
}

uint8_t* MappedFile::data() const { return static_cast<uint8_t*>(mapping_->region.get_address()); }
uint64_t MappedFile::size() const { return mapping_->region.get_size(); }
void MappedFile::Remove() {
  if (!path_.empty()) RemoveIn(path_);
}

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Create(const std::string& path,
                                                               uint64_t bytes, uint64_t address,
                                                               Owner owner, uint64_t allocated) {
  const int fd = CreateIn(path);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot create ", path));
  absl::Status status;
  int error = posix_fallocate(fd, 0, static_cast<off_t>(std::min(bytes, allocated)));
  if (error == 0 && allocated < bytes) {
    struct statvfs space;
    if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 || fstatvfs(fd, &space) != 0) {
      error = errno;
    } else if (space.f_bavail * space.f_frsize < bytes - allocated) {
      error = ENOSPC;
    }
  }
  if (error != 0)
    status = ErrnoStatus(error, absl::StrCat("no space for ", bytes, " bytes of ", path));
  std::unique_ptr<MappedFile> mapped(new MappedFile());
  mapped->path_ = path;
  if (status.ok()) {
    try {
      ipc::mapped_region region =
          address == 0 ? MapAnywhere(OpenFile{fd}, bytes)
                       : ipc::mapped_region(OpenFile{fd}, ipc::read_write, 0, bytes,
                                            reinterpret_cast<void*>(address), MAP_FIXED_NOREPLACE);
      // The descriptor need not stay open: a session may have many files.
      mapped->mapping_.reset(new Mapping{std::move(region)});
    } catch (const ipc::interprocess_exception& error) {
      status = absl::ResourceExhaustedError(absl::StrCat("cannot map ", path, ": ", error.what()));
    }
  }
  if (status.ok() && !Give(fd, owner)) {
    status = ErrnoStatus(errno, absl::StrCat("cannot give ", path, " to user ", owner.uid));
  }
  if (!status.ok()) {
    close(fd);
    RemoveIn(path);
    return status;
  }
  // The file may be the client's by now, so it may not be possible to open it again.
  mapped->unfinished_ = allocated < bytes ? fd : -1;
  if (mapped->unfinished_ < 0) close(fd);
  return mapped;
}

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Adopt(int fd, uint64_t offset,
                                                              uint64_t bytes, uint64_t address) {
  std::unique_ptr<MappedFile> mapped(new MappedFile());
  try {
    ipc::mapped_region region(OpenFile{fd}, ipc::read_write, static_cast<ipc::offset_t>(offset),
                              bytes, reinterpret_cast<void*>(address), MAP_FIXED_NOREPLACE);
    mapped->mapping_.reset(new Mapping{std::move(region)});
  } catch (const ipc::interprocess_exception& error) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map a file: ", error.what()));
  }
  return mapped;
}

absl::Status MappedFile::Allocate(uint64_t offset, uint64_t bytes) {
  struct stat file {};
  if (fstat(unfinished_, &file) != 0 || file.st_nlink == 0)
    return absl::NotFoundError(absl::StrCat(path_, " was removed"));
  const int error =
      posix_fallocate(unfinished_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (error != 0)
    return ErrnoStatus(error, absl::StrCat("no space for ", bytes, " more bytes of ", path_));
  if (offset + bytes == size()) close(std::exchange(unfinished_, -1));
  return absl::OkStatus();
}

// ---- the session file

absl::StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::Create(const std::string& path,
                                                                   const RegionSizes& sizes,
                                                                   Owner owner) {
  std::unique_ptr<SharedRegion> region(new SharedRegion());
  region->sizes_ = sizes;
  region->ring_offset_ = kPageBytes;
  region->reply_offset_ = RoundUp(region->ring_offset_ + sizes.ring_bytes, kPageBytes);
  region->output_offset_ =
      RoundUp(region->reply_offset_ + sizes.reply_count * sizeof(ReplySlot), kPageBytes);
  region->fence_offset_ = RoundUp(region->output_offset_ + sizes.output_bytes, kPageBytes);
  region->staging_offset_ =
      RoundUp(region->fence_offset_ + sizes.fence_count * sizeof(Fence), kPageBytes);
  const uint64_t bytes = RoundUp(region->staging_offset_ + sizes.staging_bytes, kPageBytes);

  // The shim cuts the area into small chunks and, behind them, large ones. It computes the same
  // boundary.
  region->first_staging_ = std::min(
      sizes.staging_bytes,
      std::clamp(sizes.staging_bytes / 4 / kFirstStagingGranule, uint64_t{1}, uint64_t{64}) *
          kFirstStagingGranule);
  region->allocated_ = std::min(region->staging_offset_ + region->first_staging_, bytes);
  auto file = MappedFile::Create(path, bytes, 0, owner, region->allocated_);
  if (!file.ok()) return file.status();
  region->file_ = *std::move(file);
  region->guard_ = std::make_unique<SigbusGuard>(region->file_->data(), bytes);
  if (!region->guard_->active()) return absl::ResourceExhaustedError("too many guarded mappings");

  SessionHeader* header = region->header();
  header->abi_version = kAbiVersion;
  header->header_bytes = sizeof(SessionHeader);
  header->file_bytes = bytes;
  header->ring_offset = region->ring_offset_;
  header->ring_bytes = sizes.ring_bytes;
  header->reply_offset = region->reply_offset_;
  header->output_offset = region->output_offset_;
  header->output_bytes = sizes.output_bytes;
  header->fence_offset = region->fence_offset_;
  header->staging_offset = region->staging_offset_;
  header->staging_bytes = sizes.staging_bytes;
  header->reply_count = sizes.reply_count;
  header->fence_count = sizes.fence_count;
  header->magic = kSessionMagic;
  return region;
}

absl::Status SharedRegion::AllocateSlice() {
  const uint64_t bytes = std::min(kAllocatedSlice, file_->size() - allocated_);
  absl::Status allocated = file_->Allocate(allocated_, bytes);
  if (allocated.ok()) allocated_ += bytes;
  return allocated;
}

void SharedRegion::Reply(uint32_t slot, int result, std::span<const uint8_t> data) {
  ReplySlot& reply = replies()[slot];
  const size_t held = std::min<size_t>(data.size(), kReplyDataBytes);
  if (held != 0) std::memcpy(reply.data, data.data(), held);
  reply.result = result;
  reply.bytes = static_cast<uint32_t>(data.size());
  // Publishes result and data to the client's thread.
  reply.state.store(kReplyDone, std::memory_order_release);
  // Either the waiter sees kReplyDone before it sleeps, or this thread sees that it waits.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (reply.waiting.exchange(0, std::memory_order_relaxed) != 0) FutexWake(&reply.state);
  ++replies_sent_;
}

void SharedRegion::ReplyAll(int result) {
  for (uint32_t slot = 0; slot < sizes_.reply_count; ++slot) {
    if (replies()[slot].state.load(std::memory_order_acquire) == kReplyPending)
      Reply(slot, result, {});
  }
}

void SharedRegion::ForceFences() {
  for (uint32_t i = 0; i < sizes_.fence_count; ++i)
    fences()[i].store(UINT64_MAX, std::memory_order_release);
}

bool SharedRegion::Print(std::string_view text, uint32_t kind) {
  SessionHeader* const h = header();
  uint8_t* const ring = file_->data() + output_offset_;
  const uint64_t size = sizes_.output_bytes;
  // Acquire: the client has finished reading up to the position that it stores. The daemon believes
  // nothing more of that position and checks it.
  const uint64_t unread = output_position_ - h->output_head.load(std::memory_order_acquire);
  const auto word = static_cast<uint32_t>(text.size()) | kind;
  if (unread > size || size - unread < sizeof(word) ||
      text.size() > std::min<uint64_t>(size - unread - sizeof(word), kTextIsError - 1))
    return false;
  const auto append = [&](const void* data, uint64_t bytes) {
    const uint64_t offset = output_position_ % size;
    const uint64_t first = std::min(bytes, size - offset);
    std::memcpy(ring + offset, data, first);
    std::memcpy(ring, static_cast<const char*>(data) + first, bytes - first);
    output_position_ += bytes;
  };
  append(&word, sizeof(word));
  append(text.data(), text.size());
  // Publishes the text to the client.
  h->output_tail.store(output_position_, std::memory_order_release);
  return true;
}

// ---- pinned memory

PinnedWindow::PinnedWindow(std::string directory, uint64_t base, uint64_t bytes, Owner owner,
                           const Limits& limits, std::shared_ptr<Quota> quota)
    : directory_(std::move(directory)),
      base_(base),
      bytes_(bytes),
      owner_(owner),
      limits_{std::min(limits.bytes, bytes), limits.kept_bytes, limits.files},
      quota_(std::move(quota)),
      guard_(reinterpret_cast<const void*>(base), bytes) {}

absl::StatusOr<PinnedWindow::Allocation> PinnedWindow::Allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > limits_.bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes of pinned memory at once"));
  }
  const uint64_t file_bytes = RoundUp(bytes, kPageBytes);
  if (auto kept = kept_.find(file_bytes); kept != kept_.end()) {
    File& file = files_.at(kept->second);
    kept_.erase(kept);
    kept_bytes_ -= file_bytes;
    in_use_ += file_bytes;
    file.used = true;
    Allocation allocation = file.allocation;
    allocation.fresh = false;
    return allocation;
  }
  DETSHARE_ASSIGN_OR_RETURN(const uint64_t address, FindPlace(file_bytes));
  DETSHARE_ASSIGN_OR_RETURN(QuotaCharge charge, Charge(file_bytes));

  File file;
  file.charge = std::move(charge);
  file.allocation = {address, file_bytes, next_file_, true};
  auto mapping = MappedFile::Create(absl::StrCat(directory_, "/pinned.", next_file_), file_bytes,
                                    address, owner_);
  if (!mapping.ok()) return mapping.status();
  ++next_file_;
  file.mapping = *std::move(mapping);
  file.used = true;
  in_use_ += file_bytes;
  const Allocation allocation = file.allocation;
  files_.emplace(address, std::move(file));
  return allocation;
}

absl::StatusOr<QuotaCharge> PinnedWindow::Charge(uint64_t bytes) {
  if (kept_.empty()) return Quota::Take(quota_, bytes);
  std::optional<QuotaCharge> charge = Quota::TryTake(quota_, bytes);
  if (!charge.has_value())
    return absl::ResourceExhaustedError("files that are kept for reuse take the room");
  return *std::move(charge);
}

absl::StatusOr<uint64_t> PinnedWindow::FindPlace(uint64_t bytes) const {
  if (bytes > limits_.bytes || in_use_ + kept_bytes_ + bytes > limits_.bytes ||
      files_.size() >= limits_.files || !guard_.active()) {
    return absl::ResourceExhaustedError(absl::StrCat("the session's pinned memory is limited to ",
                                                     limits_.bytes, " bytes and ", limits_.files,
                                                     " allocations"));
  }
  // First fit is deterministic: the same program gets the same addresses.
  uint64_t address = base_;
  for (const auto& [begin, file] : files_) {
    if (begin - address >= bytes) break;
    address = begin + file.allocation.file_bytes;
  }
  if (base_ + bytes_ - address < bytes)
    return absl::ResourceExhaustedError("the pinned window is full");
  return address;
}

bool PinnedWindow::IsFree(uint64_t address, uint64_t bytes) const {
  if (address % kPageBytes != 0 || bytes > bytes_ || address - base_ > bytes_ - bytes) return false;
  const auto next = files_.upper_bound(address);
  if (next != files_.end() && next->first - address < bytes) return false;
  if (next == files_.begin()) return true;
  const auto& [begin, file] = *std::prev(next);
  return address - begin >= file.allocation.file_bytes;
}

absl::StatusOr<PinnedWindow::Allocation> PinnedWindow::Adopt(int fd, uint64_t offset,
                                                             uint64_t bytes, uint64_t wanted) {
  DETSHARE_ASSIGN_OR_RETURN(uint64_t address, FindPlace(bytes));
  if (IsFree(wanted, bytes)) address = wanted;
  DETSHARE_ASSIGN_OR_RETURN(QuotaCharge charge, Charge(bytes));
  auto mapping = MappedFile::Adopt(fd, offset, bytes, address);
  if (!mapping.ok()) return mapping.status();
  File file;
  file.charge = std::move(charge);
  file.allocation = {address, bytes, 0, true};
  file.mapping = *std::move(mapping);
  file.used = file.adopted = true;
  in_use_ += bytes;
  const Allocation allocation = file.allocation;
  files_.emplace(address, std::move(file));
  return allocation;
}

const PinnedWindow::Allocation* PinnedWindow::Find(uint64_t address) const {
  auto found = files_.find(address);
  return found != files_.end() && found->second.used ? &found->second.allocation : nullptr;
}

std::vector<uint64_t> PinnedWindow::Free(uint64_t address) {
  std::vector<uint64_t> dropped;
  auto found = files_.find(address);
  if (found == files_.end() || !found->second.used) return dropped;
  File& file = found->second;
  file.used = false;
  in_use_ -= file.allocation.file_bytes;
  if (file.adopted || file.allocation.file_bytes > limits_.kept_bytes) {
    dropped.push_back(address);
    return dropped;
  }
  kept_.emplace(file.allocation.file_bytes, address);
  kept_bytes_ += file.allocation.file_bytes;
  // Drops the largest files first, because they free most memory for one drain of the device.
  while (kept_bytes_ > limits_.kept_bytes) {
    auto largest = std::prev(kept_.end());
    dropped.push_back(largest->second);
    kept_bytes_ -= largest->first;
    kept_.erase(largest);
  }
  return dropped;
}

std::vector<uint64_t> PinnedWindow::FreeKept() {
  std::vector<uint64_t> dropped;
  for (const auto& [bytes, address] : kept_) dropped.push_back(address);
  kept_.clear();
  kept_bytes_ = 0;
  return dropped;
}

void PinnedWindow::Drop(uint64_t address) {
  auto found = files_.find(address);
  if (found == files_.end()) return;
  if (found->second.used) in_use_ -= found->second.allocation.file_bytes;
  found->second.mapping->Remove();
  files_.erase(found);
}

std::vector<uint64_t> PinnedWindow::All() const {
  std::vector<uint64_t> addresses;
  for (const auto& [address, file] : files_) addresses.push_back(address);
  return addresses;
}

// ---- directories

absl::Status MakeSharedDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0711) != 0)
    return ErrnoStatus(errno, absl::StrCat("cannot create ", path));
  // Sets the mode in spite of the umask, and not through a link that has been put in the
  // directory's place.
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const int error = fd < 0 || fchmod(fd, 0711) != 0 ? errno : 0;
  if (fd >= 0) close(fd);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("cannot set the mode of ", path));
  return absl::OkStatus();
}

}  // namespace detshare
