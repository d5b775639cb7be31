#include "tools/detsharectl/json_text.h"

#include <nlohmann/json.hpp>

namespace detshare::ctl {

using nlohmann::ordered_json;

std::string JsonText(const ordered_json& json) {
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string JsonLine(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace detshare::ctl
