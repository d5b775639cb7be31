#include "proto/command_line.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <cstdint>

namespace detshare {
namespace {

TEST_CASE("A name that differs in a few letters from what was written is suggested") {
  const std::vector<std::string> names = {"status", "sessions", "tenant", "top", "trace"};
  CHECK(DidYouMean("stauts", names) == "status");
  CHECK(DidYouMean("statu", names) == "status");
  CHECK(DidYouMean("session", names) == "sessions");
  CHECK(DidYouMean("tracee", names) == "trace");
  CHECK(DidYouMean("tpo", names) == "top");
}

TEST_CASE("Nothing is suggested for a word that is like no name") {
  const std::vector<std::string> names = {"status", "top"};
  CHECK(DidYouMean("frobnicate", names).empty());
  CHECK(DidYouMean("x", names).empty());
  CHECK(DidYouMean("", names).empty());
  CHECK(DidYouMean("status", {}).empty());
}

// A tool with an option for all commands, and a command within a command.
class Tool {
 public:
  Tool() {
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.add_option("--socket", socket_);
    CLI::App* const tenant = app_.add_subcommand("tenant", "Tenants");
    tenant->require_subcommand(1);
    tenant->add_subcommand("set", "Set")->add_option("--weight", weight_);
    tenant->add_subcommand("list", "List");
  }
  std::optional<int> Parse(std::vector<std::string> arguments) {
    return ParseCommandLine(app_, std::move(arguments), 64);
  }
  std::string socket_;
  int weight_ = 0;

 private:
  CLI::App app_{"A tool.", "tool"};
};

TEST_CASE("A right command line goes on, with options of all commands behind the command") {
  Tool tool;
  CHECK(tool.Parse({"tenant", "set", "--weight", "3", "--socket", "s"}) == std::nullopt);
  CHECK(tool.weight_ == 3);
  CHECK(tool.socket_ == "s");
}

TEST_CASE("The version may also be asked of a command") {
  CHECK(Tool().Parse({"tenant", "list", "--version"}) == 0);
}

TEST_CASE("Help and version end with 0, mistakes with the tool's code for them") {
  CHECK(Tool().Parse({"--version"}) == 0);
  CHECK(Tool().Parse({"tenant", "set", "--help"}) == 0);
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{},
                                             {"tenants"},
                                             {"tenant"},
                                             {"tenant", "sett"},
                                             {"tenant", "set", "--wieght=3"},
                                             {"tenant", "set", "--weight", "much"},
                                             {"tenant", "list", "more"},
                                             {"--", "-"}}) {
    CHECK(Tool().Parse(wrong) == 64);
  }
}

TEST_CASE("Help shows an option's value, what holds for it, and its default") {
  CLI::App app("A tool.", "tool");
  int count = 3, size = 0;
  double rate = 0;
  std::string name, mode, gpu, path = "p";
  std::vector<std::string> devices;
  app.add_option("--count", count, "How many")->check(CLI::Range(1, 8))->capture_default_str();
  app.add_option("--size", size, "How large [as large as it gets]")->check(CLI::Range(0, 4));
  app.add_option("--rate", rate, "How fast")->type_name("R")->check(NumberIn(0.5, 2));
  app.add_option("--mode", mode, "How")->check(CLI::IsMember({"fast", "slow"}));
  CLI::Option* const own = app.add_flag("--own{auto}", gpu, "Alone");
  own->check(CLI::IsMember({"auto", "soft"}));
  app.add_option("--path", path, "Where")->type_name("PATH")->capture_default_str()->excludes(own);
  app.add_option("--device", devices, "Which")->type_name("N")->envname("DEVICES");
  app.add_option("--name", name, "Who")->needs(own)->required();
  app.add_flag("--quiet", "Say nothing");
  app.add_option("FILE", name, "What")->required();
  app.add_option("MORE", devices, "Others");
  (void)ParseCommandLine(app, {"--quiet"}, 64);
  std::string help = app.help();
  // Columns do not matter.
  help.erase(std::unique(help.begin(), help.end(),
                         [](char a, char b) { return std::isspace(a) && std::isspace(b); }),
             help.end());
  for (char& letter : help) letter = letter == '\n' ? ' ' : letter;
  for (const char* line :
       {"--count N How many (1 to 8) [3]", "--size N How large (0 to 4) [as large as it gets]",
        "--rate R How fast (0.5 to 2)", "--mode {fast,slow} How",
        "--own[={auto,soft}] Alone (not with --path)", "--path PATH Where (not with --own) [p]",
        "--device N ... Which (or the variable DEVICES)", "--name TEXT REQUIRED Who (needs --own)",
        "--quiet Say nothing", "FILE What", "MORE ... Others"}) {
    CHECK_THAT(help, Catch::Contains(line));
  }
}

TEST_CASE("An option's value that is empty is a mistake where nothing may be left open") {
  const auto parse = [](std::vector<std::string> arguments) {
    std::string name, memory, out;
    std::vector<std::string> devices;
    CLI::App app("A tool.", "tool");
    app.add_option("NAME", name);
    app.add_option("--memory", memory);
    app.add_option("--device", devices)->allow_extra_args(false);
    app.add_subcommand("sub", "A command")->add_option("--out", out);
    RefuseEmptyValues(app);
    return ParseCommandLine(app, std::move(arguments), 64);
  };
  CHECK(parse({"a"}) == std::nullopt);
  CHECK(parse({"a", "--memory", "0", "--device", "1", "--device", "2"}) == std::nullopt);
  CHECK(parse({"a", "--memory", ""}) == 64);
  CHECK(parse({"a", "--memory="}) == 64);
  CHECK(parse({"a", "--device", "1", "--device", ""}) == 64);
  CHECK(parse({""}) == 64);
  CHECK(parse({"a", "sub", "--out", ""}) == 64);
  CHECK(parse({"a", "sub", "--out", "file"}) == std::nullopt);
  CHECK(parse({"--help"}) == 0);
}

TEST_CASE("A number that cannot be negative has no sign") {
  const auto parse = [](const std::string& text) {
    uint64_t number = 0;
    CLI::App app("A tool.", "tool");
    app.add_option("--session", number)->check(NotNegative());
    return ParseCommandLine(app, {"--session", text}, 64);
  };
  CHECK(parse("0") == std::nullopt);
  CHECK(parse("18446744073709551615") == std::nullopt);
  CHECK(parse("-1") == 64);
  CHECK(parse("-0") == 64);
}

TEST_CASE("A number is accepted from its least to its largest value, and nothing else is") {
  const auto accepts = [](const std::string& text) {
    double number = -1;
    CLI::App app("A tool.", "tool");
    app.add_option("--seconds", number)->check(NumberIn(0.05, 600));
    return !ParseCommandLine(app, {"--seconds=" + text}, 64).has_value();
  };
  for (const char* right : {"0.05", "2", "1e2", "600"}) {
    INFO(right);
    CHECK(accepts(right));
  }
  for (const char* wrong :
       {"nan", "-nan", "NaN", "inf", "-inf", "0", "0.049", "-2", "601", "1e999", "soon", "2s"}) {
    INFO(wrong);
    CHECK_FALSE(accepts(wrong));
  }
}

}  // namespace
}  // namespace detshare
