#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "server/backends/soft/ptx/builtins.h"
#include "server/backends/soft/ptx/memory_access.h"

namespace detshare::soft::ptx {
namespace {

class PrintfFormatter {
 public:
  PrintfFormatter(Context& c, uint32_t lane, std::string_view format, uint64_t arguments)
      : c_(c), lane_(lane), format_(format), argument_(arguments) {}

  std::string Run() {
    while (i_ < format_.size()) {
      if (format_[i_] != '%') {
        out_.push_back(format_[i_++]);
        continue;
      }
      const size_t begin = i_++;
      if (i_ < format_.size() && format_[i_] == '%') {
        out_.push_back(format_[i_++]);
        continue;
      }
      const bool wide = ReadSpecification();
      const char type = i_ < format_.size() ? format_[i_++] : '\0';
      // An unknown conversion is printed unchanged.
      if (!Convert(type, wide)) out_ += format_.substr(begin, i_ - begin);
    }
    return std::move(out_);
  }
  int count() const { return count_; }  // the number of used arguments

 private:
  // Each argument has the alignment of its promoted type.
  uint64_t Next(uint64_t size) {
    argument_ = (argument_ + size - 1) / size * size;
    uint64_t value = 0;
    ReadGeneric(c_, lane_, argument_, size, &value);
    argument_ += size;
    ++count_;
    return value;
  }

  bool At(const char* any) const {
    return i_ < format_.size() && std::strchr(any, format_[i_]) != nullptr;
  }

  // Reads [flags][width][.precision][size] of %[flags][width][.precision][size]type, like the
  // device's printf. Returns whether integers have 64 bits.
  bool ReadSpecification() {
    spec_ = "%";
    while (At("-+ #0")) spec_.push_back(format_[i_++]);
    ReadNumber();
    if (i_ < format_.size() && format_[i_] == '.') {
      spec_.push_back(format_[i_++]);
      ReadNumber();
    }
    bool wide = false;
    for (; At("hlLzjtq"); ++i_) wide = wide || At("lLzjtq");
    return wide;
  }

  void ReadNumber() {
    if (i_ < format_.size() && format_[i_] == '*') {
      ++i_;
      int value = static_cast<int>(Next(4));
      value = value > 255 ? 255 : value < -255 ? -255 : value;
      spec_ += std::to_string(value);
      return;
    }
    int value = 0;
    bool any = false;
    for (; i_ < format_.size() && format_[i_] >= '0' && format_[i_] <= '9'; ++i_) {
      value = value < 1000 ? value * 10 + (format_[i_] - '0') : value;
      any = true;
    }
    if (any) spec_ += std::to_string(value > 255 ? 255 : value);
  }

  // Returns false when printf has no such conversion.
  bool Convert(char type, bool wide) {
    switch (type) {
      case 'd':
      case 'i':
        if (wide) {
          Print("lld", static_cast<long long>(Next(8)));
        } else {
          Print("d", static_cast<int>(Next(4)));
        }
        return true;
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        if (wide) {
          Print(std::string("ll") + type, static_cast<unsigned long long>(Next(8)));
        } else {
          Print(std::string(1, type), static_cast<unsigned>(Next(4)));
        }
        return true;
      case 'c':
        Print("c", static_cast<int>(Next(4)) & 0xff);
        return true;
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
      case 'a':
      case 'A': {
        const uint64_t bits = Next(8);
        double value;
        std::memcpy(&value, &bits, 8);
        Print(std::string(1, type), value);
        return true;
      }
      case 'p':
        Print("p", reinterpret_cast<void*>(Next(8)));
        return true;
      case 's':
        PrintString(Next(8));
        return true;
      default:
        return false;
    }
  }

  template <class T>
  void Print(const std::string& conversion, T value) {
    // Width and precision are at most 255. A double has at most 309 digits before its point.
    char text[1024];
    std::snprintf(text, sizeof text, (spec_ + conversion).c_str(), value);
    out_ += text;
  }

  void PrintString(uint64_t address) {
    std::string text;
    if (address == 0) {
      text = "(null)";
    } else if (!ReadString(c_, lane_, address, &text)) {
      text.clear();
    }
    // The precision cuts the text, and the width pads it.
    std::string padded(text.size() + 512, '\0');
    const int length =
        std::snprintf(padded.data(), padded.size(), (spec_ + "s").c_str(), text.c_str());
    padded.resize(length > 0 ? static_cast<size_t>(length) : 0);
    out_ += padded;
  }

  Context& c_;
  const uint32_t lane_;
  const std::string_view format_;
  uint64_t argument_;
  size_t i_ = 0;
  std::string spec_;
  std::string out_;
  int count_ = 0;
};

}  // namespace

std::string FormatDevicePrintf(Context& c, uint32_t lane, uint64_t format_address,
                               uint64_t arguments, int* count) {
  *count = -1;
  std::string format;
  if (!ReadString(c, lane, format_address, &format)) return {};
  PrintfFormatter formatter(c, lane, format, arguments);
  std::string out = formatter.Run();
  *count = formatter.count();
  return out;
}

}  // namespace detshare::soft::ptx
