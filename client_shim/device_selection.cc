#include "client_shim/device_selection.h"

#include <algorithm>
#include <cctype>
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

DeviceSelection SelectDevices(const char* devices, const char* visible) {
  DeviceSelection selection;
  if (devices != nullptr && *devices != '\0') selection.ids = Split(devices);
  if (visible == nullptr) return selection;
  std::vector<std::string> chosen;
  for (const std::string& entry : Split(visible)) {
    std::string id;
    if (IsIndex(entry)) {
      if (selection.ids.empty()) {
        id = std::to_string(std::stoi(entry));
      } else if (static_cast<size_t>(std::stoi(entry)) < selection.ids.size()) {
        id = selection.ids[std::stoi(entry)];
      }
    } else if (entry.rfind("GPU-", 0) == 0) {
      id = entry;
    }
    if (id.empty() || std::find(chosen.begin(), chosen.end(), id) != chosen.end()) break;
    chosen.push_back(id);
  }
  selection.none = chosen.empty();
  selection.ids = std::move(chosen);
  return selection;
}

}  // namespace detshare::shim
