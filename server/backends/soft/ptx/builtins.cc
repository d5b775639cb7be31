#include "server/backends/soft/ptx/builtins.h"

#include <cstdio>
#include <cstring>

#include "server/backends/soft/ptx/device_runtime.h"
#include "server/backends/soft/ptx/memory_access.h"

namespace detshare::soft::ptx {

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

namespace {

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
    if (output != nullptr) output->PrintError(text);
  });
  RaiseFault(c, in, FaultKind::kAssert, 0, FirstLane(mask));
}

}  // namespace

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
    case Builtin::kOldDeviceRuntime:
      RaiseFault(c, in, FaultKind::kTrap, 0, FirstLane(mask));
      return;
    case Builtin::kNone:
      return;
    default:
      return ExecDeviceRuntime(c, call, mask);
  }
}

}  // namespace detshare::soft::ptx
