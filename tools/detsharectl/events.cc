#include "tools/detsharectl/events.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "proto/owner.h"
#include "tools/detsharectl/daemon.h"
#include "tools/detsharectl/json_text.h"
#include "tools/detsharectl/names.h"
#include "tools/detsharectl/owner_json.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

constexpr std::chrono::milliseconds kPeriod(300);

}  // namespace

std::string EventText(const proto::Event& event) {
  std::string line =
      absl::StrFormat("%s  %-14s",
                      absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixNanos(event.unix_ns()),
                                       absl::LocalTimeZone()),
                      event.kind());
  const size_t subject = line.size();
  if (event.session() != 0) absl::StrAppend(&line, " session ", event.session());
  if (!event.tenant().empty()) absl::StrAppend(&line, " tenant ", event.tenant());
  if (!IsEmpty(event.owner())) absl::StrAppend(&line, " (", OwnerText(event.owner()), ")");
  if (event.pid() != 0) absl::StrAppend(&line, " pid ", event.pid());
  if (!event.program().empty()) absl::StrAppend(&line, " ", event.program());
  if (!event.text().empty())
    absl::StrAppend(&line, line.size() > subject ? ": " : " ", event.text());
  return line + "\n";
}

std::string EventJson(const proto::Event& event) {
  const nlohmann::ordered_json json = {
      {"number", event.number()},
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixNanos(event.unix_ns()),
                                absl::UTCTimeZone())},
      {"kind", event.kind()},
      {"session", event.session()},
      {"tenant", event.tenant()},
      {"owner", OwnerJson(event.owner())},
      {"program", event.program()},
      {"pid", event.pid()},
      {"uid", event.uid()},
      {"text", event.text()}};
  return JsonLine(json) + "\n";
}

bool Wanted(const proto::Event& event, const EventsOptions& options) {
  return (options.session == 0 || event.session() == options.session) &&
         (options.tenant.empty() || event.tenant() == options.tenant) &&
         (options.kind.empty() || event.kind() == options.kind);
}

int Events(const EventsOptions& options) {
  proto::GetEventsRequest request;
  bool first = true, any = false;
  for (;;) {
    proto::Events events;
    const int code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
      return admin.GetEvents(context, request, &events);
    });
    if (code != 0) return code;
    if (events.lost() != 0) {
      std::fprintf(stderr,
                   "detsharectl: the daemon has dropped %s: it keeps only the latest events\n",
                   text::Counted(events.lost(), "event").c_str());
    }
    // Only the last `count` of the wanted events of the past are printed.
    int skip = 0;
    if (first) {
      for (const proto::Event& event : events.events()) skip += Wanted(event, options) ? 1 : 0;
      skip = std::max(0, skip - options.count);
    }
    for (const proto::Event& event : events.events()) {
      if (!Wanted(event, options) || skip-- > 0) continue;
      std::fputs((options.json ? EventJson(event) : EventText(event)).c_str(), stdout);
      any = true;
    }
    // The reader of stdout is gone.
    if (std::fflush(stdout) != 0) return kExitRefused;
    if (!options.follow) {
      if (!any && !options.json) {
        std::fputs("No such events.\n", stderr);
        if (!options.tenant.empty())
          std::fputs(HintAt(options.tenant, NamesOf("tenants", options.socket)).c_str(), stderr);
      }
      return 0;
    }
    first = false;
    request.set_log(events.log());
    request.set_first(events.next());
    std::this_thread::sleep_for(kPeriod);
  }
}

}  // namespace detshare::ctl
