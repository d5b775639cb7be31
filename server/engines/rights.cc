#include "server/engines/rights.h"

#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

// As docs/operating.md says of engines.
constexpr uint64_t kKept = uint64_t{1} << CAP_CHOWN | uint64_t{1} << CAP_FOWNER |
                           uint64_t{1} << CAP_IPC_LOCK | uint64_t{1} << CAP_MKNOD;

// RLIMIT_NICE with which any nice value is allowed.
constexpr rlimit kAnyNice{40, 40};

// A list of what is refused, because the driver's own calls are not documented.
constexpr uint32_t kRefused[] = {
// other processes
#if !defined(__SANITIZE_ADDRESS__)  // LeakSanitizer looks at the process's own threads by ptrace
    SYS_ptrace,
#endif
    SYS_process_vm_readv, SYS_process_vm_writev,
    // file systems and namespaces
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_fsopen, SYS_fsconfig, SYS_fsmount,
    SYS_fspick, SYS_move_mount, SYS_open_tree, SYS_mount_setattr, SYS_unshare, SYS_setns,
    SYS_swapon, SYS_swapoff, SYS_quotactl, SYS_open_by_handle_at,
    // the kernel
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load,
    SYS_reboot, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_syslog, SYS_acct, SYS_iopl,
    SYS_ioperm, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    // the host
    SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_sethostname,
    SYS_setdomainname,
    // keys
    SYS_add_key, SYS_request_key, SYS_keyctl};

void DropCapabilities() {
  rlimit nice{};
  const bool limited = getrlimit(RLIMIT_NICE, &nice) != 0 || nice.rlim_cur < kAnyNice.rlim_cur;
  const uint64_t all_kept = limited ? kKept | uint64_t{1} << CAP_SYS_NICE : kKept;
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    // Without CAP_SETPCAP the bounding set stays; then it is the service manager's.
    if ((all_kept >> capability & 1) == 0) prctl(PR_CAPBSET_DROP, capability);
  }
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  bool dropped = syscall(SYS_capget, &header, data) == 0;
  for (int half = 0; half < 2 && dropped; ++half) {
    const auto kept = static_cast<uint32_t>(all_kept >> (32 * half));
    data[half].effective &= kept;
    data[half].permitted &= kept;
    data[half].inheritable = 0;
  }
  dropped = dropped && syscall(SYS_capset, &header, data) == 0;
  if (!dropped) LogWarning("the engine keeps its capabilities: ", ErrnoText(errno));
}

void FilterCalls() {
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      // The numbers of x32 are other names of the same calls.
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)};
  for (const uint32_t call : kRefused) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    LogWarning("the engine may make all system calls: ", ErrnoText(errno));
}

}  // namespace

void AllowPromptThreads() {
  // Root may not do it in every container. Then the limit of the service manager stays.
  setrlimit(RLIMIT_NICE, &kAnyNice);
}

absl::Status BecomeUser(const EngineUser& user) {
  // Instead of CAP_IPC_LOCK.
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  rlimit before{};
  if (setrlimit(RLIMIT_MEMLOCK, &unlimited) != 0 && getrlimit(RLIMIT_MEMLOCK, &before) == 0 &&
      before.rlim_cur != RLIM_INFINITY) {
    LogWarning("the engine may lock ", before.rlim_cur,
               " bytes of memory: let the service manager allow more (LimitMEMLOCK=infinity)");
  }
  if (setgroups(0, nullptr) != 0 || setresgid(user.gid, user.gid, user.gid) != 0 ||
      setresuid(user.uid, user.uid, user.uid) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("the engine cannot become user ", user.uid, ": ", ErrnoText(errno)));
  }
  // The change of the user has taken this process's own files in /proc from it.
  prctl(PR_SET_DUMPABLE, 1);
  return absl::OkStatus();
}

void DropRights() {
  DropCapabilities();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    // A filter needs it.
    LogWarning("the engine may gain privileges by execution: ", ErrnoText(errno));
    return;
  }
  FilterCalls();
}

}  // namespace detshare
