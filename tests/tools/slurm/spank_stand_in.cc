// Loads the plugin as Slurm does, and calls one of its hooks.
//
//   spank_stand_in PLUGIN option TEXT                              checks the text, as sbatch does
//   spank_stand_in PLUGIN prolog|epilog JOB [TEXT] [-- ARGUMENT...]
//   spank_stand_in PLUGIN task JOB [TEXT] [-- ARGUMENT...]         then runs `sh` with stdin
//
// TEXT is that of --detshare; "" for a job without it. The arguments are those of plugstack.conf. Exits with
// 1 if the hook fails. `task` makes a user namespace if it is not root.
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include <slurm/spank.h>
}

namespace {

// The header has a number for it.
constexpr spank_err_t kSuccess = static_cast<spank_err_t>(ESPANK_SUCCESS);

struct {
  uint32_t job = 0;
  std::string text;
  bool task = false;
  spank_option option{};
} slurm;

void Print(const char* level, const char* format, va_list values) {
  std::fprintf(stderr, "%s", level);
  std::vfprintf(stderr, format, values);
  std::fputc('\n', stderr);
}

void WriteFile(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    std::perror(path);
  if (fd >= 0) close(fd);
}

void BecomeRoot() {
  const uid_t user = geteuid();
  if (user == 0) return;
  if (unshare(CLONE_NEWUSER) != 0) {
    std::perror("unshare");
    std::exit(77);
  }
  WriteFile("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
}

}  // namespace

extern "C" {

void slurm_info(const char* format, ...) {
  va_list values;
  va_start(values, format);
  Print("info: ", format, values);
  va_end(values);
}
void slurm_error(const char* format, ...) {
  va_list values;
  va_start(values, format);
  Print("error: ", format, values);
  va_end(values);
}
void slurm_spank_log(const char* format, ...) {
  va_list values;
  va_start(values, format);
  Print("", format, values);
  va_end(values);
}
spank_err_t spank_option_register(spank_t, spank_option* option) {
  slurm.option = *option;
  return kSuccess;
}
spank_err_t spank_option_getopt(spank_t, spank_option* option, char** text) {
  if (std::string(option->name) != "detshare") return ESPANK_BAD_ARG;
  if (slurm.text.empty()) return ESPANK_ERROR;
  *text = slurm.text.data();
  return kSuccess;
}
// Slurm declares it with an enum before the dots, which clang warns of.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wvarargs"
spank_err_t spank_get_item(spank_t, spank_item_t item, ...) {
  va_list places;
  va_start(places, item);
  if (item == S_JOB_ID) *va_arg(places, uint32_t*) = slurm.job;
  if (item == S_JOB_UID) *va_arg(places, uid_t*) = geteuid();
  va_end(places);
  return item == S_JOB_ID || item == S_JOB_UID ? kSuccess : ESPANK_BAD_ARG;
}
#pragma GCC diagnostic pop
spank_err_t spank_getenv(spank_t, const char* name, char* buffer, int size) {
  const char* const value = std::getenv(name);
  if (!slurm.task) return ESPANK_NOT_REMOTE;
  if (value == nullptr) return ESPANK_ENV_NOEXIST;
  return std::snprintf(buffer, size, "%s", value) < size ? kSuccess : ESPANK_NOSPACE;
}
spank_err_t spank_setenv(spank_t, const char* name, const char* value, int overwrite) {
  if (!slurm.task) return ESPANK_NOT_REMOTE;
  setenv(name, value, overwrite);
  return kSuccess;
}
spank_err_t spank_unsetenv(spank_t, const char* name) {
  if (!slurm.task) return ESPANK_NOT_REMOTE;
  unsetenv(name);
  return kSuccess;
}
}

int main(int argc, char** argv) {
  const std::string what = argc > 3 ? argv[2] : "";
  std::vector<char*> arguments;
  for (int i = 3; i < argc; ++i) {
    if (std::string(argv[i]) != "--") continue;
    arguments.assign(argv + i + 1, argv + argc);
    argc = i;
  }
  void* const plugin = argc > 3 ? dlopen(argv[1], RTLD_LAZY) : nullptr;
  if (plugin == nullptr) {
    std::fprintf(stderr, "spank_stand_in: %s\n", argc > 3 ? dlerror() : "too few arguments");
    return 2;
  }
  const auto call = [&](const char* name) {
    auto* const hook = reinterpret_cast<spank_f*>(dlsym(plugin, name));
    if (hook == nullptr) return 2;
    return hook(nullptr, static_cast<int>(arguments.size()), arguments.data()) == 0 ? 0 : 1;
  };
  const auto* const type = static_cast<const char*>(dlsym(plugin, "plugin_type"));
  const auto* const version = static_cast<const unsigned int*>(dlsym(plugin, "plugin_version"));
  if (type == nullptr || std::string(type) != "spank" || version == nullptr ||
      *version != SLURM_VERSION_NUMBER)
    return 2;

  if (what == "option") {
    if (const int failed = call("slurm_spank_init"); failed != 0) return failed;
    return slurm.option.cb(slurm.option.val, argv[3], 0) == 0 ? 0 : 1;
  }
  slurm.job = static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10));
  if (argc > 4) slurm.text = argv[4];
  if (what == "prolog") return call("slurm_spank_job_prolog");
  if (what == "epilog") return call("slurm_spank_job_epilog");
  if (what != "task") return 2;
  slurm.task = true;
  BecomeRoot();
  if (const int failed = call("slurm_spank_task_init_privileged"); failed != 0) return failed;
  execl("/bin/sh", "sh", static_cast<char*>(nullptr));
  return 127;
}
