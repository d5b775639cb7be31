// Reads objects of the API server, which may lack any part.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace detshare::kubernetes {

// The member below `json` that the keys lead to; null where there is none.
template <typename... Keys>
const nlohmann::json& At(const nlohmann::json& json, const char* key, const Keys*... more) {
  static const nlohmann::json none;
  if (!json.is_object()) return none;
  const auto found = json.find(key);
  if (found == json.end()) return none;
  if constexpr (sizeof...(more) == 0) {
    return *found;
  } else {
    return At(*found, more...);
  }
}

// The list; an empty one for anything else.
inline const nlohmann::json& List(const nlohmann::json& json) {
  static const nlohmann::json empty = nlohmann::json::array();
  return json.is_array() ? json : empty;
}

// The text; "" for anything else.
inline std::string Text(const nlohmann::json& json) {
  return json.is_string() ? json.get<std::string>() : "";
}

}  // namespace detshare::kubernetes
