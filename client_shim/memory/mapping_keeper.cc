#include "client_shim/memory/mapping_keeper.h"

#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace detshare::shim {
namespace {

constexpr size_t kStackBytes = 64 << 10;

// The keeper. 0: there is none. StartMappingKeeper() and EndMappingKeeper() are not called at once.
int keeper = 0;

// The new process. It has the thread-local memory of the thread that started it, so it calls nothing
// that could change that, such as errno: none of its calls can fail, except when it ends anyway.
__attribute__((no_sanitize("address", "thread", "undefined"))) int Keep(void* argument) {
  const auto connection = static_cast<unsigned>(reinterpret_cast<uintptr_t>(argument));
  syscall(SYS_setsid);
  syscall(SYS_prctl, PR_SET_NAME, "detshare-keeper", 0, 0, 0);
  if (connection != 0) syscall(SYS_close_range, 0u, connection - 1, 0u);
  syscall(SYS_close_range, connection + 1, ~0u, 0u);
  char byte;
  while (syscall(SYS_read, connection, &byte, sizeof(byte)) > 0) {
  }
  syscall(SYS_exit_group, 0);
  return 0;
}

}  // namespace

bool StartMappingKeeper(int connection) {
  // Kernels before 5.9 cannot close all descriptors at once. An open pipe of the program must not
  // outlive it.
  if (syscall(SYS_close_range, ~0u, ~0u, 0u) != 0) return false;
  void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return false;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // No signal at its end: only a wait with __WCLONE sees it. A debugger does not follow it.
  const int pid = clone(Keep, static_cast<char*>(stack) + kStackBytes, CLONE_VM | CLONE_UNTRACED,
                        reinterpret_cast<void*>(static_cast<uintptr_t>(connection)));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) munmap(stack, kStackBytes);
  keeper = std::max(pid, 0);
  return pid >= 0;
}

void EndMappingKeeper(int connection) {
  if (keeper == 0) return;
  shutdown(connection, SHUT_RDWR);
  waitpid(keeper, nullptr, __WCLONE);
  keeper = 0;
}

}  // namespace detshare::shim
