#include "client_shim/memory/page_exchange.h"

#include <sys/mman.h>
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
  bool done = false;
};

// Writes only its own frame and those of what it calls between the copy of a page and its exchange.
bool Carry(uint64_t from, std::byte* to, uint64_t bytes) {
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
      exchanged = mremap(to + part.offset, part.bytes, part.bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                         pages) != MAP_FAILED;
      error = errno;
    }
    if (!exchanged) munmap(to + part.offset, part.bytes);
  }
  if (!exchanged) errno = error;
  return exchanged;
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
  const bool done = Carry(copy.from, copy.to, copy.bytes);
  exchange->done = done;  // after the exchange, so it is not lost
}

}  // namespace

bool CopyAndExchange(uint64_t from, std::byte* to, uint64_t bytes) {
  if (!HoldsRunningFrames(from, bytes)) return Carry(from, to, bytes);
  Exchange exchange{from, to, bytes};
  // A handler would run on the other stack, which is small, and its writes to this one might be
  // lost.
  const SignalsBlocked while_exchanging;
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
  const int error = errno;
  munmap(stack, kStackBytes);
  errno = error;
  return exchange.done;
}

}  // namespace detshare::shim
