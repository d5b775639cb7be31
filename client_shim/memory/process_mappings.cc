#include "client_shim/memory/process_mappings.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <cinttypes>
#include <cstdlib>
#include <cstring>

namespace detshare::shim {
namespace {

constexpr size_t kMaxPath = 4096;

// From Linux's include/uapi/linux/fs.h, since 6.11.
struct ProcmapQuery {
  uint64_t size, query_flags, query_addr;
  uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
  uint32_t dev_major, dev_minor;
  uint32_t vma_name_size, build_id_size;
  uint64_t vma_name_addr, build_id_addr;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
constexpr uint64_t kReadable = 1, kWritable = 2, kExecutable = 4, kShared = 8, kCoveringOrNext = 16;

int Protection(bool read, bool write, bool execute) {
  return (read ? PROT_READ : 0) | (write ? PROT_WRITE : 0) | (execute ? PROT_EXEC : 0);
}

bool Ask(FILE* maps, uint64_t address, char* path, ProcmapQuery* query) {
  *query = {};
  query->size = sizeof(*query);
  query->query_flags = kCoveringOrNext;
  query->query_addr = address;
  query->vma_name_addr = reinterpret_cast<uint64_t>(path);
  query->vma_name_size = path == nullptr ? 0 : kMaxPath;
  return ioctl(fileno(maps), kProcmapQuery, query) == 0;
}

}  // namespace

ProcessMappings::ProcessMappings(Way way) : maps_(fopen("/proc/self/maps", "re"), fclose) {
  ProcmapQuery query;
  query_ = way == Way::kFastest && ok() &&
           Ask(maps_.get(), reinterpret_cast<uint64_t>(this), nullptr, &query);
}

bool ProcessMappings::Find(uint64_t address, ProcessMapping* found) {
  if (!ok()) return false;
  return query_ ? FindByQuery(address, found) : FindInText(address, found);
}

bool ProcessMappings::FindByQuery(uint64_t address, ProcessMapping* found) {
  ProcmapQuery query;
  char path[kMaxPath] = {};
  if (!Ask(maps_.get(), address, nullptr, &query)) return false;
  const bool shared = (query.vma_flags & kShared) != 0;
  if (shared && !Ask(maps_.get(), address, path, &query)) return false;
  *found = {query.vma_start,
            query.vma_end,
            Protection((query.vma_flags & kReadable) != 0, (query.vma_flags & kWritable) != 0,
                       (query.vma_flags & kExecutable) != 0),
            shared,
            query.vma_offset,
            makedev(query.dev_major, query.dev_minor),
            query.inode,
            std::string(path, strnlen(path, sizeof(path)))};
  return true;
}

bool ProcessMappings::FindInText(uint64_t address, ProcessMapping* found) {
  char line[kMaxPath + 128];
  while (last_.end <= address) {
    if (fgets(line, sizeof(line), maps_.get()) == nullptr) return false;
    // Not sscanf(), which takes long for many lines.
    char* rest;
    last_.begin = strtoull(line, &rest, 16);
    if (*rest != '-') continue;
    last_.end = strtoull(rest + 1, &rest, 16);
    if (last_.end <= address) continue;
    char permissions[5] = {};
    unsigned int major = 0, minor = 0;
    int path = 0;
    last_.offset = last_.inode = 0;
    sscanf(rest, " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", permissions, &last_.offset, &major,
           &minor, &last_.inode, &path);
    last_.protection =
        Protection(permissions[0] == 'r', permissions[1] == 'w', permissions[2] == 'x');
    last_.shared = permissions[3] == 's';
    last_.device = makedev(major, minor);
    last_.path = path != 0 && last_.shared ? rest + path : "";
    while (!last_.path.empty() && last_.path.back() == '\n') last_.path.pop_back();
  }
  *found = last_;
  return true;
}

}  // namespace detshare::shim
