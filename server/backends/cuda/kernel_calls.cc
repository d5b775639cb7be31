// The calls of the kernel that everything in the process makes, libcuda included. The dynamic linker
// finds these functions before the C library's.
#include <dlfcn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "server/backends/cuda/sm_error_states.h"
#include "server/backends/cuda/time_slices.h"
#include "server/backends/cuda/uvm_sharing.h"

namespace {

using Ioctl = int (*)(int, unsigned long, void*);

Ioctl NextIoctl() {
  static const auto next = reinterpret_cast<Ioctl>(dlsym(RTLD_NEXT, "ioctl"));
  return next;
}

}  // namespace

extern "C" int ioctl(int descriptor, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (detshare::cuda::SkipClearOfErrorStates(request, argument)) return 0;
  const bool asked = detshare::cuda::AskToShare(request, argument);
  int result = NextIoctl()(descriptor, request, argument);
  if (result == 0) {
    const int before = errno;
    detshare::cuda::NoteChannelGroup(descriptor, request, argument);
    if (detshare::cuda::NoteSharing(descriptor, argument, asked))
      result = NextIoctl()(descriptor, request, argument);
    errno = before;
  }
  return result;
}

// A sanitizer needs the calls of this function itself. It then has no managed memory to share, since
// libcuda chooses the addresses.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" void* mmap(void* address, size_t bytes, int protection, int flags, int descriptor,
                      off_t offset) noexcept {
  if (address == nullptr && protection == PROT_NONE && (flags & MAP_ANONYMOUS) != 0) {
    if (const uint64_t chosen = detshare::cuda::TakeAddressForDriver(); chosen != 0) {
      address = reinterpret_cast<void*>(chosen);
      flags |= MAP_FIXED_NOREPLACE;
    }
  }
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, descriptor, offset));
}
#endif
