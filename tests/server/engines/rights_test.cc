// An engine is refused what it does not need.
#include "server/engines/rights.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <thread>

#include "tests/server/grpc_stubs.h"
#include "tests/server/supervised_daemon.h"

namespace detshare {
namespace {

// Runs `what` in a process without rights, and returns what it returns.
template <typename What>
int WithoutRights(What what) {
  const pid_t child = fork();
  if (child == 0) {
    DropRights();
    _exit(what());
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

bool Refused(long result) { return result == -1 && errno == EPERM; }

TEST_CASE("A process without rights makes no call that an engine does not need") {
#if !defined(__SANITIZE_ADDRESS__)  // LeakSanitizer needs it
  CHECK(WithoutRights([] { return Refused(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }) == 1);
#endif
  CHECK(WithoutRights([] { return Refused(mount("none", "/", "tmpfs", 0, nullptr)); }) == 1);
  CHECK(WithoutRights([] { return Refused(unshare(CLONE_NEWUSER)); }) == 1);
  CHECK(WithoutRights([] { return Refused(syscall(SYS_bpf, 0, nullptr, 0)); }) == 1);
  CHECK(WithoutRights([] { return Refused(syscall(SYS_finit_module, -1, "", 0)); }) == 1);
  CHECK(WithoutRights(
            [] { return Refused(syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0)); }) == 1);
  // The numbers of x32 lead around no refusal.
  CHECK(WithoutRights([] { return Refused(syscall(0x40000000 | SYS_ptrace, 0, 0, 0, 0)); }) == 1);
  CHECK(WithoutRights([] { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); }) == 1);
}

TEST_CASE("A thread of a process without rights may lower its nice value") {
  if (!IsRoot()) return;
  CHECK(WithoutRights([] { return setpriority(PRIO_PROCESS, 0, -20) == 0; }) == 1);
  // A user without capabilities needs the limit, which root may not raise in every container.
  const auto as_user = [] {
    AllowPromptThreads();
    rlimit limit{};
    getrlimit(RLIMIT_NICE, &limit);
    // Of this thread alone: a sanitizer may have a thread of its own, which keeps its rights.
    if (syscall(SYS_setresuid, 12345, 12345, 12345) != 0) return false;
    return (setpriority(PRIO_PROCESS, 0, -20) == 0) == (limit.rlim_cur == 40);
  };
  CHECK(WithoutRights(as_user) == 0);  // no right to change the user either
  const pid_t child = fork();
  if (child == 0) _exit(as_user() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("A process without rights keeps the capabilities that an engine needs, and no others") {
  if (!IsRoot()) return;
  CHECK(WithoutRights([] { return Refused(chroot("/")); }) == 1);
  CHECK(WithoutRights([] {
          __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
          __user_cap_data_struct data[2]{};
          if (syscall(SYS_capget, &header, data) != 0) return 1;
          const bool chown = (data[0].effective >> CAP_CHOWN & 1) != 0;
          const bool admin = (data[0].effective >> CAP_SYS_ADMIN & 1) != 0 ||
                             (data[0].effective >> CAP_SETUID & 1) != 0;
          const bool others = (data[0].effective >> CAP_SYS_PTRACE & 1) != 0 ||
                              (data[0].effective >> CAP_DAC_OVERRIDE & 1) != 0;
          return chown && !admin && !others ? 0 : 2;
        }) == 0);
}

TEST_CASE("A process without rights still does what an engine does") {
  CHECK(WithoutRights([] {
          std::thread([] {}).join();
          void* const memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          const int fd = open("/proc/self/maps", O_RDONLY);
          return memory != MAP_FAILED && fd >= 0 ? 0 : 1;
        }) == 0);
}

TEST_CASE("The engine of a program has dropped its rights, and the supervisor need not") {
  SupervisedDaemon daemon({}, "tenant");
  TestClient program(daemon.socket());
  program.tenant = "chat";
  REQUIRE(program.Open());
  std::ifstream file("/proc/" + std::to_string(StatusOf(program).pid()) + "/status");
  std::stringstream status;
  status << file.rdbuf();
  CHECK(status.str().find("NoNewPrivs:\t1") != std::string::npos);
  CHECK(status.str().find("Seccomp:\t2") != std::string::npos);
}

}  // namespace
}  // namespace detshare
