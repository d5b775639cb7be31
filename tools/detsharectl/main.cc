// detsharectl: shows the state of a running detshared, changes its settings, and verifies programs.
//
// Exit codes: 0; 1 if the daemon refused or failed, a configuration has mistakes, the doctor found an
// error, or the output could not be written; 2 for a wrong command line; 3 if no daemon replies.
// `verify` has its own codes (verify.h).
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "policy/config/config_text.h"
#include "proto/admin.grpc.pb.h"
#include "proto/command_line.h"
#include "tools/detshare/launch.h"
#include "tools/detsharectl/api.h"
#include "tools/detsharectl/cdi.h"
#include "tools/detsharectl/config.h"
#include "tools/detsharectl/daemon.h"
#include "tools/detsharectl/doctor.h"
#include "tools/detsharectl/endpoint.h"
#include "tools/detsharectl/events.h"
#include "tools/detsharectl/names.h"
#include "tools/detsharectl/sessions.h"
#include "tools/detsharectl/settings.h"
#include "tools/detsharectl/status.h"
#include "tools/detsharectl/top.h"
#include "tools/detsharectl/trace.h"
#include "tools/detsharectl/verify.h"
#include "tools/text/table.h"

extern char** environ;

namespace detshare::ctl {
namespace {

struct Options {
  std::string socket;
  bool json = false;
  ApiOptions api;
  VerifyOptions verify;
  std::string config_file;
  std::string policy;
  std::vector<std::string> parameters;
  TenantFlags tenant;
  TopOptions top;
  TraceOptions trace;
  EndpointOptions endpoint;
  CdiOptions cdi;
  EventsOptions events;
  bool all_partitions = false;
  std::vector<std::string> to_end;  // numbers of sessions, or the name of a tenant
  std::string tenant_to_end;
  std::string kind_of_names;
};

// Returns the name of the command that the arguments begin with; "" if they have none.
std::string CommandOf(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--socket") {
      ++i;  // its value
    } else if (arguments[i].empty() || arguments[i].front() != '-') {
      return arguments[i];
    }
  }
  return "";
}

// Removes the first `--` of `verify` and the arguments behind it, and returns these arguments: the
// command line of another program. Behind the `--` of other commands are arguments of their own.
std::vector<std::string> TakeCommand(std::vector<std::string>* arguments) {
  const auto mark = std::find(arguments->begin(), arguments->end(), "--");
  if (mark == arguments->end() || CommandOf(*arguments) != "verify") return {};
  std::vector<std::string> command(mark + 1, arguments->end());
  arguments->erase(mark, arguments->end());
  return command;
}

std::string DefaultSocket() {
  const char* socket = std::getenv("DETSHARE_SOCKET");
  return socket != nullptr && *socket != '\0' ? socket : "/run/detshare/detshared.sock";
}

void Print(const std::string& text) { std::fputs(text.c_str(), stdout); }

// Names what a person has probably meant by a name that the daemon does not know.
void PrintHint(const Options& options, const std::string& name, const char* kind) {
  std::fputs(HintAt(name, NamesOf(kind, options.socket)).c_str(), stderr);
}

int Usage(const absl::Status& status) {
  std::fprintf(stderr, "detsharectl: %s\n", std::string(status.message()).c_str());
  return kExitUsage;
}

using TextPrinter = std::function<std::string(const proto::Status& status, size_t width)>;
using JsonPrinter = std::string (*)(const proto::Status& status);

int PrintStatus(const Options& options, const TextPrinter& as_text, JsonPrinter as_json) {
  proto::Status status;
  const int code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.GetStatus(context, proto::GetStatusRequest(), &status);
  });
  if (code == 0) Print(options.json ? as_json(status) : as_text(status, text::TerminalWidth()));
  std::fputs(SilentEnginesText(status).c_str(), stderr);
  return code;
}

int PrintTenantUse(const Options& options) {
  proto::Status status;
  proto::Tenants tenants;
  int code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.GetStatus(context, proto::GetStatusRequest(), &status);
  });
  if (code != 0) return code;
  code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.GetTenants(context, proto::GetTenantsRequest(), &tenants);
  });
  if (code == 0) {
    Print(options.json ? TenantUseJson(status, tenants)
                       : TenantUseText(status, tenants, text::TerminalWidth()));
  }
  std::fputs(SilentEnginesText(status).c_str(), stderr);
  return code;
}

int EndSessions(const Options& options) {
  const absl::StatusOr<proto::EndSessionsRequest> request =
      ToEndRequest(options.to_end, options.tenant_to_end);
  if (!request.ok()) return Usage(request.status());
  proto::EndedSessions ended;
  const int code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.EndSessions(context, *request, &ended);
  });
  if (code == 0) Print((options.json ? EndedJson : EndedText)(ended));
  if (code == kExitRefused && !request->tenant().empty())
    PrintHint(options, request->tenant(), "tenants");
  return code;
}

int ReloadConfig(const Options& options) {
  proto::Reloaded reloaded;
  const int code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.Reload(context, proto::ReloadRequest(), &reloaded);
  });
  if (code == 0) Print((options.json ? ReloadedJson : ReloadedText)(reloaded));
  return code;
}

int PrintPolicies(const Options& options, bool one) {
  proto::Policies policies;
  const int code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.GetPolicies(context, proto::GetPoliciesRequest(), &policies);
  });
  if (code != 0) return code;
  if (!one) {
    Print(options.json ? PoliciesJson(policies) : PoliciesText(policies, text::TerminalWidth()));
    return 0;
  }
  const absl::StatusOr<std::string> shown =
      options.json ? PolicyJson(policies, options.policy)
                   : PolicyText(policies, options.policy, text::TerminalWidth());
  if (!shown.ok()) {
    const int usage = Usage(shown.status());
    PrintHint(options, options.policy, "policies");
    return usage;
  }
  Print(*shown);
  return 0;
}

int SetPolicy(const Options& options) {
  proto::PolicySetting setting, in_force;
  setting.set_name(options.policy);
  if (absl::Status status = AddParameters(options.parameters, &setting); !status.ok())
    return Usage(status);
  const int code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.SetPolicy(context, setting, &in_force);
  });
  if (code == 0) {
    Print(options.json ? PolicySettingJson(in_force)
                       : "Policy " + in_force.name() + " is in force.\n");
  }
  if (code == kExitRefused) PrintHint(options, options.policy, "policies");
  return code;
}

int PrintTenants(const Options& options) {
  proto::Tenants tenants;
  const int code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.GetTenants(context, proto::GetTenantsRequest(), &tenants);
  });
  if (code == 0)
    Print(options.json ? TenantsJson(tenants) : TenantsText(tenants, text::TerminalWidth()));
  return code;
}

// The command's own options, such as "--class, --weight".
std::string OptionsOf(const CLI::App& command) {
  std::string names;
  for (const CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr()) continue;
    for (const std::string& name : option->get_lnames())
      names += (names.empty() ? "--" : ", --") + name;
  }
  return names;
}

// `command` is the one that the command line names.
int SetTenant(const Options& options, const CLI::App& command) {
  const absl::StatusOr<proto::TenantSetting> setting = ToSetting(options.tenant);
  if (!setting.ok()) return Usage(setting.status());
  proto::TenantSetting nothing;
  nothing.set_name(setting->name());
  if (setting->ByteSizeLong() == nothing.ByteSizeLong()) {
    return Usage(absl::InvalidArgumentError("tenant set needs at least one setting to change: " +
                                            OptionsOf(command)));
  }
  proto::Tenants known, in_force;
  int code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.GetTenants(context, proto::GetTenantsRequest(), &known);
  });
  if (code != 0) return code;
  code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.SetTenant(context, *setting, in_force.add_tenants());
  });
  if (code == 0) std::fputs(NoteOfNewTenant(known, setting->name()).c_str(), stderr);
  if (code == 0)
    Print(options.json ? TenantsJson(in_force) : TenantsText(in_force, text::TerminalWidth()));
  return code;
}

int UnsetTenant(const Options& options) {
  proto::UnsetTenantRequest request;
  request.set_name(options.tenant.name);
  proto::Tenants in_force;
  const int code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.UnsetTenant(context, request, &in_force);
  });
  if (code == 0) Print(options.json ? TenantsJson(in_force) : UnsetText(request.name(), in_force));
  if (code == kExitRefused) PrintHint(options, request.name(), "tenants");
  return code;
}

int PrintApi(const Options& options) {
  Print(options.json ? ApiJson(options.api) : ApiText(options.api, text::TerminalWidth()));
  return 0;
}

void AddVerify(CLI::App& app, VerifyOptions& options) {
  CLI::App* const verify = app.add_subcommand(
      "verify", "Check that a program reads the same bits back alone and beside noisy neighbours");
  verify->footer(
      "detsharectl verify [OPTIONS] -- PROGRAM [ARGUMENTS...]\n"
      "If a run beside neighbours differs, the program runs again beside them with an exclusive "
      "tenant. A running daemon may have other programs, so the runs without neighbours have an "
      "exclusive tenant there, too; that needs root or a member of the daemon's admin_group.\n"
      "Exit codes: 0: the same bits; 1: different bits; 2: the program could not be run; 3: two "
      "runs without neighbours differ already; 4: the same bits in exclusive turns, but not in "
      "space.");
  CLI::Option* const standalone =
      verify
          ->add_flag("--standalone{auto}", options.standalone,
                     "Use a private daemon, which moves work all the time: --standalone, "
                     "--standalone=soft or --standalone=cuda [the running daemon]")
          ->check(CLI::IsMember({"auto", "soft", "cuda"}));
  verify->add_option("--policy", options.policy, "Policy of the private daemon [its default]")
      ->needs(standalone)
      ->type_name("POLICY");
  verify
      ->add_option("--daemon-flag", options.daemon_flags,
                   "Flag of the private daemon, for example --daemon-flag=--soft-sms=16; may be "
                   "repeated")
      ->needs(standalone)
      ->type_name("FLAG");
  verify
      ->add_option("--migrate-every", options.migrate_every,
                   "Operations after which the private daemon moves work to other SMs, except in "
                   "exclusive turns; 0: when the policy says so")
      ->needs(standalone)
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  verify->add_option("--neighbours", options.neighbours, "Number of noisy neighbours")
      ->capture_default_str()
      ->check(CLI::Range(0, 64));
  verify
      ->add_option("--runs", options.runs,
                   "Number of runs beside neighbours, and in exclusive turns")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
}

int PrintDoctor(const Options& options) {
  Host host;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const size_t equals = variable.find('=');
    if (equals != std::string::npos)
      host.environment[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  host.socket = options.socket;
  host.config_file = options.config_file.empty() ? kDefaultConfigFile : options.config_file;
  host.shim_directories = tools::ShimDirectories(tools::OwnDirectory());
  proto::Status status;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const grpc::Status result = AdminAt(options.socket)->GetStatus(&context, {}, &status);
  if (result.ok()) {
    host.status = status;
  } else {
    const Failure failure = FailureOf(result, options.socket);
    host.no_status = failure.text;
    host.no_status_advice = failure.hint;
    host.refuses = failure.exit_code == kExitRefused;
  }
  const std::vector<Finding> findings = Examine(host);
  std::fputs((options.json ? FindingsJson(findings) : FindingsText(findings)).c_str(), stdout);
  return Broken(findings) ? kExitRefused : 0;
}

// The work that the command line asks for. Returns an exit code.
using Action = std::function<int()>;

void AddPolicy(CLI::App& app, Options& options, Action& action) {
  CLI::App* const policy = app.add_subcommand("policy", "Show and set the scheduling policy");
  policy->require_subcommand(0, 1);
  policy->final_callback([&, policy] {
    if (policy->get_subcommands().empty()) action = [&] { return PrintPolicies(options, false); };
  });
  policy->add_subcommand("list", "List all policies")->final_callback([&] {
    action = [&] { return PrintPolicies(options, false); };
  });
  CLI::App* const show = policy->add_subcommand("show", "Show the parameters of a policy");
  show->add_option("POLICY", options.policy, "A policy [the one in force]");
  show->final_callback([&] { action = [&] { return PrintPolicies(options, true); }; });
  CLI::App* const set = policy->add_subcommand("set", "Put a policy in force, at once");
  set->add_option("POLICY", options.policy, "Name of a policy, or path of a shared object")
      ->required();
  set->add_option("--param", options.parameters,
                  "A parameter of the policy; may be repeated [its default]")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  set->final_callback([&] { action = [&] { return SetPolicy(options); }; });
}

void AddTenant(CLI::App& app, Options& options, Action& action) {
  CLI::App* const tenant = app.add_subcommand("tenant", "Show and change the settings of tenants");
  tenant->require_subcommand(1);
  tenant->add_subcommand("list", "List the tenants that have settings")->final_callback([&] {
    action = [&] { return PrintTenants(options); };
  });
  CLI::App* const set =
      tenant->add_subcommand("set", "Change the named settings of a tenant, at once");
  TenantFlags& flags = options.tenant;
  set->add_option("TENANT", flags.name, "The tenant")->required();
  set->add_option("--class", flags.tenant_class, "Whether users wait for its results")
      ->type_name("latency|batch|unset");
  set->add_option("--weight", flags.weight, "Weight of its share, for policies with fair shares")
      ->type_name("N");
  set->add_option("--share", flags.share, "Fixed share of the SMs, in percent")->type_name("N");
  set->add_option("--exclusive", flags.exclusive,
                  "Whether its kernels run only in turns with those of other tenants")
      ->type_name("on|off");
  set->add_option("--sms", flags.sms, "Bounds of its partitions, in SMs")->type_name("MIN..MAX");
  set->add_option("--slo-latency", flags.slo_latency, "Objective for the length of a burst of work")
      ->type_name("TIME");
  set->add_option("--slo-ttft", flags.slo_ttft, "Objective for the time to first token")
      ->type_name("TIME");
  set->add_option("--slo-tpot", flags.slo_tpot, "Objective for the time per output token")
      ->type_name("TIME");
  set->add_option("--memory", flags.memory,
                  "Limit of its device memory, on each device; 0: no limit")
      ->type_name("SIZE");
  set->add_option("--pinned-memory", flags.pinned_memory,
                  "Limit of its pinned host memory; 0: no limit")
      ->type_name("SIZE");
  set->add_option("--sessions", flags.sessions, "Limit of its programs at a time; 0: no limit")
      ->type_name("N");
  set->add_option("--devices", flags.devices,
                  "Limit of the devices of a program, for programs that begin afterwards; 0: all")
      ->type_name("N");
  set->final_callback([&, set] { action = [&, set] { return SetTenant(options, *set); }; });
  CLI::App* const unset = tenant->add_subcommand(
      "unset", "Give a tenant back the settings of the configuration and of its endpoints");
  unset->add_option("TENANT", flags.name, "The tenant")->required();
  unset->final_callback([&] { action = [&] { return UnsetTenant(options); }; });
}

void AddEndpoint(CLI::App& app, Options& options, Action& action) {
  CLI::App* const endpoint = app.add_subcommand(
      "endpoint", "Open, close and list tenant endpoints: sockets for containers");
  endpoint->require_subcommand(1);
  const auto decide = [&](CLI::App* command, int (*act)(const EndpointOptions&)) {
    command->final_callback([&options, &action, act] {
      action = [&options, act] {
        options.endpoint.socket = options.socket;
        options.endpoint.json = options.json;
        return act(options.endpoint);
      };
    });
  };
  decide(endpoint->add_subcommand("list", "List the open endpoints"), PrintEndpoints);
  CLI::App* const open = endpoint->add_subcommand(
      "open",
      "Open an endpoint and print its directory, to be mounted as /run/detshare; first close an "
      "endpoint of the same name");
  CLI::App* const own = endpoint->add_subcommand(
      "owner",
      "Set the owner of an open endpoint, in place of the former one; without an option: no owner");
  CLI::App* const close = endpoint->add_subcommand("close", "Close an endpoint; its sessions end");
  open->add_option("NAME", options.endpoint.name, "The endpoint")->required();
  for (CLI::App* command : {own, close})
    command->add_option("ENDPOINT", options.endpoint.name, "The endpoint")->required();
  for (CLI::App* command : {open, own}) {
    OwnerFlags& owner = options.endpoint.owner;
    command
        ->add_option("--pod", owner.pod,
                     "The pod and container behind it, for status, events and metrics")
        ->type_name("NAMESPACE/POD[/CONTAINER]");
    command->add_option("--user", owner.user, "The user behind it")->type_name("NAME");
    command->add_option("--job", owner.job, "The job behind it")->type_name("NAME");
  }
  TenantFlags& flags = options.endpoint.tenant;
  open->add_option("--tenant", flags.name,
                   "Tenant of the programs that use the endpoint [the endpoint's name]")
      ->type_name("TENANT");
  open->add_option("--device", options.endpoint.devices,
                   "Show only this device (index or UUID) to its programs; may be repeated")
      ->type_name("N")
      ->allow_extra_args(false);
  open->add_option("--class", flags.tenant_class, "Whether users wait for its results")
      ->type_name("latency|batch|unset");
  open->add_option("--weight", flags.weight, "Weight of its share, for policies with fair shares")
      ->type_name("N");
  open->add_option("--exclusive", flags.exclusive,
                   "Whether its kernels run only in turns with those of other tenants")
      ->type_name("on|off");
  open->add_option("--sms", flags.sms, "Bounds of its partitions, in SMs")->type_name("MIN..MAX");
  open->add_option("--memory", flags.memory,
                   "Limit of the device memory of all its programs, on each device")
      ->type_name("SIZE");
  open->add_option("--pinned-memory", flags.pinned_memory, "Limit of its pinned host memory")
      ->type_name("SIZE");
  open->add_option("--sessions", flags.sessions, "Limit of its programs at a time")->type_name("N");
  open->add_option("--devices", flags.devices,
                   "Show this many of the devices; the daemon chooses them when the first program "
                   "comes")
      ->type_name("N");
  open->add_option("--slo-latency", flags.slo_latency,
                   "Objective for the length of a burst of work")
      ->type_name("TIME");
  open->add_option("--slo-ttft", flags.slo_ttft, "Objective for the time to first token")
      ->type_name("TIME");
  open->add_option("--slo-tpot", flags.slo_tpot, "Objective for the time per output token")
      ->type_name("TIME");
  decide(open, OpenEndpoint);
  decide(own, SetEndpointOwner);
  decide(close, CloseEndpoint);
}

void AddCdi(CLI::App& app, Options& options, Action& action) {
  CLI::App* const cdi = app.add_subcommand(
      "cdi", "Tell container runtimes of the open endpoints, as devices detshare.io/gpu=ENDPOINT");
  cdi->require_subcommand(1);
  cdi->add_option("--libraries", options.cdi.libraries,
                  "The directory of libcuda.so.1 and libnvidia-ml.so.1 for containers [looked for]")
      ->type_name("DIR");
  const auto decide = [&](CLI::App* command, int (*act)(const CdiOptions&)) {
    command->final_callback([&options, &action, act] {
      action = [&options, act] {
        options.cdi.socket = options.socket;
        return act(options.cdi);
      };
    });
  };
  CLI::App* const generate = cdi->add_subcommand("generate", "Print a specification");
  CLI::App* const watch = cdi->add_subcommand(
      "watch", "Keep detshare.json as the open endpoints are, until it is ended");
  watch->add_option("--directory", options.cdi.directory, "Where runtimes look for specifications")
      ->type_name("DIR")
      ->capture_default_str();
  decide(generate, PrintCdi);
  decide(watch, WatchCdi);
}

void AddSessions(CLI::App& app, Options& options, Action& action) {
  const auto list = [&] {
    action = [&] { return PrintStatus(options, SessionsText, SessionsJson); };
  };
  CLI::App* const sessions = app.add_subcommand("sessions", "List and end sessions");
  sessions->require_subcommand(0, 1);
  sessions->final_callback([list, sessions] {
    if (sessions->get_subcommands().empty()) list();
  });
  sessions->add_subcommand("list", "List all sessions")->final_callback(list);
  CLI::App* const kill = sessions->add_subcommand(
      "kill",
      "End all named sessions, or none of them if you may not end all. Root and members of the "
      "admin group may end sessions of all users, other users their own");
  kill->add_option("WHO", options.to_end, "Numbers of sessions, or the name of a tenant");
  kill->add_option("--tenant", options.tenant_to_end, "End all sessions of this tenant")
      ->type_name("TENANT");
  kill->footer("From then on the programs' calls return CUDA_ERROR_NOT_PERMITTED.");
  kill->final_callback([&] { action = [&] { return EndSessions(options); }; });

  app.add_subcommand("tenants", "Show what each tenant uses")->final_callback([&] {
    action = [&] { return PrintTenantUse(options); };
  });
  CLI::App* const partitions = app.add_subcommand(
      "partitions", "Show the partitions of the devices, with the number of sessions on each");
  partitions->add_flag("--all", options.all_partitions,
                       "Show also partitions without sessions; --json always does");
  partitions->final_callback([&] {
    action = [&] {
      const auto as_text = [&](const proto::Status& status, size_t width) {
        return PartitionsText(status, options.all_partitions, width);
      };
      return PrintStatus(options, as_text, PartitionsJson);
    };
  });
}

void AddEvents(CLI::App& app, Options& options, Action& action) {
  CLI::App* const events =
      app.add_subcommand("events", "Show what happened to sessions and settings");
  EventsOptions& what = options.events;
  events->add_flag("--follow,-f", what.follow, "Go on with new events");
  events->add_option("--count,-n", what.count, "Number of past events to show, at most")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  events->add_option("--session", what.session, "Show only events of this session")
      ->check(NotNegative())
      ->type_name("SESSION");
  events->add_option("--tenant", what.tenant, "Show only events of this tenant")
      ->type_name("TENANT");
  events->add_option("--kind", what.kind, "Show only events of this kind")
      ->check(CLI::IsMember({"started", "engine-started", "engine-adopted", "engine-ended",
                             "opened", "refused", "ended", "killed", "violation", "limit", "fault",
                             "policy", "tenant", "endpoint", "config", "trace", "device-lost"}));
  events->footer("The daemon keeps the latest 4096 events. --json prints one object on each line.");
  events->final_callback([&] {
    action = [&] {
      what.socket = options.socket;
      what.json = options.json;
      return Events(what);
    };
  });
}

void AddTop(CLI::App& app, Options& options, Action& action) {
  CLI::App* const top =
      app.add_subcommand("top", "Show how much each session uses the devices, refreshed");
  top->add_option("--seconds", options.top.seconds, "Time between two readings, 0.1 to 3600")
      ->capture_default_str()
      ->check(NumberIn(0.1, 3600).description(""))
      ->type_name("SECONDS");
  top->add_option(
         "--sort", options.top.sort,
         "What comes first: most GPU time, most memory, most operations, or the lowest rank")
      ->capture_default_str()
      ->check(CLI::IsMember({"gpu", "memory", "operations", "rank"}));
  top->add_flag("--once", options.top.once, "Print one reading, then end");
  top->footer("On a terminal, q ends it. NO_COLOR=1 switches colours off.");
  top->final_callback([&] {
    action = [&] {
      options.top.socket = options.socket;
      options.top.json = options.json;
      return Top(options.top);
    };
  });
}

void AddTrace(CLI::App& app, Options& options, Action& action) {
  CLI::App* const trace = app.add_subcommand(
      "trace", "Write what happens on the devices to a file for ui.perfetto.dev");
  trace->add_option("--out", options.trace.out, "The file to write, of Chrome's trace format")
      ->type_name("FILE")
      ->required();
  trace->add_option("--seconds", options.trace.seconds, "Length of the trace, 0.05 to 600")
      ->capture_default_str()
      ->check(NumberIn(0.05, 600).description(""))
      ->type_name("SECONDS");
  trace->final_callback([&] {
    action = [&] {
      options.trace.socket = options.socket;
      return Trace(options.trace);
    };
  });
}

// Shells call it; help does not show it.
void AddNames(CLI::App& app, Options& options, Action& action) {
  CLI::App* const names = app.add_subcommand("names", "Print names for a shell's completion");
  names->group("");
  names->add_option("KIND", options.kind_of_names, "What to name")
      ->required()
      ->check(CLI::IsMember({"tenants", "policies", "sessions", "endpoints"}));
  names->final_callback(
      [&] { action = [&] { return PrintNames(options.kind_of_names, options.socket); }; });
}

int Main(int argc, char** argv) {
  // Messages of detsharectl say what is wrong; those of gRPC's own log do not.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  Options options;
  options.socket = DefaultSocket();
  CLI::App app("Inspects and administers a running detshared.", "detsharectl");
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--socket", options.socket, "The daemon's socket; DETSHARE_SOCKET sets it, too")
      ->type_name("PATH")
      ->capture_default_str();
  app.add_flag("--json", options.json, "Print JSON");
  CLI::App* status =
      app.add_subcommand("status", "Show the daemon, its devices, memory and sessions");
  CLI::App* api = app.add_subcommand(
      "api", "Show the driver entry points and how far each is supported (needs no daemon)");
  api->add_flag("--unsupported", options.api.unsupported,
                "Show only entry points that are not supported in full, with the reasons");
  AddVerify(app, options.verify);
  Action action;
  AddPolicy(app, options, action);
  AddTenant(app, options, action);
  AddEndpoint(app, options, action);
  AddCdi(app, options, action);
  AddTop(app, options, action);
  AddTrace(app, options, action);
  AddSessions(app, options, action);
  AddEvents(app, options, action);
  AddNames(app, options, action);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  options.verify.command = TakeCommand(&arguments);
  CLI::App* config =
      app.add_subcommand("config", "Check, show and reload the daemon's configuration file");
  config->require_subcommand(1);
  CLI::App* check =
      config->add_subcommand("check", "Find mistakes, with line and column (needs no daemon)");
  CLI::App* show =
      config->add_subcommand("show", "Show all settings, with the defaults (needs no daemon)");
  for (CLI::App* command : {check, show}) {
    command->add_option("FILE", options.config_file, "The file [/etc/detshare/detshare.toml]")
        ->type_name("FILE");
  }
  CLI::App* example = config->add_subcommand(
      "example", "Print a file to begin with, which explains every key (needs no daemon)");
  config
      ->add_subcommand(
          "reload",
          "Let the daemon read its file again, and show what changed and what needs a restart")
      ->final_callback([&] { action = [&] { return ReloadConfig(options); }; });
  CLI::App* doctor =
      app.add_subcommand("doctor", "Find what is wrong on this host, and say what to do about it");
  doctor
      ->add_option("--config", options.config_file,
                   "The configuration file [/etc/detshare/detshare.toml]")
      ->type_name("FILE");
  doctor->footer(
      "Exit codes: 0: no error; 1: there is an error. Findings that need root are \"unknown\" for "
      "other users.");
  RefuseEmptyValues(app);
  if (const std::optional<int> code = ParseCommandLine(app, arguments, kExitUsage)) return *code;
  if (options.json && app.get_subcommand("trace")->parsed())
    return Usage(absl::InvalidArgumentError(
        "trace writes JSON to the file of --out, and prints none: leave --json out"));
  if (options.json && example->parsed())
    return Usage(absl::InvalidArgumentError(
        "config example prints TOML: leave --json out, or use config show --json"));
  if (action) return action();
  if (status->parsed()) return PrintStatus(options, StatusText, StatusJson);
  if (api->parsed()) return PrintApi(options);
  if (app.get_subcommand("verify")->parsed()) {
    if (options.verify.command.empty()) {
      std::fprintf(stderr, "detsharectl: verify needs a program: detsharectl verify -- PROGRAM\n");
      return kExitUsage;
    }
    options.verify.socket = options.socket;
    options.verify.json = options.json;
    return Verify(options.verify);
  }
  if (check->parsed()) return CheckConfig(options.config_file, options.json);
  if (show->parsed()) return ShowConfig(options.config_file, options.json);
  if (example->parsed()) {
    Print(ExampleText());
    return 0;
  }
  if (doctor->parsed()) return PrintDoctor(options);
  return kExitUsage;
}

}  // namespace
}  // namespace detshare::ctl

int main(int argc, char** argv) {
  return detshare::EndOutput("detsharectl", detshare::ctl::Main(argc, argv));
}
