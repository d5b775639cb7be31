// Text for people: aligned tables, sizes, durations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace detshare::text {

// A table whose columns line up. Columns that hold numbers are set flush right.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // As many cells as the header has; missing ones are empty.
  void Add(std::vector<std::string> row);
  bool empty() const { return rows_.empty(); }
  // Lines with `indent` spaces before and two between columns, none at the end, each with a
  // newline.
  std::string ToString(int indent = 0) const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// "0 B", "640 KiB", "1.5 GiB": three digits at most.
std::string Bytes(uint64_t bytes);

// "850 ms", "12 s", "3 min 5 s", "2 h 10 min", "4 d 3 h".
std::string Duration(int64_t milliseconds);

// A command line as tables show it: without the folder of the program, and with "..." in the place
// of what is beyond 40 characters. --json has all of it.
std::string Program(const std::string& command_line);

// "1,234,567".
std::string Count(uint64_t count);

}  // namespace detshare::text
