#include "tools/text/table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace detshare::text {
namespace {

// True for numbers, also with separators and a unit, for "-", which stands for no number, and for
// empty cells.
bool LooksLikeNumber(const std::string& cell) {
  return cell.empty() || cell == "-" || (cell[0] >= '0' && cell[0] <= '9');
}

std::string Line(const std::vector<std::string>& row, const std::vector<size_t>& widths,
                 const std::vector<bool>& right, int indent) {
  std::string line(indent, ' ');
  for (size_t i = 0; i < widths.size(); ++i) {
    const std::string fill(widths[i] - row[i].size(), ' ');
    if (i != 0) line += "  ";
    line += right[i] ? fill + row[i] : row[i] + fill;
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line + "\n";
}

}  // namespace

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {}

void Table::Add(std::vector<std::string> row) {
  row.resize(header_.size());
  rows_.push_back(std::move(row));
}

std::string Table::ToString(int indent) const {
  std::vector<size_t> widths;
  std::vector<bool> right;
  for (size_t i = 0; i < header_.size(); ++i) {
    size_t width = header_[i].size();
    bool number = !rows_.empty();
    for (const auto& row : rows_) {
      width = std::max(width, row[i].size());
      number = number && LooksLikeNumber(row[i]);
    }
    widths.push_back(width);
    right.push_back(number);
  }
  std::string out = Line(header_, widths, right, indent);
  for (const auto& row : rows_) out += Line(row, widths, right, indent);
  return out;
}

std::string Bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  // A number that would be shown as 1000 of a unit is shown in the next unit.
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  const int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  std::string number = text;
  if (digits > 0) {
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
  }
  return number + " " + kUnits[unit];
}

std::string Duration(int64_t milliseconds) {
  if (milliseconds < 1000) return std::to_string(std::max<int64_t>(milliseconds, 0)) + " ms";
  struct Step {
    int64_t seconds;
    const char* name;
  };
  static constexpr Step kSteps[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
  const int64_t seconds = milliseconds / 1000;
  for (size_t i = 0; i < std::size(kSteps); ++i) {
    if (seconds < kSteps[i].seconds) continue;
    std::string out = std::to_string(seconds / kSteps[i].seconds) + " " + kSteps[i].name;
    if (i + 1 < std::size(kSteps)) {
      const int64_t rest = seconds % kSteps[i].seconds / kSteps[i + 1].seconds;
      if (rest != 0) out += " " + std::to_string(rest) + " " + kSteps[i + 1].name;
    }
    return out;
  }
  return "0 s";
}

std::string Program(const std::string& command_line) {
  constexpr size_t kMax = 40;
  const size_t slash = command_line.substr(0, command_line.find(' ')).rfind('/');
  const std::string shown =
      slash == std::string::npos ? command_line : command_line.substr(slash + 1);
  return shown.size() <= kMax ? shown : shown.substr(0, kMax - 3) + "...";
}

std::string Count(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string Counted(uint64_t count, const std::string& noun) {
  return Count(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace detshare::text
