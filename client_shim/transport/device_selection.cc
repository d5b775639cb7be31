#include "client_shim/transport/device_selection.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <string_view>

namespace detshare::shim {
namespace {

std::vector<std::string> Split(std::string_view list) {
  std::vector<std::string> entries;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view entry = list.substr(0, comma);
    while (!entry.empty() && isspace(static_cast<unsigned char>(entry.front())))
      entry.remove_prefix(1);
    while (!entry.empty() && isspace(static_cast<unsigned char>(entry.back())))
      entry.remove_suffix(1);
    entries.emplace_back(entry);
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return entries;
}

bool IsIndex(const std::string& entry) {
  return !entry.empty() && entry.size() <= 4 &&
         std::all_of(entry.begin(), entry.end(), [](unsigned char c) { return isdigit(c); });
}

}  // namespace

Machine ReadMachine(const char* devices, const char* count, const char* run) {
  Machine machine;
  if (devices != nullptr && *devices != '\0') machine.ids = Split(devices);
  if (count != nullptr && *count != '\0') {
    machine.count =
        IsIndex(count) ? static_cast<uint32_t>(atoi(count)) : std::numeric_limits<uint32_t>::max();
  }
  if (run != nullptr) machine.run = run;
  return machine;
}

Machine MachineOfEnvironment() {
  return ReadMachine(getenv("DETSHARE_DEVICES"), getenv("DETSHARE_DEVICE_COUNT"),
                     getenv("DETSHARE_RUN"));
}

VisibleDevices ReadVisibleDevices(const char* visible) {
  VisibleDevices chosen;
  if (visible == nullptr) return chosen;
  for (const std::string& entry : Split(visible)) {
    std::string id;
    if (IsIndex(entry)) {
      id = std::to_string(atoi(entry.c_str()));
    } else if (entry.rfind("GPU-", 0) == 0) {
      id = entry;
    }
    if (id.empty() || std::find(chosen.ids.begin(), chosen.ids.end(), id) != chosen.ids.end())
      break;
    chosen.ids.push_back(id);
  }
  chosen.none = chosen.ids.empty();
  return chosen;
}

}  // namespace detshare::shim
