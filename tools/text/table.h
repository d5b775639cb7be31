// Human-readable text: aligned tables, sizes and durations.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace detshare::text {

// A table with aligned columns. Columns of numbers are right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // `row` has at most as many cells as the header. Missing cells are empty.
  void Add(std::vector<std::string> row);
  // The columns that a narrow terminal does not show, beginning with the first of these headers.
  void MayDrop(std::vector<std::string> columns) { droppable_ = std::move(columns); }
  // The texts of the column with this header stay whole, as those of numbers do. For texts that a
  // person copies.
  void KeepWhole(std::string column) { whole_.push_back(std::move(column)); }
  // Leaves the column with this header out, whatever the width.
  void Drop(const std::string& column);
  bool empty() const { return rows_.empty(); }
  // The header and the rows as lines, each with a newline. A line begins with `indent` spaces, has
  // two spaces between columns, and none at its end.
  //
  // If `width` is not 0, lines have at most `width` characters where that is possible: a last column
  // of sentences is folded, and the middle of long texts is left out. Where that is not enough,
  // columns are left out first.
  std::string ToString(int indent = 0, size_t width = 0) const;

 private:
  std::vector<std::string> droppable_, whole_;
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// The width of the terminal that is the process's stdout, in characters; 0: it is no terminal.
size_t TerminalWidth();

// Its height, in lines; 0: it is no terminal.
size_t TerminalHeight();

// `text` in at most `width` characters, with "..." in place of its middle if it is longer: names
// often differ only at their ends.
std::string Shortened(const std::string& text, size_t width);

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
