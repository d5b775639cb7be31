#include "server/base/thread_priority.h"

#include <sys/resource.h>
#include <unistd.h>

namespace detshare {
namespace {

// The kernel's scheduler (EEVDF, from Linux 6.6) gives a waking thread the CPU if its deadline comes
// first. At this value the deadline is 0.1 ms away, that of an ordinary thread 3 ms.
constexpr int kNice = -15;

}  // namespace

void AllowPreferredThreads() {
  constexpr rlim_t kNeeded = 20 - kNice;  // setrlimit(2) counts nice values like this
  rlimit limit{};
  if (getrlimit(RLIMIT_NICE, &limit) != 0 || limit.rlim_cur >= kNeeded) return;
  const rlimit raised{kNeeded, limit.rlim_max > kNeeded ? limit.rlim_max : kNeeded};
  setrlimit(RLIMIT_NICE, &raised);
}

void PreferCallingThread() {
  // Linux applies it to the thread, unlike POSIX.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

}  // namespace detshare
