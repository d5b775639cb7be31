#include "client_shim/memory/page_exchange.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client_shim/base/signal_mask.h"
#include "proto/ring_abi.h"

namespace detshare::shim {
namespace {

constexpr uint64_t kStackBytes = 64 << 10;

struct Exchange {
  uint64_t from;
  std::byte* to;
  uint64_t bytes;
  int error = 0;
};

// A system call that leaves errno alone, which may be in a page that is being exchanged. Returns a
// negative errno if the call fails.
long Call(long number, long a, long b = 0, long c = 0, long d = 0, long e = 0) {
  long result;
  register long fourth asm("r10") = d;
  register long fifth asm("r8") = e;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
               : "rcx", "r11", "memory");
  return result;
}

// Stops writes into pages until they are exchanged: who writes waits in the kernel (userfaultfd(2)). The
// calling thread must not write there itself. Without privileges, writes by system calls do not wait, and
// fail with EFAULT. Where the kernel refuses all this, writes go on, and may be lost.
class WritesStopped {
 public:
  WritesStopped(uint64_t from, uint64_t bytes) {
    fd_ = Call(SYS_userfaultfd, O_CLOEXEC);
    if (fd_ < 0) fd_ = Call(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (fd_ < 0) return;
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    uffdio_register pages{.range = {from, bytes}, .mode = UFFDIO_REGISTER_MODE_WP, .ioctls = 0};
    if (Control(UFFDIO_API, &api) != 0 || Control(UFFDIO_REGISTER, &pages) != 0) return;
    // Only pages that are there can be protected.
    for (uint64_t at = from; at < from + bytes; at += kPageBytes)
      static_cast<void>(*reinterpret_cast<volatile const char*>(at));
    uffdio_writeprotect protect{.range = {from, bytes}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    Control(UFFDIO_WRITEPROTECT, &protect);
  }
  // Lets those who wait go on.
  ~WritesStopped() {
    if (fd_ >= 0) Call(SYS_close, fd_);
  }
  WritesStopped(const WritesStopped&) = delete;
  WritesStopped& operator=(const WritesStopped&) = delete;

 private:
  long Control(unsigned long request, void* argument) {
    return Call(SYS_ioctl, fd_, static_cast<long>(request), reinterpret_cast<long>(argument));
  }
  long fd_;
};

// Returns 0 or an errno. Writes only its own frame and those of what it calls between the copy of a page
// and its exchange.
int Carry(uint64_t from, std::byte* to, uint64_t bytes) {
  struct Part {
    uint64_t offset, bytes;
  };
  const Part middle{kPageBytes, bytes - std::min<uint64_t>(bytes, 2 * kPageBytes)},
      first{0, kPageBytes}, last{bytes - kPageBytes, bytes > kPageBytes ? kPageBytes : 0};
  bool exchanged = true;
  int error = 0;
  for (const Part& part : {middle, first, last}) {
    if (part.bytes == 0) continue;
    if (exchanged) {
      void* const pages = reinterpret_cast<void*>(from + part.offset);
      memcpy(to + part.offset, pages, part.bytes);
      const long moved = Call(SYS_mremap, reinterpret_cast<long>(to + part.offset),
                              static_cast<long>(part.bytes), static_cast<long>(part.bytes),
                              MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<long>(pages));
      exchanged = moved == reinterpret_cast<long>(pages);
      error = static_cast<int>(-moved);
    }
    if (!exchanged) {
      Call(SYS_munmap, reinterpret_cast<long>(to + part.offset), static_cast<long>(part.bytes));
    }
  }
  return exchanged ? 0 : error;
}

// Whether the range may hold frames that Carry() would write on this stack.
bool HoldsRunningFrames(uint64_t from, uint64_t bytes) {
  const uint64_t frame = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  return from < frame + kPageBytes && from + bytes > frame - kStackBytes;
}

// makecontext(3) passes only ints.
void CarryOnOtherStack(unsigned int high, unsigned int low) {
  auto* const exchange = reinterpret_cast<Exchange*>(uint64_t{high} << 32 | low);
  const Exchange copy = *exchange;
  const int error = Carry(copy.from, copy.to, copy.bytes);
  exchange->error = error;  // after the exchange, so it is not lost
}

}  // namespace

bool CopyAndExchange(uint64_t from, std::byte* to, uint64_t bytes) {
  // A handler could write to the pages, which would wait for ever or be lost. It would also run on the
  // other stack, which is small.
  const SignalsBlocked while_exchanging;
  if (!HoldsRunningFrames(from, bytes)) {
    int error;
    {
      const WritesStopped stopped(from, bytes);
      error = Carry(from, to, bytes);
    }
    if (error != 0) errno = error;
    return error == 0;
  }
  // Writes are not stopped: this thread's own, and the kernel's into what it keeps at the end of a
  // stack, would not come to an end.
  Exchange exchange{from, to, bytes};
  ucontext_t here, there;
  void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED || getcontext(&there) != 0) {
    const int error = errno;
    if (stack != MAP_FAILED) munmap(stack, kStackBytes);
    munmap(to, bytes);
    errno = error;
    return false;
  }
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = kStackBytes;
  there.uc_link = &here;
  const uint64_t argument = reinterpret_cast<uint64_t>(&exchange);
  makecontext(&there, reinterpret_cast<void (*)()>(CarryOnOtherStack), 2,
              static_cast<unsigned int>(argument >> 32), static_cast<unsigned int>(argument));
  swapcontext(&here, &there);
  munmap(stack, kStackBytes);
  if (exchange.error != 0) errno = exchange.error;
  return exchange.error == 0;
}

}  // namespace detshare::shim
