// The configuration file: what it says, what is wrong with it and where, and that no bytes hurt.
#include "policy/config/config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "policy/config/config_file.h"
#include "policy/config/config_text.h"
#include "policy/placement.h"
#include "policy/session_caps.h"

namespace detshare {
namespace {

bool Same(const Config& a, const Config& b) {
  const ConfigChange change = Compare(a, b);
  return change.live.empty() && change.restart.empty() && !change.access;
}

std::string Problems(const std::string& text) {
  return ProblemText("f", ParseConfig(text).problems);
}

Config Parsed(const std::string& text) {
  const ParsedConfig parsed = ParseConfig(text);
  INFO(ProblemText("f", parsed.problems));
  REQUIRE(parsed.problems.empty());
  return parsed.config;
}

TEST_CASE(
    "No mistake hides another: the policy and each of its parameters are checked beside them") {
  const std::string wrong = Problems(
      "[daemon]\nlog_levle = \"info\"\n[policy]\nname = \"fiar\"\n[[tenant]]\nname = \"a b\"\n");
  CHECK_THAT(wrong, Catch::Contains("f:2:1: ") && Catch::Contains("f:4:8: no policy is called") &&
                        Catch::Contains("f:6:8: "));
  const std::string parameters = Problems(
      "[policy]\nname = \"fair\"\n[policy.parameters]\nwindw = \"1us\"\nlead = \"x\"\n"
      "[softare_gpu]\nsms = 4\n");
  CHECK_THAT(parameters, Catch::Contains("f:4:1: policy fair has no parameter \"windw\"") &&
                             Catch::Contains("f:5:1: policy fair: lead is a duration") &&
                             Catch::Contains("f:6:2: "));
  // A name of a wrong type says nothing of the parameters.
  CHECK(Problems("[policy]\nname = 5\n[policy.parameters]\nslice = \"5ms\"\n").find("f:4") ==
        std::string::npos);
}

// What the packages set.
Config Packaged() {
  Config config;
  config.isolation = "tenant";
  return config;
}

TEST_CASE("An empty file gives the defaults, and the installed file isolation by tenant") {
  CHECK(Same(Parsed(""), Config()));
  CHECK(Same(Parsed(ExampleText()), Packaged()));
}

TEST_CASE("Every commented key of the installed file is valid") {
  std::string text = ExampleText();
  for (const ConfigSetting& setting : AllConfigSettings()) {
    if (!setting.computed.empty() || !setting.packaged.empty()) continue;
    const std::string line = "\n#" + std::string(setting.key) + " = ";
    const size_t at = text.find(line);
    INFO(line);
    REQUIRE(at != std::string::npos);
    text.erase(at + 1, 1);
  }
  CHECK(Same(Parsed(text), Packaged()));
}

TEST_CASE("The file's values hold") {
  const Config config = Parsed(R"(
[daemon]
socket = "/run/x/d.sock"
socket_mode = "0660"
log_level = "debug"
staging_mib = 32
cuda_sm_group = 2
preemption = "off"
[software_gpu]
memory = "2GiB"
[policy]
name = "static"
placement = "best-fit"
[tenant_defaults]
memory = "1GiB"
sessions = 2
devices = 4
[limits]
streams = 12
[[tenant]]
name = "chat"
class = "latency"
weight = 2
sms = "8..64"
slo_tpot = "30ms"
slo_ttft = "1.5s"
memory = "20GiB"
pinned_memory = 4096
sessions = 3
devices = 1
users = ["alice", 1001]
[[tenant]]
name = "train"
class = "batch"
weight = 0.5
exclusive = true
sm_percent = 40
groups = ["ml"]
)");
  CHECK(config.socket == "/run/x/d.sock");
  CHECK(config.socket_mode == "0660");
  CHECK(config.log_level == "debug");
  CHECK(config.staging_mib == 32);
  CHECK(config.cuda_sm_group == 2);
  CHECK(config.preemption == "off");
  CHECK(config.soft_memory == int64_t{2} << 30);
  CHECK(config.policy == "static");
  CHECK(config.streams == 12);
  CHECK(config.default_memory == int64_t{1} << 30);
  CHECK(config.default_pinned_memory == 0);
  CHECK(config.default_sessions == 2);
  CHECK(config.default_devices == 4);
  CHECK(config.placement == "best-fit");
  REQUIRE(config.tenants.size() == 2);
  const TenantConfig &chat = config.tenants[0], &train = config.tenants[1];
  CHECK(chat.tenant.tenant_class == policy::TenantClass::kLatency);
  CHECK(chat.tenant.weight == 2);
  CHECK(chat.tenant.min_sms == 8);
  CHECK(chat.tenant.max_sms == 64);
  CHECK(chat.tenant.slo_tpot == 30 * policy::kMillisecond);
  CHECK(chat.tenant.slo_ttft == 1500 * policy::kMillisecond);
  CHECK(chat.quota == TenantQuota{uint64_t{20} << 30, 4096, 3, 1});
  CHECK(train.quota == TenantQuota());
  CHECK(chat.users == std::vector<std::string>{"alice", "1001"});
  CHECK(train.tenant.tenant_class == policy::TenantClass::kBatch);
  CHECK(train.tenant.weight == 0.5);
  CHECK(train.tenant.exclusive);
  CHECK_FALSE(chat.tenant.exclusive);
  CHECK(train.tenant.sm_percent == 40);
  CHECK(train.groups == std::vector<std::string>{"ml"});

  SECTION("and what is printed of it says the same") {
    CHECK(Same(Parsed(ConfigText(config)), config));
    CHECK(Same(Parsed(ConfigText(Config())), Config()));
  }
}

TEST_CASE("A number is printed with all of its digits") {
  for (const double number : {2.0, 0.1, 2.3456789012345, 1e6, 1e-300})
    CHECK(std::stod(NumberText(number)) == number);
  CHECK(NumberText(2.5) == "2.5");
  const Config config = Parsed("[[tenant]]\nname = \"a\"\nweight = 2.3456789\n");
  CHECK(Parsed(ConfigText(config)).tenants[0].tenant.weight == 2.3456789);
}

TEST_CASE("A key in the wrong place is told where it belongs") {
  CHECK(Problems("isolation = \"tenant\"") ==
        "f:1:1: \"isolation\" is a key of [daemon]: write it below the line of its section\n");
  CHECK(Problems("memory = \"4GiB\"") ==
        "f:1:1: \"memory\" is a key of [software_gpu], [tenant_defaults] and [[tenant]]: write it "
        "below the line of its section\n");
  CHECK(Problems("[tenant_defaults]\nclass = \"batch\"") ==
        "f:2:1: [tenant_defaults] has no \"class\": it is a key of [[tenant]]\n");
  CHECK(Problems("[[tenant]]\nname = \"a\"\nbackend = \"soft\"") ==
        "f:3:1: [[tenant]] has no \"backend\": it is a key of [daemon]\n");
  CHECK(Problems("[policy]\nwindow = \"1ms\"") ==
        "f:2:1: [policy] has no \"window\"; it has name, placement, and the policy's parameters in "
        "[policy.parameters]\n");
  CHECK_THAT(Problems("[backend]\nx = 1"), Catch::Contains("there is no section \"backend\""));
}

TEST_CASE("All mistakes are reported at once, with line, column and the allowed values") {
  CHECK(Problems("[daemon]\nsockt = 1\n") ==
        "f:2:1: [daemon] has no \"sockt\"; it has socket, socket_mode, runtime_dir, backend, "
        "log_level, unlisted_tenants, isolation, engine_users, spare_engines, profile_dir, "
        "admin_group, "
        "session_slots, spin_us, "
        "client_spin_us, staging_mib, image_store_mib, swap_memory, cuda_driver, cuda_sm_group, "
        "preemption, max_sessions\n");
  CHECK(Problems("[daemon]\nisolation = \"strict\"\n") ==
        "f:2:13: isolation is none, user, tenant or group, not \"strict\"\n");
  CHECK(Problems("[[tenant]]\nname = \"a\"\ngroup = \"b/c\"\n") ==
        "f:3:9: group is 1 to 64 letters, digits and -_.@, in quotes, not \"b/c\"\n");
  CHECK(Problems("[deamon]\n") ==
        "f:1:2: there is no section \"deamon\"; there are [daemon], [metrics], [software_gpu], "
        "[policy], [tenant_defaults], [limits] and [[tenant]]\n");
  CHECK(Problems("[daemon]\nlog_level = \"loud\"\nstaging_mib = 5000\n") ==
        "f:2:13: log_level is error, warning, info or debug, not \"loud\"\n"
        "f:3:15: staging_mib is 1 to 1024, not 5000\n");
  CHECK(Problems("[daemon]\nstaging_mib = \"64\"\n") ==
        "f:2:15: staging_mib is 1 to 1024, not a text\n");
  CHECK(Problems("[daemon]\nstaging_mib = 1.5\n") == "f:2:15: staging_mib is 1 to 1024, not 1.5\n");
  CHECK_THAT(Problems("[daemon]\nsocket = \"relative\"\n"), Catch::Contains("an absolute path"));
  CHECK_THAT(Problems("[daemon]\nsocket_mode = \"0999\"\n"), Catch::Contains("octal"));
  CHECK_THAT(Problems("[daemon]\nsocket_mode = \"6777\"\n"), Catch::Contains("octal"));
  for (const char* const users :
       {"", "5", "1000-", "-5", "0-9", "9-8", "1-4294967294", "1-70000", "1-2-3", "a-b", " 1-2"}) {
    CHECK_THAT(Problems(std::string("[daemon]\nengine_users = \"") + users + "\"\n"),
               Catch::Contains("engine_users is a range of at most 65536 user IDs above 0"));
  }
  CHECK(Problems("[daemon]\nengine_users = \"2000000000-2000000999\"\n").empty());
  CHECK_THAT(Problems("[daemon]\ncuda_sm_group = 3\n"), Catch::Contains("8 or 2, not 3"));
  CHECK(Problems("[daemon]\npreemption = \"on\"\n") ==
        "f:2:14: preemption is auto or off, not \"on\"\n");
  CHECK_THAT(Problems("daemon = 3\n"), Catch::Contains("f:1:10: daemon is a section"));
  CHECK_THAT(Problems("[policy]\nname = \"nonsense\"\n"),
             Catch::StartsWith("f:2:8: ") && Catch::Contains("nonsense"));
  CHECK(Problems("[policy]\nplacement = \"nearest\"\n") ==
        "f:2:13: placement is workload-aware, best-fit or round-robin, not \"nearest\"\n");
  CHECK_THAT(Problems("[policy.parameters]\nnonsense = 1\n"), Catch::StartsWith("f:2:1: "));
  // The policy is looked up and not loaded.
  CHECK(Problems("[policy]\nname = \"/nowhere/policy.so\"\n").empty());
  CHECK_THAT(Problems("[policy]\nname = \"./policy.so\"\n"),
             Catch::StartsWith("f:2:") && Catch::Contains("must be absolute, not \"./policy.so\""));
  Config absent;
  absent.policy = "/nowhere/policy.so";
  CHECK_FALSE(CheckPolicy(absent).ok());
  CHECK_THAT(Problems("[daemon\n"), Catch::StartsWith("f:1:"));
  CHECK_THAT(Problems("[daemon]\nspin_us = 1\nspin_us = 2\n"), Catch::StartsWith("f:3:"));
}

TEST_CASE("A socket has at most 103 characters, and is no directory") {
  const auto socket = [](const std::string& path) {
    return Problems("[daemon]\nsocket = \"" + path + "\"\n");
  };
  CHECK(socket("/" + std::string(102, 's')).empty());
  CHECK_THAT(socket("/" + std::string(103, 's')),
             Catch::Contains("socket is an absolute path of at most 103 characters, not"));
  CHECK_THAT(socket("/run/detshare/"), Catch::Contains("an absolute path"));
  CHECK_THAT(socket(""), Catch::Contains("an absolute path"));
}

TEST_CASE("A software GPU has at most 1024 SMs") {
  CHECK(Problems("[software_gpu]\nsms = 1024\n").empty());
  CHECK(Problems("[software_gpu]\nsms = 1025\n") == "f:2:7: sms is 1 to 1024, not 1025\n");
}

TEST_CASE("A compute capability has a major and a minor number") {
  const auto problems = [](const std::string& text) {
    return Problems("[software_gpu]\ncompute_capability = \"" + text + "\"\n");
  };
  for (const char* const right : {"9.0", "8.6", "12.1"}) CHECK(problems(right).empty());
  for (const char* const wrong :
       {"", "foo", "9", "9.", ".0", "9.0a", "-9.0", "9.0.1", " 9.0", "99999999999.0"}) {
    CAPTURE(wrong);
    CHECK_THAT(problems(wrong),
               Catch::StartsWith("f:2:22: compute_capability is a major and a minor number"));
  }
  int major = 0, minor = 0;
  REQUIRE(ParseComputeCapability("12.1", &major, &minor));
  CHECK(major == 12);
  CHECK(minor == 1);
}

TEST_CASE("The file accepts exactly the existing placements") {
  const ConfigSetting* const setting = FindConfigSetting("policy", "placement");
  REQUIRE(setting != nullptr);
  CHECK(setting->choices == absl::StrJoin(policy::PlacementNames(), "|"));
  CHECK(Config().placement == policy::kDefaultPlacement);
}

TEST_CASE("Mistakes of tenants are reported, too") {
  const auto tenant = [](const std::string& line) {
    return Problems("[[tenant]]\nname = \"a\"\n" + line + "\n");
  };
  CHECK(Problems("[[tenant]]\nweight = 1\n") == "f:1:1: this tenant has no name\n");
  CHECK_THAT(Problems("[[tenant]]\nname = \"a b\"\n"), Catch::StartsWith("f:2:8: name is"));
  CHECK_THAT(Problems("[[tenant]]\nname = 7\n"), Catch::StartsWith("f:2:8: name is"));
  CHECK_THAT(Problems("[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"a\"\n"),
             Catch::StartsWith("f:3:1: tenant a has two sections"));
  CHECK_THAT(tenant("class = \"fast\""), Catch::Contains("\"latency\" or \"batch\""));
  CHECK_THAT(tenant("clas = \"batch\""), Catch::Contains("f:3:1: [[tenant]] has no \"clas\""));
  for (const char* weight : {"0", "-1", "nan", "inf", "1e99", "\"2\"", "true"})
    CHECK_THAT(tenant(std::string("weight = ") + weight), Catch::StartsWith("f:3:10: weight is"));
  for (const char* exclusive : {"1", "\"true\"", "0.0"}) {
    CHECK_THAT(tenant(std::string("exclusive = ") + exclusive),
               Catch::StartsWith("f:3:13: exclusive is true or false"));
  }
  for (const char* percent : {"-1", "101", "1.5", "\"4\"", "[]", "1979-05-27"})
    CHECK_THAT(tenant(std::string("sm_percent = ") + percent), Catch::Contains("0 to 100"));
  for (const char* sms : {"\"8\"", "\"9..8\"", "\"-1..8\"", "\"0..0\"", "\"a..b\"", "\"1..2..3\"",
                          "8", "\"1..99999999999999\""})
    CHECK_THAT(tenant(std::string("sms = ") + sms), Catch::Contains("\"32..132\""));
  for (const char* size : {"0", "-1", "1.5", "\"\"", "\"many\"", "\"-1GiB\"", "\"5 PiB\"",
                           "\"9999999999GiB\"", "true", "[1]"}) {
    CHECK_THAT(tenant(std::string("memory = ") + size),
               Catch::Contains("f:3:10: memory is a size"));
    CHECK_THAT(tenant(std::string("pinned_memory = ") + size), Catch::Contains("is a size"));
  }
  for (const char* sessions : {"0", "-1", "1.5", "\"2\"", "1000001"})
    CHECK_THAT(tenant(std::string("sessions = ") + sessions), Catch::Contains("1 to 1000000"));
  for (const char* devices : {"0", "-1", "\"all\"", "[0, 1]"})
    CHECK_THAT(tenant(std::string("devices = ") + devices),
               Catch::StartsWith("f:3:11: devices is"));
  for (const char* slo : {"\"5\"", "5", "\"0ms\"", "\"ms\"", "\"-5ms\"", "\"5 parsecs\"",
                          "\"1e9s\"", "\"99999999999999999999s\"", "\"5..5ms\""})
    CHECK_THAT(tenant(std::string("slo_tpot = ") + slo), Catch::Contains("a duration"));
  for (const char* users : {"\"alice\"", "[\"\"]", "[-1]", "[4294967295]", "[1.5]", "[[\"a\"]]"})
    CHECK_THAT(tenant(std::string("users = ") + users), Catch::Contains("an array of names"));
  CHECK(tenant("sm_percent = 101") == "f:3:14: sm_percent is an integer of 0 to 100, not 101\n");
  CHECK(tenant("sm_percent = 50.0") == "f:3:14: sm_percent is an integer of 0 to 100, not 50.0\n");
  CHECK(tenant("weight = -1") == "f:3:10: weight is a number above 0, up to 1000000, not -1\n");
  CHECK(tenant("weight = 1e99") ==
        "f:3:10: weight is a number above 0, up to 1000000, not 1e+99\n");
  CHECK(tenant("weight = nan") == "f:3:10: weight is a number above 0, up to 1000000, not nan\n");
  CHECK(tenant("weight = true") ==
        "f:3:10: weight is a number above 0, up to 1000000, not true or false\n");
  CHECK(tenant("users = [-1]") ==
        "f:3:9: users is an array of names or ids, as [\"alice\", 1001], not an array of other "
        "values or of more than 1024\n");
  CHECK_THAT(Problems("tenant = [1]\n"), Catch::Contains("[[tenant]]"));
  CHECK_THAT(Problems("tenant = 1\n"), Catch::Contains("[[tenant]]"));
  CHECK_THAT(Problems("[policy]\nname = \"static\"\n[[tenant]]\nname = \"a\"\nsm_percent = 60\n"
                      "[[tenant]]\nname = \"b\"\nsm_percent = 60\n"),
             Catch::Contains("more than 100 percent"));
}

TEST_CASE("Messages cannot contain a terminal's control characters") {
  const std::string problems = Problems("[daemon]\n\"a\\u001b[2J\" = 1\n");
  CHECK(problems.find('\x1b') == std::string::npos);
  CHECK_THAT(problems, Catch::Contains("has no \"a?[2J\""));
  // Nor what the parser quotes.
  CHECK_THAT(Problems("on = t\x1b[2J\n"), !Catch::Contains("\x1b"));
}

TEST_CASE("Durations and sizes have units") {
  policy::Nanoseconds duration = 0;
  for (const auto& [text, expected] :
       std::vector<std::pair<std::string, int64_t>>{{"250ns", 250},
                                                    {"30us", 30'000},
                                                    {"5ms", 5'000'000},
                                                    {"1s", 1'000'000'000},
                                                    {"1.5 ms", 1'500'000}}) {
    REQUIRE(ParseDuration(text, &duration));
    CHECK(duration == expected);
    REQUIRE(ParseDuration(DurationText(expected), &duration));
    CHECK(duration == expected);
  }
  for (const char* text : {"", "ms", "5", "5 m s", "5min", "--5ms", "0x5ms", "."})
    CHECK_FALSE(ParseDuration(text, &duration));
  int64_t bytes = 0;
  for (const auto& [text, expected] :
       std::vector<std::pair<std::string, int64_t>>{{"4096", 4096},
                                                    {"1KiB", 1024},
                                                    {"64MB", 64 << 20},
                                                    {"1.5g", int64_t{3} << 29},
                                                    {"2 TiB", int64_t{2} << 40}}) {
    REQUIRE(ParseSize(text, &bytes));
    CHECK(bytes == expected);
    REQUIRE(ParseSize(SizeText(expected), &bytes));
    CHECK(bytes == expected);
  }
  CHECK(SizeText(0) == "0");
  CHECK(SizeText(1000) == "1000");
  CHECK(SizeText(int64_t{3} << 29) == "1536MiB");
  CHECK(SizeText(int64_t{1} << 52) == "4096TiB");
  for (const char* text : {"", "GiB", "1PiB", "1 G i B", "-1", "9999999999TiB", "1iB"})
    CHECK_FALSE(ParseSize(text, &bytes));
}

TEST_CASE("A change is divided into the keys of a reload and those of a restart") {
  const Config before = Parsed("[daemon]\nlog_level = \"info\"\n");
  const ConfigChange change = Compare(
      before, Parsed("[daemon]\nlog_level = \"debug\"\nbackend = \"soft\"\n[[tenant]]\nname = "
                     "\"a\"\nusers = [\"x\"]\n"));
  CHECK(change.live ==
        std::vector<std::string>{"[daemon] log_level", "[[tenant]]", "who may be which tenant"});
  CHECK(change.restart == std::vector<std::string>{"[daemon] backend"});
  CHECK(change.access);
}

class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    char name[] = "/tmp/detshare-config-XXXXXX";
    close(mkstemp(name));
    path = name;
    std::ofstream(path) << text;
  }
  ~TempFile() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST_CASE("Files that other users may write, and anything but files, are refused") {
  TempFile file("[daemon]\nlog_level = \"debug\"\n");
  REQUIRE(LoadConfig(file.path).ok());
  CHECK(LoadConfig(file.path)->log_level == "debug");
  chmod(file.path.c_str(), 0646);
  CHECK_THAT(std::string(LoadConfig(file.path).status().message()), Catch::Contains("chmod o-w"));
  chmod(file.path.c_str(), 0644);
  // Not every sandbox allows this.
  if (chown(file.path.c_str(), 12345, 0) == 0) {
    CHECK_THAT(std::string(LoadConfig(file.path).status().message()), Catch::Contains("chown"));
  }
  chmod(file.path.c_str(), 0664);
  if (chown(file.path.c_str(), 0, 12345) == 0) {
    CHECK_THAT(std::string(LoadConfig(file.path).status().message()), Catch::Contains("chmod g-w"));
  }
  if (chown(file.path.c_str(), 0, 0) == 0) CHECK(LoadConfig(file.path).ok());
  CHECK(LoadConfig("/nowhere/at/all").status().code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(LoadConfig("/tmp").ok());
  CHECK_FALSE(LoadConfig("/dev/zero").ok());
  TempFile fifo("");
  std::filesystem::remove(fifo.path);
  REQUIRE(mkfifo(fifo.path.c_str(), 0600) == 0);
  CHECK_FALSE(LoadConfig(fifo.path).ok());
  TempFile large(std::string((1 << 20) + 1, '#'));
  CHECK_THAT(std::string(LoadConfig(large.path).status().message()), Catch::Contains("1 MiB"));
  TempFile wrong("[daemon]\nx = 1\n");
  CHECK_THAT(std::string(LoadConfig(wrong.path).status().message()),
             Catch::StartsWith(wrong.path + ":2:1: "));
}

TEST_CASE("A limit of a session is at most what a session may have") {
  const std::pair<std::string, uint32_t> caps[] = {{"contexts", kMaxContexts},
                                                   {"streams", kMaxStreams},
                                                   {"events", kMaxEvents},
                                                   {"libraries", kMaxLibraries},
                                                   {"kernels", kMaxKernels}};
  for (const auto& [key, cap] : caps) {
    const auto problems = [&key = key](uint64_t limit) {
      return Problems("[limits]\n" + key + " = " + std::to_string(limit) + "\n");
    };
    CHECK(problems(cap) == "");
    CHECK_THAT(problems(cap + uint64_t{1}),
               Catch::StartsWith("f:2:") && Catch::Contains(std::to_string(cap)));
  }
}

TEST_CASE("The parser survives any bytes") {
  for (const std::string& text :
       {std::string(1 << 16, '['), std::string(1 << 16, '{'), "a = " + std::string(1 << 16, '['),
        std::string("\0\0\0", 3), std::string("\xff\xfe[\x00]", 5),
        std::string("[daemon]\nsocket = \"\\u0000x\"\n"), std::string("[="), std::string("[a.\n"),
        std::string("[a]\n=\n"), std::string("a.b.c.d.e.f = 1"), std::string("[[daemon]]\n"),
        std::string("[tenant]\n"), std::string("[policy]\nparameters = 3\n"),
        std::string("[policy.parameters]\na = [1]\n"),
        std::string("[limits]\nstreams = 9223372036854775808\n"),
        std::string("[software_gpu]\nmemory = \"999999999999999999999999TiB\"\n")}) {
    CHECK_FALSE(ParseConfig(text).problems.empty());
  }
}

TEST_CASE("The reference names every key") {
  for (const std::string& text : {ReferenceMarkdown(), ReferenceMan("1.2.3")}) {
    for (const ConfigSetting& setting : AllConfigSettings())
      CHECK_THAT(text, Catch::Contains(std::string(setting.key)));
    for (const TenantKey& key : TenantKeys())
      CHECK_THAT(text, Catch::Contains(std::string(key.key)));
  }
}

TEST_CASE("Limits that programs can get around are named") {
  Config config;
  TenantConfig tenant;
  tenant.tenant.name = "chat";
  config.tenants.push_back(tenant);
  CHECK(Cautions(config).empty());
  config.tenants[0].quota.memory = 1 << 20;
  REQUIRE(Cautions(config).size() == 1);
  CHECK_THAT(Cautions(config)[0], Catch::StartsWith("[[tenant]] chat: programs get around"));
  SECTION("not if unlisted tenants are refused") { config.unlisted_tenants = "refuse"; }
  SECTION("not if they have limits, too") { config.default_memory = 1 << 20; }
  CHECK(Cautions(config).empty());
}

TEST_CASE("Settings without an effect under the isolation are named") {
  Config config;
  TenantConfig tenant;
  tenant.tenant.name = "chat";
  tenant.group = "web";
  config.tenants.push_back(tenant);
  config.engine_users = "1000-1003";
  config.spare_engines = 2;
  const std::vector<std::string> cautions = Cautions(config);
  REQUIRE(cautions.size() == 3);
  CHECK_THAT(cautions[0], Catch::StartsWith("[daemon] engine_users: has no effect"));
  CHECK_THAT(cautions[1], Catch::StartsWith("[daemon] spare_engines: has no effect"));
  CHECK_THAT(cautions[2], Catch::StartsWith("[[tenant]] chat: group has no effect"));
  config.isolation = "tenant";
  CHECK(Cautions(config).size() == 1);
  config.isolation = "group";
  CHECK(Cautions(config).empty());
}

TEST_CASE("The runtime directory is the socket's, however the two are written") {
  char pattern[] = "/tmp/detshare-config-XXXXXX";
  const std::string folder = mkdtemp(pattern);
  const std::string run = folder + "/run";
  const std::string socket = run + "/d.sock";
  for (const bool exists : {false, true}) {
    CAPTURE(exists);
    if (exists) std::filesystem::create_directory(run);
    for (const std::string& same : {run, run + "/", folder + "/./run", run + "/../run"})
      CHECK(CheckRuntimeDirectory(same, socket).ok());
    const absl::Status other = CheckRuntimeDirectory(folder, socket);
    CHECK(absl::IsInvalidArgument(other));
    CHECK_THAT(std::string(other.message()),
               Catch::Contains("--socket " + folder + "/detshared.sock"));
  }
  std::filesystem::create_directory_symlink(run, folder + "/link");
  CHECK(CheckRuntimeDirectory(folder + "/link", socket).ok());
  CHECK(CheckRuntimeDirectory("/", "/d.sock").ok());
  CHECK(CheckRuntimeDirectory(".", "d.sock").ok());

  Config config;
  config.runtime_dir = folder;
  for (const char* const named : {socket.c_str(), ""}) {  // "": the default, in /run/detshare
    config.socket = named;
    REQUIRE(Obstacles(config).size() == 1);
    CHECK_THAT(Obstacles(config)[0],
               Catch::Contains("beside the socket") && Catch::Contains("--socket " + folder));
  }
  config.runtime_dir = "/run/detshare/";
  CHECK(Obstacles(config).empty());
  std::filesystem::remove_all(folder);
}

TEST_CASE("An address that other machines reach needs a token") {
  Config config;
  CHECK(CheckMetrics(config).ok());
  config.metrics_listen = "127.0.0.1:9464";
  CHECK(CheckMetrics(config).ok());
  config.metrics_listen = "0.0.0.0:9464";
  CHECK(absl::IsInvalidArgument(CheckMetrics(config)));
  REQUIRE(Obstacles(config).size() == 1);
  CHECK_THAT(Obstacles(config)[0],
             Catch::Contains("name a token_file, too (--metrics-token-file)"));
  config.metrics_token_file = "/etc/detshare/token";
  CHECK(CheckMetrics(config).ok());
  CHECK(Obstacles(config).empty());
}

}  // namespace
}  // namespace detshare
