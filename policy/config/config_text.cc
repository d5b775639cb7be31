#include "policy/config/config_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace detshare {
namespace {

constexpr size_t kColumns = 100;

const Config& Defaults() {
  static const Config* const defaults = new Config;
  return *defaults;
}

// A default as a value in TOML's notation ("64", "\"auto\""), or in words.
std::string DefaultText(const ConfigSetting& setting) {
  if (!setting.computed.empty()) return std::string(setting.computed);
  return ValueText(setting, Defaults());
}

std::string SectionHelp(absl::string_view section) {
  if (section == "limits") {
    return "Limits of one session; calls beyond them fail. A change holds for sessions that begin "
           "later.";
  }
  if (section == "tenant_defaults") {
    return "Limits of a tenant that has no [[tenant]] section, for all of its programs together. A "
           "user that may be any tenant (unlisted_tenants) may be several tenants.";
  }
  if (section == "metrics")
    return "Metrics for Prometheus and a dashboard for browsers, both read-only. Without an "
           "address, "
           "both are off.";
  if (section == "software_gpu") return "The software GPU, if it is the backend.";
  if (section == "policy") return "The scheduler's policy; `detsharectl policy list` names them.";
  return "The daemon itself.";
}

std::vector<absl::string_view> Sections() {
  std::vector<absl::string_view> sections;
  for (const ConfigSetting& setting : AllConfigSettings()) {
    if (sections.empty() || sections.back() != setting.section) sections.push_back(setting.section);
  }
  return sections;
}

std::string TomlString(absl::string_view text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

std::string TomlStrings(const std::vector<std::string>& texts) {
  return absl::StrCat("[",
                      absl::StrJoin(texts, ", ",
                                    [](std::string* out, const std::string& text) {
                                      out->append(TomlString(text));
                                    }),
                      "]");
}

// The text as lines of at most kColumns columns that begin with "# ".
std::string Comment(absl::string_view text) {
  std::string out, line = "#";
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const absl::string_view word = text.substr(begin, end - begin);
    if (line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&out, line, "\n");
      line = "#";
    }
    absl::StrAppend(&line, " ", word);
    begin = end + 1;
  }
  return out + line + "\n";
}

std::string LiveText(const ConfigSetting& setting) { return setting.live ? "reload" : "restart"; }

void AppendTenant(const TenantConfig& config, std::string* out) {
  const policy::Tenant& tenant = config.tenant;
  absl::StrAppend(out, "\n[[tenant]]\nname = ", TomlString(tenant.name), "\n");
  if (tenant.tenant_class != policy::TenantClass::kUnset) {
    absl::StrAppend(out, "class = \"",
                    tenant.tenant_class == policy::TenantClass::kLatency ? "latency" : "batch",
                    "\"\n");
  }
  if (tenant.max_sms > 0)
    absl::StrAppend(out, "sms = \"", tenant.min_sms, "..", tenant.max_sms, "\"\n");
  for (const TenantKey& key : TenantKeys()) {
    if (const auto* number = std::get_if<double policy::Tenant::*>(&key.field)) {
      if (tenant.*(*number) != policy::Tenant().*(*number))
        absl::StrAppend(out, key.key, " = ", NumberText(tenant.*(*number)), "\n");
    } else if (const auto* integer = std::get_if<int policy::Tenant::*>(&key.field)) {
      if (tenant.*(*integer) != 0) absl::StrAppend(out, key.key, " = ", tenant.*(*integer), "\n");
    } else if (const auto* flag = std::get_if<bool policy::Tenant::*>(&key.field)) {
      if (tenant.*(*flag)) absl::StrAppend(out, key.key, " = true\n");
    } else if (const auto* duration =
                   std::get_if<policy::Nanoseconds policy::Tenant::*>(&key.field)) {
      if (tenant.*(*duration) != 0)
        absl::StrAppend(out, key.key, " = \"", DurationText(tenant.*(*duration)), "\"\n");
    } else if (const auto* limit = std::get_if<uint64_t TenantQuota::*>(&key.field)) {
      if (config.quota.*(*limit) != 0)
        absl::StrAppend(out, key.key, " = ", config.quota.*(*limit), "\n");
    } else if (const auto* names =
                   std::get_if<std::vector<std::string> TenantConfig::*>(&key.field)) {
      if (!(config.*(*names)).empty())
        absl::StrAppend(out, key.key, " = ", TomlStrings(config.*(*names)), "\n");
    } else if (const auto* name = std::get_if<std::string TenantConfig::*>(&key.field)) {
      if (!(config.*(*name)).empty())
        absl::StrAppend(out, key.key, " = ", TomlString(config.*(*name)), "\n");
    }
  }
}

constexpr char kTenantExample[] = R"(# [[tenant]]
# name = "chat"
# class = "latency"
# slo_tpot = "40ms"
# memory = "60GiB"
# groups = ["inference"]
#
# [[tenant]]
# name = "training"
# class = "batch"
# users = ["alice", "bob"]
)";

std::string ManText(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}, {".", "\\&."}});
}

}  // namespace

std::string ExampleText() {
  std::string out =
      "# Configuration of detshared, in TOML. All settings are optional; the lines that are "
      "commented\n"
      "# out show the defaults. detshare.toml(5) explains every setting. `detsharectl config "
      "check`\n"
      "# finds mistakes, and `systemctl reload detshared` applies changes that need no restart.\n";
  for (const absl::string_view section : Sections()) {
    absl::StrAppend(&out, "\n", Comment(SectionHelp(section)), "[", section, "]\n");
    for (const ConfigSetting& setting : AllConfigSettings()) {
      if (setting.section != section) continue;
      std::string help = absl::StrCat(setting.help, ": ", Allowed(setting), ".");
      if (!setting.computed.empty()) absl::StrAppend(&help, " Default: ", setting.computed, ".");
      if (!setting.packaged.empty()) {
        absl::StrAppend(&help, " Without this line: ", ValueText(setting, Defaults()), ".");
        absl::StrAppend(&out, Comment(help), setting.key, " = ", TomlString(setting.packaged),
                        "\n");
        continue;
      }
      absl::StrAppend(&out, Comment(help), "#", setting.key, " = ",
                      setting.computed.empty() ? ValueText(setting, Defaults()) : "", "\n");
    }
  }
  absl::StrAppend(&out, "\n# The tenants that share the GPUs.\n", kTenantExample);
  return out;
}

std::string ConfigText(const Config& config) {
  std::string out;
  for (const absl::string_view section : Sections()) {
    absl::StrAppend(&out, out.empty() ? "" : "\n", "[", section, "]\n");
    for (const ConfigSetting& setting : AllConfigSettings()) {
      if (setting.section != section) continue;
      if (!IsDefault(setting, config)) {
        absl::StrAppend(&out, setting.key, " = ", ValueText(setting, config), "\n");
      } else if (setting.computed.empty()) {
        absl::StrAppend(&out, "# ", setting.key, " = ", ValueText(setting, config), "\n");
      } else {
        absl::StrAppend(&out, "# ", setting.key, ": ", setting.computed, "\n");
      }
    }
    if (section != "policy" || config.policy_parameters.empty()) continue;
    absl::StrAppend(&out, "\n[policy.parameters]\n");
    for (const auto& [name, value] : config.policy_parameters)
      absl::StrAppend(&out, TomlString(name), " = ", TomlString(value), "\n");
  }
  for (const TenantConfig& tenant : config.tenants) AppendTenant(tenant, &out);
  return out;
}

std::string ReferenceMarkdown() {
  std::string out = R"(# Configuration

After this page you know every setting of the daemon. `detshared --config FILE` reads one file; the
service reads `/etc/detshare/detshare.toml`. All settings are optional. Flags override the file, and
`DETSHARE_SOCKET` overrides its `socket`. `bazel run //policy/config:update_docs` makes this page
from the table that also parses the file (`policy/config/config.cc`).

| to | run |
|---|---|
| find mistakes, with line and column | `detsharectl config check [FILE]` |
| see all settings, with the defaults | `detsharectl config show [FILE] [--json]` |
| get a file to begin with | `detsharectl config example` |
| apply a change | `systemctl reload detshared` (SIGHUP); the log says what needs a restart |

The daemon does not use a file with a mistake: it does not start with such a file, and a reload
changes nothing. The file must belong to root or to the daemon's user, and must not be writable for
all users. If it belongs to root, no group other than root's may write to it.
)";
  for (const absl::string_view section : Sections()) {
    absl::StrAppend(&out, "\n## [", section, "]\n\n", SectionHelp(section), "\n\n",
                    "| key | meaning | allowed | default | flag | changes at "
                    "|\n|---|---|---|---|---|---|\n");
    for (const ConfigSetting& setting : AllConfigSettings()) {
      if (setting.section != section) continue;
      const std::string flag =
          setting.flag.empty() ? std::string() : absl::StrCat("`--", setting.flag, "`");
      absl::StrAppend(&out, "| `", setting.key, "` | ", setting.help, " | ", Allowed(setting),
                      " | ",
                      setting.computed.empty() ? absl::StrCat("`", DefaultText(setting), "`")
                                               : DefaultText(setting),
                      " | ", flag, " | ", LiveText(setting), " |\n");
    }
    if (section == "policy")
      absl::StrAppend(&out, "\n`[policy.parameters]` holds the policy's own parameters by name.\n");
  }
  absl::StrAppend(&out, "\n## [[tenant]]\n\nOne section for each tenant.\n\n",
                  "| key | type | meaning |\n|---|---|---|\n");
  for (const TenantKey& key : TenantKeys())
    absl::StrAppend(&out, "| `", key.key, "` | ", key.type, " | ", key.help, " |\n");
  absl::StrAppend(&out, R"(
A duration is a number with its unit: `"250us"`, `"5ms"`, `"1.5s"`. A size is a number of bytes, or
a text with a unit (powers of 1024): `"24GiB"`.

The user and the groups of a process decide which tenant it may be. The daemon takes them from the
kernel (SO_PEERCRED, SO_PEERGROUPS) and never from the process. A program that asks for no tenant is
the first tenant that names its user, otherwise the first tenant that names one of its groups,
otherwise the tenant with its user's name. Root may be any tenant. A change holds for sessions that
are opened afterwards.

```toml
)",
                  absl::StrReplaceAll(kTenantExample, {{"# ", ""}, {"#\n", "\n"}}), "```\n");
  return out;
}

std::string ReferenceMan(const std::string& version) {
  std::string out =
      absl::StrCat(".TH DETSHARE.TOML 5 \"\" \"DetShare ", version, "\" \"DetShare\"\n");
  absl::StrAppend(&out, R"(.SH NAME
detshare.toml \- configuration of detshared
.SH SYNOPSIS
.I /etc/detshare/detshare.toml
.SH DESCRIPTION
TOML, read by
.BR detshared (8).
All settings are optional. Flags override the file.
The daemon does not use a file with a mistake: it does not start with such a file, and a reload
changes nothing.
.B detsharectl config check
finds mistakes with line and column,
.B detsharectl config show
prints all settings.
The file must belong to root or to the daemon\(aqs user, and must not be writable for all users.
If it belongs to root, no group other than root\(aqs may write to it.
.PP
A duration is a number with its unit, as "5ms" (ns, us, ms, s).
A size is a number of bytes, or a text with a unit, as "24GiB" (powers of 1024).
)");
  for (const absl::string_view section : Sections()) {
    absl::StrAppend(&out, ".SH [", section, "]\n", ManText(SectionHelp(section)), "\n");
    for (const ConfigSetting& setting : AllConfigSettings()) {
      if (setting.section != section) continue;
      absl::StrAppend(
          &out, ".TP\n.B ", ManText(setting.key), "\n", ManText(setting.help), ".\n",
          "Allowed: ", ManText(Allowed(setting)), ".\nDefault: ", ManText(DefaultText(setting)),
          ".\n",
          setting.flag.empty() ? "" : absl::StrCat("Flag: \\-\\-", ManText(setting.flag), ".\n"),
          setting.live ? "A reload changes this setting.\n" : "");
    }
    if (section == "policy") {
      absl::StrAppend(&out,
                      ".TP\n.B [policy\\&.parameters]\nThe policy\\(aqs own parameters by name.\n");
    }
  }
  absl::StrAppend(&out, ".SH [[tenant]]\nOne section for each tenant.\n");
  for (const TenantKey& key : TenantKeys())
    absl::StrAppend(&out, ".TP\n.BR ", ManText(key.key), " = \\fI", ManText(key.type), "\\fR\n",
                    ManText(key.help), ".\n");
  absl::StrAppend(&out, R"(.PP
The user and the groups of a process, as the kernel names them, decide which tenant it may be.
A program that asks for no tenant is the first tenant that names its user, otherwise the first
tenant that names one of its groups, otherwise the tenant with its user\(aqs name.
Root may be any tenant.
.SH SEE ALSO
.BR detshared (8),
.BR detsharectl (1),
.BR detshare (1)
)");
  return out;
}

}  // namespace detshare
