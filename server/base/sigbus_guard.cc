#include "server/base/sigbus_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <mutex>

namespace detshare {
namespace {

constexpr uintptr_t kPage = 4096;

// These have static storage, because the handler may run at any moment of the process's life.
SigbusGuard::Slot g_slots[SigbusGuard::kMaxGuards];
struct sigaction g_previous;

// Makes only async-signal-safe calls; mmap is a plain system call here.
void OnSigbus(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (SigbusGuard::Slot& slot : g_slots) {
    const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin < kPage || address < begin) continue;
    if (address >= slot.end.load(std::memory_order_relaxed)) continue;
    void* page = reinterpret_cast<void*>(address & ~(kPage - 1));
    if (mmap(page, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
      break;
    slot.tripped.store(true, std::memory_order_release);
    errno = saved_errno;
    return;
  }
  // The address is in no guarded range: do what would have happened without this handler.
  if ((g_previous.sa_flags & SA_SIGINFO) != 0 && g_previous.sa_sigaction != nullptr) {
    g_previous.sa_sigaction(signal, info, context);
    return;
  }
  ::signal(SIGBUS, SIG_DFL);
  errno = saved_errno;
}

void InstallHandler() {
  struct sigaction action;
  std::memset(&action, 0, sizeof(action));
  action.sa_sigaction = OnSigbus;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &g_previous);
}

}  // namespace

SigbusGuard::SigbusGuard(const void* begin, size_t bytes) {
  static std::once_flag installed;
  std::call_once(installed, InstallHandler);
  const uintptr_t address = reinterpret_cast<uintptr_t>(begin);
  for (Slot& slot : g_slots) {
    uintptr_t expected = 0;
    if (!slot.begin.compare_exchange_strong(expected, 1, std::memory_order_acquire)) continue;
    slot.tripped.store(false, std::memory_order_relaxed);
    slot.end.store(address + bytes, std::memory_order_relaxed);
    slot.begin.store(address, std::memory_order_release);
    slot_ = &slot;
    return;
  }
}

SigbusGuard::~SigbusGuard() {
  if (slot_ != nullptr) slot_->begin.store(0, std::memory_order_release);
}

bool SigbusGuard::tripped() const {
  return slot_ != nullptr && slot_->tripped.load(std::memory_order_acquire);
}

}  // namespace detshare
