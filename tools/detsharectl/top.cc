#include "tools/detsharectl/top.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "proto/latency_histogram.h"
#include "tools/detsharectl/daemon.h"
#include "tools/detsharectl/json_text.h"
#include "tools/detsharectl/sessions.h"
#include "tools/detsharectl/status.h"
#include "tools/text/keyboard.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

using nlohmann::ordered_json;

constexpr char kBold[] = "1", kRed[] = "31", kYellow[] = "33";
constexpr double kMostly = 0.5;

struct Line {
  const proto::SessionStatus* session = nullptr;
  double operations = 0;                 // for each second
  double device_share = 0;               // device time, of the interval; below 0: not known
  double throttled_share = 0;            // time throttled, of the interval; below 0: not known
  uint64_t bursts = 0;                   // bursts that ended in the interval
  int64_t burst_p50 = 0, burst_p99 = 0;  // their durations; 0: none ended
};

// The duration that `part` of all bursts did not exceed, as exactly as the buckets tell it.
int64_t Quantile(const std::vector<uint64_t>& counts, uint64_t total, double part) {
  const double wanted = static_cast<double>(total) * part;
  double seen = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    seen += static_cast<double>(counts[i]);
    if (counts[i] != 0 && seen >= wanted) {
      // The middle of the bucket stands for all durations in it.
      return (LatencyHistogram::BeginOf(static_cast<int>(i)) +
              LatencyHistogram::BeginOf(static_cast<int>(i) + 1)) /
             2;
    }
  }
  return 0;
}

void CountBursts(const proto::Schedule& then, const proto::Schedule& now, Line* line) {
  std::vector<uint64_t> counts(now.bursts().begin(), now.bursts().end());
  for (int i = 0; i < then.bursts_size() && i < now.bursts_size(); ++i)
    counts[i] -= std::min(counts[i], then.bursts(i));
  for (const uint64_t count : counts) line->bursts += count;
  line->burst_p50 = Quantile(counts, line->bursts, 0.5);
  line->burst_p99 = Quantile(counts, line->bursts, 0.99);
}

// By what `sort` names; then by session, so that lines stay where they are.
bool ComesBefore(const std::string& sort, const Line& a, const Line& b) {
  const auto key = [&](const Line& line) -> double {
    if (sort == "memory") return -static_cast<double>(line.session->device_memory());
    if (sort == "operations") return -line.operations;
    if (sort == "rank") return static_cast<double>(line.session->schedule().rank());
    return -line.device_share;
  };
  const double one = key(a), other = key(b);
  return one != other ? one < other : a.session->session() < b.session->session();
}

std::vector<Line> LinesOf(const proto::Status& before, const proto::Status& after,
                          int64_t interval_ns, const std::string& sort) {
  std::map<uint64_t, const proto::SessionStatus*> old;
  for (const proto::SessionStatus& session : before.sessions()) old[session.session()] = &session;
  const double interval = static_cast<double>(std::max<int64_t>(interval_ns, 1));
  static const proto::SessionStatus kNothing;
  std::vector<Line> lines;
  for (const proto::SessionStatus& session : after.sessions()) {
    const auto found = old.find(session.session());
    const proto::SessionStatus& was = found != old.end() ? *found->second : kNothing;
    const proto::Schedule& now = session.schedule();
    const proto::Schedule& then = was.schedule();
    Line line;
    line.session = &session;
    line.operations = static_cast<double>(session.operations() - was.operations()) / interval * 1e9;
    if (!now.followed()) {
      line.device_share = line.throttled_share = -1;
    } else {
      // A throttle that still lasts is not in the sums yet, so throttled_ns() is added.
      const auto throttled = [](const proto::Schedule& schedule) {
        return schedule.throttled_by_window_ns() + schedule.throttled_by_budget_ns() +
               schedule.throttled_ns();
      };
      const auto share = [interval](int64_t part) {
        return std::clamp(static_cast<double>(part) / interval, 0.0, 1.0);
      };
      line.device_share = share(now.device_time_ns() - then.device_time_ns());
      line.throttled_share = share(throttled(now) - throttled(then));
      CountBursts(then, now, &line);
    }
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end(),
            [&](const Line& a, const Line& b) { return ComesBefore(sort, a, b); });
  return lines;
}

std::string Percent(double share) {
  if (share < 0) return "-";
  char text[16];
  std::snprintf(text, sizeof(text), "%.0f%%", share * 100);
  return text;
}

// "850 us", "12.3 ms"; "-" for 0.
std::string Time(int64_t nanoseconds) {
  if (nanoseconds <= 0) return "-";
  char text[32];
  const double us = static_cast<double>(nanoseconds) / 1e3;
  if (us < 1000) {
    std::snprintf(text, sizeof(text), "%.0f us", us);
  } else if (us < 1e6) {
    std::snprintf(text, sizeof(text), "%.1f ms", us / 1e3);
  } else {
    std::snprintf(text, sizeof(text), "%.1f s", us / 1e6);
  }
  return text;
}

}  // namespace

std::string TopText(const proto::Status& before, const proto::Status& after, int64_t interval_ns,
                    const std::string& sort, const Screen& screen) {
  // The select graphic renditions of ECMA-48.
  const auto in = [&](const char* rendition, const std::string& text) {
    return screen.colour && *rendition != '\0'
               ? std::string("\033[") + rendition + "m" + text + "\033[0m"
               : text;
  };
  std::string out = "detshared " + after.version() + ", policy " + after.policy() + "\n";
  for (const proto::EngineStatus& engine : after.engines()) {
    if (!engine.problem().empty())
      out += in(kRed, "the engine of isolation group " + engine.group() +
                          " is not shown: " + engine.problem()) +
             "\n";
  }
  for (int i = 0; i < after.devices_size(); ++i) {
    const proto::DeviceStatus& device = after.devices(i);
    out += in(device.state() == "ok" ? "" : kRed,
              "device " + std::to_string(i) + ": " + device.name() + ", " +
                  std::to_string(device.sm_count()) + " SMs, " + text::Bytes(device.used_memory()) +
                  " of " + text::Bytes(device.total_memory()) + ", " + device.state()) +
           "\n";
  }
  out += "\n";
  if (after.sessions_size() == 0) return out + NoSessionsText(after);
  text::Table table({"SESSION", "TENANT", "PID", "PROGRAM", "CLASS", "RANK", "PARTITION",
                     "GPU TIME", "THROTTLED", "OPS/S", "BURSTS", "P50", "P99", "TOKENS", "TPOT",
                     "MEMORY"});
  const std::vector<Line> lines = LinesOf(before, after, interval_ns, sort);
  for (const Line& line : lines) {
    const proto::SessionStatus& session = *line.session;
    const proto::Schedule& schedule = session.schedule();
    table.Add({std::to_string(session.session()), session.tenant(),
               session.pid() == 0 ? "-" : std::to_string(session.pid()),
               text::Program(session.program()),
               schedule.tenant_class().empty() ? "-" : schedule.tenant_class(),
               schedule.followed() ? std::to_string(schedule.rank()) : "-", PartitionText(session),
               Percent(line.device_share), Percent(line.throttled_share),
               text::Count(static_cast<uint64_t>(line.operations + 0.5)),
               line.bursts == 0 ? "-" : text::Count(line.bursts), Time(line.burst_p50),
               Time(line.burst_p99), schedule.tokens() == 0 ? "-" : text::Count(schedule.tokens()),
               Time(schedule.tpot_ns()), text::Bytes(session.device_memory())});
  }
  table.MayDrop({"TPOT", "TOKENS", "RANK", "PARTITION", "BURSTS", "PID", "P50", "CLASS", "OPS/S"});
  std::stringstream rows(table.ToString(0, screen.width));
  std::string row;
  std::getline(rows, row);
  out += in(kBold, row) + "\n";
  // Below the last row there is room for the count, and for the cursor.
  const size_t above = static_cast<size_t>(std::count(out.begin(), out.end(), '\n'));
  size_t room = lines.size();
  if (screen.height != 0 && above + room + 1 > screen.height)
    room = screen.height > above + 2 ? screen.height - above - 2 : 1;
  for (size_t i = 0; i < room && std::getline(rows, row); ++i)
    out += in(lines[i].throttled_share > kMostly ? kYellow : "", row) + "\n";
  if (room < lines.size())
    out += "and " + text::Counted(lines.size() - room, "more session") + "\n";
  return out;
}

std::string TopJson(const proto::Status& before, const proto::Status& after, int64_t interval_ns,
                    const std::string& sort) {
  ordered_json sessions = ordered_json::array();
  const auto known = [](double share) { return share < 0 ? ordered_json() : ordered_json(share); };
  for (const Line& line : LinesOf(before, after, interval_ns, sort)) {
    const proto::SessionStatus& session = *line.session;
    const proto::Schedule& schedule = session.schedule();
    sessions.push_back({{"session", session.session()},
                        {"tenant", session.tenant()},
                        {"pid", session.pid()},
                        {"program", session.program()},
                        {"class", schedule.tenant_class()},
                        {"rank", schedule.rank()},
                        {"partition", session.partition()},
                        {"bound", session.bound()},
                        {"device_share", known(line.device_share)},
                        {"throttled_share", known(line.throttled_share)},
                        {"operations_per_second", line.operations},
                        {"bursts", line.bursts},
                        {"burst_p50_ns", line.burst_p50},
                        {"burst_p99_ns", line.burst_p99},
                        {"tokens", schedule.tokens()},
                        {"tpot_ns", schedule.tpot_ns()},
                        {"device_memory", session.device_memory()}});
  }
  const ordered_json out = {
      {"policy", after.policy()}, {"interval_ns", interval_ns}, {"sessions", std::move(sessions)}};
  return JsonLine(out) + "\n";
}

int Top(const TopOptions& options) {
  const bool terminal = isatty(STDOUT_FILENO) != 0 && !options.json && !options.once;
  const std::unique_ptr<proto::Admin::Stub> admin = AdminAt(options.socket);
  const auto look = [&](proto::Status* status) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    return Explain(admin->GetStatus(&context, proto::GetStatusRequest(), status), options.socket);
  };
  proto::Status before;
  auto at = std::chrono::steady_clock::now();
  if (const int code = look(&before); code != 0) return code;
  std::optional<text::Keyboard> keyboard;
  if (terminal) keyboard.emplace();
  // https://no-color.org
  const char *const no_colour = std::getenv("NO_COLOR"), *const kind = std::getenv("TERM");
  const bool colour = terminal && (no_colour == nullptr || *no_colour == '\0') && kind != nullptr &&
                      std::string_view(kind) != "dumb";
  const auto interval =
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(options.seconds));
  for (;;) {
    if (!keyboard.has_value()) {
      std::this_thread::sleep_for(interval);
    } else if (keyboard->LeavesBefore(std::chrono::steady_clock::now() + interval)) {
      return 0;
    }
    proto::Status after;
    if (const int code = look(&after); code != 0) return code;
    const auto now = std::chrono::steady_clock::now();
    const int64_t passed = std::chrono::duration_cast<std::chrono::nanoseconds>(now - at).count();
    if (terminal) std::fputs("\033[H\033[2J", stdout);
    std::fputs((options.json ? TopJson(before, after, passed, options.sort)
                             : TopText(before, after, passed, options.sort,
                                       {text::TerminalWidth(),
                                        terminal ? text::TerminalHeight() : 0, colour}))
                   .c_str(),
               stdout);
    if (std::fflush(stdout) != 0 || options.once) return 0;
    before = std::move(after);
    at = now;
  }
}

}  // namespace detshare::ctl
