#include "server/engines/engine_list.h"

#include <google/protobuf/text_format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/base/kept_file.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

}  // namespace

std::string EngineListFile(const std::string& engines_directory) {
  return engines_directory + "/.list";
}

absl::Status WriteEngineList(const std::string& file, const proto::EngineList& list) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(list, &text);
  return WriteKeptFile(file, text);
}

proto::EngineList ReadEngineList(const std::string& file) {
  proto::EngineList list;
  const absl::StatusOr<std::string> text = ReadKeptFile(file, kMaxBytes);
  if (absl::IsNotFound(text.status())) return list;
  // The list of a later program may have fields that this program does not know.
  google::protobuf::TextFormat::Parser parser;
  parser.AllowUnknownField(true);
  if (!text.ok() || !parser.ParseFromString(*text, &list)) {
    LogWarning(file,
               " is damaged: engines of an earlier supervisor serve their sessions to the end");
    list.Clear();
  }
  return list;
}

std::optional<uint64_t> StartTimeOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  // The name is in parentheses and may have any signs. The state follows it as field 3; the start
  // time is field 22 (proc(5)).
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return std::nullopt;
  for (int i = 4; i <= 21; ++i) fields >> field;
  uint64_t ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  return ticks;
}

int OpenListed(const proto::ListedEngine& engine) {
  if (engine.pid() <= 0) return -1;
  const int process = static_cast<int>(syscall(SYS_pidfd_open, engine.pid(), 0));
  // The pidfd is of the process whose time is read after it was opened, or that process has ended.
  if (process >= 0 && StartTimeOf(engine.pid()) == engine.start_time()) return process;
  if (process >= 0) close(process);
  return -1;
}

}  // namespace detshare
