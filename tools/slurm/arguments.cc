#include "tools/slurm/arguments.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace detshare::slurm {

absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& texts) {
  Arguments arguments;
  const struct {
    absl::string_view name;
    std::string* value;
  } known[] = {
      {"socket", &arguments.socket},
      {"libraries", &arguments.libraries},
      {"detsharectl", &arguments.detsharectl},
      {"state", &arguments.state},
      {"slurm", &arguments.slurm},
  };
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const auto found = std::find_if(std::begin(known), std::end(known), [&](const auto& one) {
      return one.name == text.substr(0, equals);
    });
    if (equals == std::string::npos || found == std::end(known)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "plugstack.conf: the plugin takes socket=, libraries=, detsharectl=, state= and slurm=, "
          "not \"",
          text, "\""));
    }
    if (text[equals + 1] != '/') {
      return absl::InvalidArgumentError(absl::StrCat("plugstack.conf: ", found->name,
                                                     "= takes an absolute path, not \"",
                                                     text.substr(equals + 1), "\""));
    }
    *found->value = text.substr(equals + 1);
  }
  return arguments;
}

}  // namespace detshare::slurm
