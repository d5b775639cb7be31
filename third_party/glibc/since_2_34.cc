// Functions of glibc that began after 2.34, for shipped programs and libraries. libstdc++'s and
// libgcc's archives call them, and nothing else that is newer, so with these copies they run with
// glibc 2.34, which RHEL 9 and Amazon Linux 2023 have. Each has glibc's contract, as far as the
// shipped code depends on it.
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

// ---- 2.35

namespace {

struct Search {
  uintptr_t address;
  struct dl_find_object* result;
};

int LooksInside(struct dl_phdr_info* object, size_t, void* argument) {
  Search& search = *static_cast<Search*>(argument);
  uintptr_t begin = UINTPTR_MAX, end = 0;
  const ElfW(Phdr)* frames = nullptr;
  bool inside = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type == PT_GNU_EH_FRAME) frames = &part;
    if (part.p_type != PT_LOAD) continue;
    const uintptr_t first = object->dlpi_addr + part.p_vaddr, last = first + part.p_memsz;
    if (first < begin) begin = first;
    if (last > end) end = last;
    inside |= search.address >= first && search.address < last;
  }
  if (!inside || frames == nullptr) return 0;
  search.result->dlfo_flags = 0;
  search.result->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.result->dlfo_map_end = reinterpret_cast<void*>(end);
  search.result->dlfo_link_map = nullptr;
  search.result->dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + frames->p_vaddr);
  return 1;
}

}  // namespace

// libgcc's unwinder finds the tables of exceptions with it. It reads no other fields.
extern "C" __attribute__((visibility("hidden"))) int _dl_find_object(
    void* address, struct dl_find_object* result) noexcept {
  Search search{reinterpret_cast<uintptr_t>(address), result};
  return dl_iterate_phdr(LooksInside, &search) == 1 ? 0 : -1;
}

// ---- 2.36: libstdc++ calls it for std::random_device.

extern "C" uint32_t arc4random() noexcept {
  uint32_t value = 0;
  // Four bytes are never split. The call fails with EINTR when a signal arrives before the kernel
  // has entropy.
  while (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
    if (errno != EINTR) abort();  // as glibc's does: there is no other trustworthy source
  }
  return value;
}
