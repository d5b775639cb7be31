#include "tools/detsharectl/api.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "proto/driver_api/driver_api_table.h"
#include "tools/detsharectl/json_text.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

std::vector<const Row*> Chosen(const ApiOptions& options) {
  std::vector<const Row*> rows;
  for (const Row& row : kRows) {
    if (!row.exported) continue;  // no program can call it by name
    if (options.unsupported && row.support == Support::kFull) continue;
    rows.push_back(&row);
  }
  return rows;
}

// 12040 becomes "12.4".
std::string Version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::string ApiText(const ApiOptions& options, size_t width) {
  // The families, in the order of the table.
  std::vector<std::string_view> order;
  std::map<std::string_view, text::Table> families;
  std::map<Support, int> totals;
  for (const Row* row : Chosen(options)) {
    auto family = families.find(row->title);
    if (family == families.end()) {
      order.push_back(row->title);
      family = families
                   .emplace(row->title,
                            text::Table({"FUNCTION", "SINCE", "TRANSPORT", "SUPPORT", "NOTE"}))
                   .first;
    }
    ++totals[row->support];
    family->second.Add({row->symbol, Version(row->version), TransportName(row->transport),
                        SupportName(row->support), row->note});
  }
  std::string out;
  for (std::string_view title : order) {
    out += std::string(title) + "\n" + families.at(title).ToString(2, width) + "\n";
  }
  if (!options.unsupported) out += std::to_string(totals[Support::kFull]) + " in full, ";
  return out + std::to_string(totals[Support::kPartial]) + " in part, " +
         std::to_string(totals[Support::kNone]) + " not supported.\n";
}

std::string ApiJson(const ApiOptions& options) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Row* row : Chosen(options)) {
    rows.push_back({{"symbol", row->symbol},
                    {"api", row->api},
                    {"version", row->version},
                    {"per_thread", row->per_thread},
                    {"family", row->family},
                    {"op", row->op},
                    {"transport", TransportName(row->transport)},
                    {"support", SupportName(row->support)},
                    {"note", row->note}});
  }
  return JsonText(rows);
}

}  // namespace detshare::ctl
