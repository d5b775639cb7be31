// The hooks of Slurm's SPANK interface. Slurm loads the plugin into sbatch, salloc, srun, slurmd and
// slurmstepd, and calls each hook in one of them.
#include <pwd.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/slurm/arguments.h"
#include "tools/slurm/node.h"
#include "tools/slurm/options.h"

extern "C" {
#include <slurm/spank.h>

// Slurm reads these, too.
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(detshare, 1)
}

namespace detshare::slurm {
namespace {

constexpr int kFailure = -1;

// Slurm calls it where the user gives the option, and once more in slurmstepd.
int TakeOption(int, const char* text, int remote) {
  if (remote != 0) return 0;
  const absl::StatusOr<JobOptions> options = ParseJobOptions(text != nullptr ? text : "");
  if (options.ok()) return 0;
  slurm_error("%s", std::string(options.status().message()).c_str());
  return kFailure;
}

// Slurm wants pointers to char, and changes none of the texts.
spank_option* Option() {
  static char name[] = "detshare", argument[] = "SETTINGS",
              usage[] =
                  "give the job a share of the GPU through DetShare, for example "
                  "class=latency,memory=20G";
  static spank_option option = {name, argument, usage, 1, 0, TakeOption};
  return &option;
}

std::optional<std::string> TextOfOption(spank_t spank) {
  char* text = nullptr;
  if (spank_option_getopt(spank, Option(), &text) != ESPANK_SUCCESS) return std::nullopt;
  return text != nullptr ? text : "";
}

std::optional<Arguments> ArgumentsOf(int count, char* texts[]) {
  absl::StatusOr<Arguments> arguments = ParseArguments({texts, texts + count});
  if (arguments.ok()) return *std::move(arguments);
  slurm_error("detshare: %s", std::string(arguments.status().message()).c_str());
  return std::nullopt;
}

std::string NodeName() {
  if (const char* name = std::getenv("SLURMD_NODENAME")) return name;
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, HOST_NAME_MAX);
  return std::string(host, std::string(host).find('.'));
}

std::string UserName(uid_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  char buffer[4096];
  getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found);
  return found != nullptr ? found->pw_name : absl::StrCat(uid);
}

Node NodeWith(const Arguments& arguments) {
  return Node(arguments, NodeName(),
              [](const std::string& line) { slurm_info("detshare: %s", line.c_str()); });
}

int Begin(spank_t spank, const Arguments& arguments) {
  uint32_t job = 0;
  uid_t user = 0;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS) {
    slurm_error("detshare: Slurm does not say which job begins");
    return kFailure;
  }
  NodeWith(arguments).Begin(job, UserName(user), TextOfOption(spank));
  return 0;
}

int End(spank_t spank, const Arguments& arguments) {
  uint32_t job = 0;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) {
    slurm_error("detshare: Slurm does not say which job has ended");
    return kFailure;
  }
  NodeWith(arguments).End(job);
  return 0;
}

int BeginTask(spank_t spank, const Arguments& arguments) {
  uint32_t job = 0;
  uid_t user = 0;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS) {
    slurm_error("detshare: Slurm does not say to which job a task belongs");
    return kFailure;
  }
  const absl::StatusOr<bool> shown =
      NodeWith(arguments).Show(job, UserName(user), TextOfOption(spank));
  if (!shown.ok()) {
    slurm_spank_log("detshare: %s", std::string(shown.status().message()).c_str());
    return kFailure;
  }
  if (!*shown) return 0;
  char before[32 << 10] = {};
  spank_getenv(spank, "LD_LIBRARY_PATH", before, sizeof(before));
  const std::string path = absl::StrCat(arguments.libraries, before[0] != '\0' ? ":" : "", before);
  spank_setenv(spank, "LD_LIBRARY_PATH", path.c_str(), 1);
  spank_setenv(spank, "DETSHARE_SOCKET", arguments.socket.c_str(), 1);
  // The endpoint decides the tenant.
  spank_unsetenv(spank, "DETSHARE_TENANT");
  return 0;
}

// Calls `hook(spank, arguments)`, unless plugstack.conf has a mistake.
template <typename Hook>
int Call(Hook hook, spank_t spank, int count, char* texts[]) {
  const std::optional<Arguments> arguments = ArgumentsOf(count, texts);
  return arguments.has_value() ? hook(spank, *arguments) : kFailure;
}

}  // namespace
}  // namespace detshare::slurm

extern "C" {

int slurm_spank_init(spank_t spank, int count, char* texts[]) {
  using namespace detshare::slurm;  // NOLINT
  if (!ArgumentsOf(count, texts).has_value()) return kFailure;
  return spank_option_register(spank, Option()) == ESPANK_SUCCESS ? 0 : kFailure;
}

int slurm_spank_job_prolog(spank_t spank, int count, char* texts[]) {
  return detshare::slurm::Call(detshare::slurm::Begin, spank, count, texts);
}

int slurm_spank_task_init_privileged(spank_t spank, int count, char* texts[]) {
  return detshare::slurm::Call(detshare::slurm::BeginTask, spank, count, texts);
}

int slurm_spank_job_epilog(spank_t spank, int count, char* texts[]) {
  return detshare::slurm::Call(detshare::slurm::End, spank, count, texts);
}
}
