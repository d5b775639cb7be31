#include "server/backends/soft/ptx/builtins.h"

#include <cstdio>
#include <cstring>

#include "server/backends/soft/ptx/memory_access.h"

namespace detshare::soft::ptx {
namespace {

uint64_t Argument(const Context& c, const CallSite& call, size_t index, uint32_t lane) {
  if (index >= call.args.size()) return 0;
  const ParamPlace& place = call.args[index];
  uint64_t value = 0;
  std::memcpy(&value,
              c.frame->params + size_t{c.frame->function->param_area_bytes} * lane + place.offset,
              place.size < 8 ? place.size : 8);
  return value;
}

void Return(const Context& c, const CallSite& call, uint32_t lane, uint64_t value) {
  if (call.returns.empty()) return;
  const ParamPlace& place = call.returns[0];
  std::memcpy(c.frame->params + size_t{c.frame->function->param_area_bytes} * lane + place.offset,
              &value, place.size < 8 ? place.size : 8);
}

// A NUL-terminated string of the kernel, cut at a generous length.
bool ReadString(Context& c, uint32_t lane, uint64_t address, std::string* out) {
  constexpr size_t kMaxLength = 1 << 16;
  out->clear();
  while (out->size() < kMaxLength) {
    char ch;
    if (!ReadGeneric(c, lane, address + out->size(), 1, &ch)) return false;
    if (ch == '\0') return true;
    out->push_back(ch);
  }
  return true;
}

void AssertFail(Context& c, const Instr& in, const CallSite& call, uint32_t mask) {
  OutputSink* output = c.unit->launch->services.output;
  const auto& block = c.block->id;
  const auto& dims = c.unit->launch->config.block;
  ForEachLane(mask, [&](uint32_t lane) {
    std::string message, file, function;
    ReadString(c, lane, Argument(c, call, 0, lane), &message);
    ReadString(c, lane, Argument(c, call, 1, lane), &file);
    ReadString(c, lane, Argument(c, call, 3, lane), &function);
    const uint32_t thread = c.warp->index * kLanes + lane;
    auto triple = [](uint32_t x, uint32_t y, uint32_t z) {
      char text[64];
      std::snprintf(text, sizeof text, "[%u,%u,%u]", x, y, z);
      return std::string(text);
    };
    const std::string text =
        file + ":" + std::to_string(static_cast<uint32_t>(Argument(c, call, 2, lane))) + ": " +
        function + ": block: " + triple(block[0], block[1], block[2]) + ", thread: " +
        triple(thread % dims[0], thread / dims[0] % dims[1], thread / dims[0] / dims[1]) +
        " Assertion `" + message + "` failed.\n";
    if (output != nullptr) output->Print(text);
  });
  RaiseFault(c, in, FaultKind::kAssert, 0, FirstLane(mask));
}

}  // namespace

void ExecBuiltin(Context& c, const Instr& in, const CallSite& call, uint32_t mask) {
  const LaunchServices& services = c.unit->launch->services;
  switch (call.builtin) {
    case Builtin::kVprintf:
      ForEachLane(mask, [&](uint32_t lane) {
        int count = 0;
        const std::string text = FormatDevicePrintf(c, lane, Argument(c, call, 0, lane),
                                                    Argument(c, call, 1, lane), &count);
        if (services.output != nullptr && !text.empty()) services.output->Print(text);
        Return(c, call, lane, static_cast<uint64_t>(static_cast<int64_t>(count)));
      });
      return;
    case Builtin::kAssertFail:
      return AssertFail(c, in, call, mask);
    case Builtin::kMalloc:
      ForEachLane(mask, [&](uint32_t lane) {
        Return(c, call, lane,
               services.heap == nullptr ? 0 : services.heap->Allocate(Argument(c, call, 0, lane)));
      });
      return;
    case Builtin::kFree:
      ForEachLane(mask, [&](uint32_t lane) {
        const uint64_t address = Argument(c, call, 0, lane);
        if (services.heap != nullptr && address != 0) services.heap->Free(address);
      });
      return;
    case Builtin::kSetConditional:
      ForEachLane(mask, [&](uint32_t lane) {
        const uint64_t handle = Argument(c, call, 0, lane);
        const auto value = static_cast<uint32_t>(Argument(c, call, 1, lane));
        if (services.conditions == nullptr || !services.conditions->Set(handle, value)) {
          RaiseFault(c, in, FaultKind::kIllegalAddress, handle, lane);
        }
      });
      return;
    case Builtin::kNone:
      return;
  }
}

std::string FormatDevicePrintf(Context& c, uint32_t lane, uint64_t format_address,
                               uint64_t arguments, int* count) {
  *count = -1;
  std::string format, out;
  if (!ReadString(c, lane, format_address, &format)) return out;
  uint64_t at = arguments;
  int used = 0;
  // Arguments lie packed with the alignment of their (promoted) types.
  auto next = [&](uint64_t size) {
    at = (at + size - 1) / size * size;
    uint64_t value = 0;
    ReadGeneric(c, lane, at, size, &value);
    at += size;
    ++used;
    return value;
  };
  char buffer[512];
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    const size_t begin = i++;
    if (i < format.size() && format[i] == '%') {
      out.push_back('%');
      continue;
    }
    // %[flags][width][.precision][size]type, as the device's printf reads it.
    std::string spec = "%";
    while (i < format.size() && std::strchr("-+ #0", format[i]) != nullptr)
      spec.push_back(format[i++]);
    auto number = [&] {
      if (i < format.size() && format[i] == '*') {
        ++i;
        int value = static_cast<int>(next(4));
        value = value > 255 ? 255 : value < -255 ? -255 : value;
        spec += std::to_string(value);
        return;
      }
      int value = 0;
      bool any = false;
      while (i < format.size() && format[i] >= '0' && format[i] <= '9') {
        value = value < 1000 ? value * 10 + (format[i] - '0') : value;
        any = true;
        ++i;
      }
      if (any) spec += std::to_string(value > 255 ? 255 : value);
    };
    number();
    if (i < format.size() && format[i] == '.') {
      spec.push_back(format[i++]);
      number();
    }
    bool wide = false;
    while (i < format.size() && std::strchr("hlLzjtq", format[i]) != nullptr) {
      wide = wide || std::strchr("lLzjtq", format[i]) != nullptr;
      ++i;
    }
    const char type = i < format.size() ? format[i] : '\0';
    switch (type) {
      case 'd':
      case 'i':
        if (wide) {
          std::snprintf(buffer, sizeof buffer, (spec + "lld").c_str(),
                        static_cast<long long>(next(8)));
        } else {
          std::snprintf(buffer, sizeof buffer, (spec + "d").c_str(), static_cast<int>(next(4)));
        }
        out += buffer;
        break;
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        if (wide) {
          std::snprintf(buffer, sizeof buffer, (spec + "ll" + type).c_str(),
                        static_cast<unsigned long long>(next(8)));
        } else {
          std::snprintf(buffer, sizeof buffer, (spec + type).c_str(),
                        static_cast<unsigned>(next(4)));
        }
        out += buffer;
        break;
      case 'c':
        std::snprintf(buffer, sizeof buffer, (spec + "c").c_str(),
                      static_cast<int>(next(4)) & 0xff);
        out += buffer;
        break;
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
      case 'a':
      case 'A': {
        const uint64_t bits = next(8);
        double value;
        std::memcpy(&value, &bits, 8);
        char wide_buffer[1024];
        std::snprintf(wide_buffer, sizeof wide_buffer, (spec + type).c_str(), value);
        out += wide_buffer;
        break;
      }
      case 'p':
        std::snprintf(buffer, sizeof buffer, (spec + "p").c_str(),
                      reinterpret_cast<void*>(next(8)));
        out += buffer;
        break;
      case 's': {
        std::string text;
        const uint64_t address = next(8);
        if (address == 0) {
          text = "(null)";
        } else if (!ReadString(c, lane, address, &text)) {
          text.clear();
        }
        // The precision cuts, the width pads.
        std::string padded(text.size() + 512, '\0');
        const int length =
            std::snprintf(padded.data(), padded.size(), (spec + "s").c_str(), text.c_str());
        padded.resize(length > 0 ? static_cast<size_t>(length) : 0);
        out += padded;
        break;
      }
      default:
        // Unknown: printed as it stands.
        out += format.substr(begin, i - begin + (type != '\0' ? 1 : 0));
        break;
    }
  }
  *count = used;
  return out;
}

}  // namespace detshare::soft::ptx
