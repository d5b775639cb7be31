// JSON as the commands print it. Bytes that are not UTF-8, which may come from a command line or a
// client's text, become U+FFFD, so the output is always JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace detshare::ctl {

// Over several lines, for people and programs. Ends with a newline.
std::string JsonText(const nlohmann::ordered_json& json);

// On one line, without a newline.
std::string JsonLine(const nlohmann::ordered_json& json);

}  // namespace detshare::ctl
