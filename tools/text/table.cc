#include "tools/text/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <utility>

namespace detshare::text {
namespace {

// True for numbers, also with separators and a unit, for "-", which stands for no number, and for
// empty cells.
bool LooksLikeNumber(const std::string& cell) {
  return cell.empty() || cell == "-" || (cell[0] >= '0' && cell[0] <= '9');
}

// A text in one column is never made narrower than this, nor folded to less.
constexpr size_t kMinText = 14, kMinFolded = 24;

// `text` in lines of at most `width` characters, broken at blanks where there are any.
std::vector<std::string> Fold(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  size_t at = 0;
  while (text.size() - at > width) {
    const size_t blank = text.rfind(' ', at + width);
    const size_t end = blank == std::string::npos || blank <= at ? at + width : blank;
    lines.push_back(text.substr(at, end - at));
    at = text[end] == ' ' ? end + 1 : end;
  }
  lines.push_back(text.substr(at));
  return lines;
}

// The columns of a table while it is fitted to a terminal.
class Columns {
 public:
  Columns(std::vector<std::string> header, std::vector<std::vector<std::string>> rows)
      : header_(std::move(header)), rows_(std::move(rows)) {
    for (size_t i = 0; i < header_.size(); ++i) {
      size_t width = header_[i].size();
      bool number = !rows_.empty(), sentences = false;
      for (const auto& row : rows_) {
        width = std::max(width, row[i].size());
        number = number && LooksLikeNumber(row[i]);
        sentences |= std::count(row[i].begin(), row[i].end(), ' ') > 2;
      }
      widths_.push_back(width);
      right_.push_back(number);
      whole_.push_back(number);
      folds_ = sentences && !number;  // of the last column
    }
  }

  void KeepWhole(const std::string& name) {
    const auto found = std::find(header_.begin(), header_.end(), name);
    if (found != header_.end()) whole_[found - header_.begin()] = true;
  }

  // The width of a line in which all texts are as short as they can get.
  size_t LeastWidth() const {
    size_t sum = 2 * (widths_.size() - 1);
    for (size_t i = 0; i < widths_.size(); ++i) sum += Least(i);
    return sum;
  }

  void Drop(const std::string& name) {
    const auto found = std::find(header_.begin(), header_.end(), name);
    if (found == header_.end()) return;
    const auto column = found - header_.begin();
    if (column + 1 == static_cast<std::ptrdiff_t>(header_.size())) folds_ = false;
    header_.erase(found);
    for (auto& row : rows_) row.erase(row.begin() + column);
    widths_.erase(widths_.begin() + column);
    right_.erase(right_.begin() + column);
    whole_.erase(whole_.begin() + column);
  }

  // Narrows the last column if it folds, else and then the widest text again and again.
  void Shrink(size_t room) {
    while (Width() > room) {
      size_t widest = widths_.size();
      for (size_t i = 0; i < widths_.size(); ++i) {
        if (widths_[i] <= Least(i)) continue;
        if (widest == widths_.size() || widths_[i] > widths_[widest]) widest = i;
      }
      if (widest == widths_.size()) return;
      if (folds_ && widths_.back() > kMinFolded) widest = widths_.size() - 1;
      --widths_[widest];
    }
  }

  std::string Lines(int indent) const {
    std::string out = Line(header_, indent);
    for (const auto& row : rows_) {
      std::vector<std::string> cells = row;
      std::vector<std::string> folded;
      if (folds_) {
        folded = Fold(row.back(), widths_.back());
        cells.back() = folded.front();
      }
      out += Line(cells, indent);
      for (size_t i = 1; i < folded.size(); ++i) {
        cells.assign(cells.size(), "");
        cells.back() = folded[i];
        out += Line(cells, indent);
      }
    }
    return out;
  }

 private:
  bool IsLast(size_t i) const { return i + 1 == widths_.size(); }
  // Numbers and headers stay whole.
  size_t Least(size_t i) const {
    if (whole_[i]) return widths_[i];
    const size_t least = folds_ && IsLast(i) ? kMinFolded : kMinText;
    return std::min(widths_[i], std::max(least, header_[i].size()));
  }
  size_t Width() const {
    size_t sum = 2 * (widths_.size() - 1);
    for (const size_t width : widths_) sum += width;
    return sum;
  }
  std::string Line(const std::vector<std::string>& row, int indent) const {
    std::string line(indent, ' ');
    for (size_t i = 0; i < widths_.size(); ++i) {
      const std::string cell = Shortened(row[i], widths_[i]);
      const std::string fill(widths_[i] - cell.size(), ' ');
      if (i != 0) line += "  ";
      line += right_[i] ? fill + cell : cell + fill;
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return line + "\n";
  }

  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> widths_;
  std::vector<bool> right_, whole_;
  bool folds_ = false;
};

}  // namespace

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {}

void Table::Add(std::vector<std::string> row) {
  row.resize(header_.size());
  rows_.push_back(std::move(row));
}

void Table::Drop(const std::string& column) {
  const auto found = std::find(header_.begin(), header_.end(), column);
  if (found == header_.end()) return;
  const std::ptrdiff_t at = found - header_.begin();
  header_.erase(found);
  for (auto& row : rows_) row.erase(row.begin() + at);
}

std::string Table::ToString(int indent, size_t width) const {
  Columns columns(header_, rows_);
  if (width == 0) return columns.Lines(indent);
  for (const std::string& name : whole_) columns.KeepWhole(name);
  const size_t room = width > static_cast<size_t>(indent) ? width - indent : 1;
  for (const std::string& name : droppable_) {
    if (columns.LeastWidth() <= room) break;
    columns.Drop(name);
  }
  columns.Shrink(room);
  return columns.Lines(indent);
}

size_t TerminalWidth() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

size_t TerminalHeight() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

std::string Shortened(const std::string& text, size_t width) {
  static constexpr char kGap[] = "...";
  const size_t gap = sizeof(kGap) - 1;
  if (text.size() <= width) return text;
  if (width <= gap) return text.substr(0, width);
  const size_t kept = width - gap;
  return text.substr(0, kept - kept / 2) + kGap + text.substr(text.size() - kept / 2);
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
