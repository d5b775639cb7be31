#include "proto/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

namespace detshare {
namespace {

// The optimal string alignment distance.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                             cost[i - 1][j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

// The innermost command that the command line names.
const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : Innermost(*parsed.back());
}

std::string FullName(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  return parent == nullptr ? app.get_name() : FullName(*parent) + " " + app.get_name();
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  // Help does not show commands of no group.
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    names.push_back(command->get_name());
  return names;
}

// Of the command and of those above it, whose options it takes, too. Without the dashes in front: each name
// has them, so they say nothing about which one is meant.
std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent()) {
    for (const CLI::Option* option : at->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back(name);
    }
  }
  return names;
}

std::string Suggestion(const std::string& word, const std::vector<std::string>& names,
                       const std::string& prefix = "") {
  const std::string meant = DidYouMean(word, names);
  return meant.empty() ? "" : ": did you mean " + prefix + meant + "?";
}

// For a value that is not among the allowed ones, the allowed one that is meant; else "". CLI11 says
// "--sort: gpuu not in {gpu,memory}".
std::string SuggestedValue(const std::string& error) {
  constexpr std::string_view kNotIn = " not in {";
  const size_t at = error.find(kNotIn), end = error.rfind('}');
  if (at == std::string::npos || end == std::string::npos) return "";
  std::vector<std::string> allowed;
  std::stringstream values(error.substr(at + kNotIn.size(), end - at - kNotIn.size()));
  for (std::string value; std::getline(values, value, ',');) allowed.push_back(value);
  return Suggestion(error.substr(0, at).substr(error.substr(0, at).rfind(' ') + 1), allowed);
}

// The same in words, for errors of CLI11 whose own words say little: "--weight: At Most 1 required but
// received 2", "--param: 1 required NAME=VALUE missing" and "Could not convert: --session = abc".
std::string InWords(const std::string& error) {
  constexpr std::string_view kAtMostOne = ": At Most 1 required but received ";
  constexpr std::string_view kOneRequired = ": 1 required ", kMissing = " missing";
  constexpr std::string_view kNoNumber = "Could not convert: ", kIs = " = ";
  if (const size_t at = error.find(kOneRequired), end = error.rfind(kMissing);
      at != std::string::npos && end != std::string::npos && end > at) {
    const size_t type = at + kOneRequired.size();
    return error.substr(0, at) + " needs a value: " + error.substr(type, end - type);
  }
  if (const size_t at = error.find(kAtMostOne); at != std::string::npos) {
    return error.substr(0, at) + " is given " + error.substr(at + kAtMostOne.size()) +
           " times, and may be given once";
  }
  if (const size_t is = error.find(kIs);
      error.rfind(kNoNumber, 0) == 0 && is != std::string::npos) {
    return error.substr(kNoNumber.size(), is - kNoNumber.size()) + ": " +
           error.substr(is + kIs.size()) + " is not a number that the option takes";
  }
  return error;
}

// What is wrong, for a person who reads it for the first time.
std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = Innermost(app);
  std::vector<std::string> extra = app.remaining(/*recurse=*/true);
  // It only ends the options.
  extra.erase(std::remove(extra.begin(), extra.end(), "--"), extra.end());
  const auto option = std::find_if(extra.begin(), extra.end(), [](const std::string& word) {
    return word.size() > 1 && word.front() == '-';
  });
  if (option != extra.end()) {
    const std::string name = option->substr(0, option->find('='));
    const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    const std::vector<std::string> names = OptionNames(command);
    if (name == "--" + bare && std::find(names.begin(), names.end(), bare) != names.end()) {
      // It is an option of the command, and stands in front of it.
      return app.get_name() + " has no option " + name + ": put it behind " +
             FullName(command).substr(app.get_name().size() + 1);
    }
    return FullName(command) + " has no option " + name + Suggestion(bare, names, "--");
  }
  const std::vector<std::string> commands = CommandNames(command);
  if (!extra.empty() && !commands.empty()) {
    return FullName(command) + " has no command " + extra.front() +
           Suggestion(extra.front(), commands);
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && extra.empty() &&
      command.get_require_subcommand_min() > 0) {
    std::string text = FullName(command) + " needs a command:";
    for (const std::string& name : commands) text += " " + name;
    return text;
  }
  if (!extra.empty()) return FullName(command) + " takes no argument " + extra.front();
  return FullName(command) + ": " + InWords(error.what()) + SuggestedValue(error.what());
}

// Help in one style for all programs: the option and its value, then what it does, in round brackets what
// holds for the value, and in square ones the default.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    // A flag's name may contain the value that it has without one: "--standalone{auto}".
    const std::string name = CLI::Formatter::make_option_name(option, positional);
    return name.substr(0, name.find('{'));
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const auto [value, rule] = Type(*option);
    std::string text = rule.starts_with('{') ? rule : value;
    if (value == "INT" || value == "UINT" || value == "FLOAT") text = "N";
    // An argument has the name of its value, and is needed unless its description says otherwise.
    const bool argument = option->get_lnames().empty() && option->get_snames().empty();
    if (argument && text == "TEXT") text.clear();
    if (text.empty() && !argument) return "";
    if (option->get_name(false, true).find('{') != std::string::npos) return "[=" + text + "]";
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    if (option->get_required() && !argument) text += " REQUIRED";
    return text.empty() || text.front() == ' ' ? text : " " + text;
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description(), rules;
    const auto rule = [&rules](const std::string& more) {
      rules += (rules.empty() ? "" : "; ") + more;
    };
    if (const std::string range = Range(*option); !range.empty()) rule(range);
    for (const CLI::Option* other : option->get_needs())
      rule("needs " + make_option_name(other, false));
    for (const CLI::Option* other : option->get_excludes())
      rule("not with " + make_option_name(other, false));
    if (!option->get_envname().empty()) rule("or the variable " + option->get_envname());
    // Descriptions with a default of their own say more than the value.
    const size_t own = text.empty() || text.back() != ']' ? std::string::npos : text.rfind(" [");
    std::string standard = own == std::string::npos ? option->get_default_str() : "";
    if (!standard.empty()) standard = " [" + standard + "]";
    if (!rules.empty()) text.insert(std::min(own, text.size()), " (" + rules + ")");
    return text + (option->get_type_size() == 0 ? "" : standard);
  }

 private:
  // CLI11's type is the value's name and a rule, as in "N:INT in [1 - 8]" or "TEXT:{a,b}".
  static std::pair<std::string, std::string> Type(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const size_t colon = type.find(':');
    std::string value = type.substr(0, colon);
    value.erase(0, value.find_first_not_of(' '));
    return {value, colon == std::string::npos ? "" : type.substr(colon + 1)};
  }
  // "1 to 8"; "" if there is no such rule.
  static std::string Range(const CLI::Option& option) {
    const std::string rule = Type(option).second;
    const size_t begin = rule.find("in ["), middle = rule.find(" - ", begin),
                 end = rule.find(']', begin);
    if (begin == std::string::npos || middle == std::string::npos || end == std::string::npos)
      return "";
    return rule.substr(begin + 4, middle - begin - 4) + " to " +
           rule.substr(middle + 3, end - middle - 3);
  }
};

void UseHelpFormatter(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    UseHelpFormatter(*command);
}

// The help of a command lacks the options that it shares with all others.
std::string SharedOptions(const CLI::App& app) {
  if (&Innermost(app) == &app) return "";
  std::vector<const CLI::Option*> shared;
  for (const CLI::Option* option : app.get_options()) {
    if (option != app.get_help_ptr() && option != app.get_version_ptr()) shared.push_back(option);
  }
  const auto formatter = std::dynamic_pointer_cast<CLI::Formatter>(app.get_formatter());
  if (shared.empty() || formatter == nullptr) return "";
  const std::string group =
      formatter->make_group("Options of all commands", /*is_positional=*/false, shared);
  // The group begins with an empty line. So does what is in front of it, if that is no footer.
  return (Innermost(app).get_footer().empty() ? group.substr(1) : group) + "\n";
}

}  // namespace

CLI::Validator NumberIn(double least, double most) {
  std::ostringstream bounds, described;
  bounds << least << " to " << most;
  described << "FLOAT in [" << least << " - " << most << "]";
  const auto check = [least, most, allowed = bounds.str()](std::string& text) -> std::string {
    double number = 0;
    // No comparison with NaN is true.
    if (CLI::detail::lexical_cast(text, number) && number >= least && number <= most) return "";
    return text + " is not a number of " + allowed;
  };
  return CLI::Validator(check, described.str());
}

CLI::Validator NotNegative() {
  const auto check = [](std::string& text) -> std::string {
    return text.rfind('-', 0) == 0 ? text + " is not a number of 0 or more" : "";
  };
  return CLI::Validator(check, /*validator_desc=*/"");
}

void RefuseEmptyValues(CLI::App& command) {
  const auto refuse = [](const char* why) {
    return CLI::Validator(
        [why](std::string& text) -> std::string { return text.empty() ? why : ""; },
        /*validator_desc=*/"");
  };
  const CLI::Validator named = refuse("\"\" is no name");
  const CLI::Validator given = refuse("a value is not \"\"; to set nothing, leave the option out");
  for (CLI::Option* option : command.get_options()) {
    if (option->get_items_expected_max() > 0)
      option->check(option->get_positional() ? named : given);
  }
  for (CLI::App* further : command.get_subcommands([](const CLI::App*) { return true; }))
    RefuseEmptyValues(*further);
}

int EndOutput(const char* tool, int code) {
  int error = std::fflush(stdout) != 0 ? errno : 0;
  if (error == 0 && std::ferror(stdout) != 0) {
    // A long write that failed before has left nothing in the buffer. The next write tells its error.
    if (std::fputc('\n', stdout) == EOF || std::fflush(stdout) != 0) error = errno;
  }
  if (error == EPIPE || (error == 0 && std::ferror(stdout) == 0)) return code;
  std::fprintf(stderr, "%s: cannot write all of the output%s%s\n", tool, error != 0 ? ": " : "",
               error != 0 ? std::strerror(error) : "");
  return code != 0 ? code : 1;
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& names) {
  std::string best;
  // A third of the letters may be wrong.
  size_t least = word.size() / 3 + 1;
  for (const std::string& name : names) {
    const size_t distance = Distance(word, name);
    if (distance >= least && !(distance == least && best.empty())) continue;
    if (distance >= std::max(word.size(), name.size())) continue;
    least = distance;
    best = name;
  }
  return best;
}

std::optional<int> ParseCommandLine(CLI::App& app, std::vector<std::string> arguments,
                                    int usage_code, const std::string& version) {
  app.set_version_flag("--version", app.get_name() + " " + version, "Print the version");
  UseHelpFormatter(app);
  try {
    // CLI11 takes the last argument first.
    std::reverse(arguments.begin(), arguments.end());
    app.parse(std::move(arguments));
    return std::nullopt;
  } catch (const CLI::Success& request) {
    app.exit(request);
    if (dynamic_cast<const CLI::CallForHelp*>(&request) != nullptr)
      std::fputs(SharedOptions(app).c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s\nSee %s --help.\n", Explain(app, error).c_str(),
                 FullName(Innermost(app)).c_str());
    return usage_code;
  }
}

}  // namespace detshare
