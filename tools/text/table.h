// Human-readable text: aligned tables, sizes and durations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace detshare::text {

// A table with aligned columns. Columns of numbers are right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // `row` has at most as many cells as the header. Missing cells are empty.
  void Add(std::vector<std::string> row);
  bool empty() const { return rows_.empty(); }
  // The header and the rows as lines, each with a newline. A line begins with `indent` spaces, has
  // two spaces between columns, and none at its end.
  std::string ToString(int indent = 0) const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// "0 B", "640 KiB", "1.5 GiB": at most three digits.
std::string Bytes(uint64_t bytes);

// "850 ms", "12 s", "3 min 5 s", "2 h 10 min", "4 d 3 h".
std::string Duration(int64_t milliseconds);

// A command line as tables show it: without the program's folder, cut to 40 characters that end
// with "...". --json shows the whole command line.
std::string Program(const std::string& command_line);

// A number with thousands separators: "1,234,567".
std::string Count(uint64_t count);

// A number with a noun that forms its plural with s: "1 error", "1,234 errors".
std::string Counted(uint64_t count, const std::string& noun);

}  // namespace detshare::text
