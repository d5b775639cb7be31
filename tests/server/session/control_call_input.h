// An input of control_call_fuzzer.cc: operations, one after the other.
#pragma once

#include <cstdint>
#include <string>

#include "proto/driver_api/driver_api_ops.h"

namespace detshare {

// Where the session that gets an input has its memory: places that every sanitizer leaves alone.
inline constexpr uint64_t kInputDeviceBase = 0x7E9000000000;
inline constexpr uint64_t kInputDeviceBytes = uint64_t{1} << 30;
inline constexpr uint64_t kInputPinnedBase = 0x7EA000000000;
inline constexpr uint64_t kInputPinnedBytes = uint64_t{1} << 28;

// Followed by the arguments and the payload.
struct InputOperation {
  uint16_t op = 0;       // Op
  uint8_t device = 0;    // of the session's
  uint8_t by_ring = 0;   // odd: comes as a record of the ring, else as a call
  uint16_t context = 0;  // the current one
  uint16_t args_bytes = 0;
  uint16_t payload_bytes = 0;
};
static_assert(sizeof(InputOperation) == 10);

// One operation as a part of an input.
template <typename Args>
std::string PrintOperation(Op op, const Args& args, const std::string& payload, bool by_ring) {
  InputOperation head;
  head.op = static_cast<uint16_t>(op);
  head.by_ring = by_ring ? 1 : 0;
  head.context = 1;
  head.args_bytes = sizeof(args);
  head.payload_bytes = static_cast<uint16_t>(payload.size());
  return std::string(reinterpret_cast<const char*>(&head), sizeof(head)) +
         std::string(reinterpret_cast<const char*>(&args), sizeof(args)) + payload;
}
template <typename Args>
std::string CallOf(Op op, const Args& args, const std::string& payload = "") {
  return PrintOperation(op, args, payload, false);
}
template <typename Args>
std::string RecordOf(Op op, const Args& args, const std::string& payload = "") {
  return PrintOperation(op, args, payload, true);
}

}  // namespace detshare
