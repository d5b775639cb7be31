// One row of the table of driver entry points. The rows (kRows) are generated from driver_api.table
// into driver_api_table.h. The table's header explains every field in detail.
#pragma once

#include <cstdint>

namespace detshare {

// How a call is transported, and which side executes it.
enum class Transport : uint8_t {
  kRing,     // to the daemon, through the submission ring
  kControl,  // to the daemon, as a control call: through the ring if it is small, or else over gRPC
  kLocal,    // the client executes it from its own state, or reduces it to other rows
  kNone,     // not supported
};

enum class Support : uint8_t { kFull, kPartial, kNone };

struct Row {
  const char* symbol;  // exported name, such as "cuMemcpyHtoD_v2_ptds"
  const char* api;     // its name for cuGetProcAddress, "cuMemcpyHtoD"
  const char* family;  // "copy"
  const char* title;   // the family's name for people
  const char* note;    // "", or why support is not full
  uint16_t op;         // detshare::Op, unique; on the wire for kRing and kControl
  uint16_t version;    // CUDA version in which this ABI appeared, 12040 for 12.4
  Transport transport;
  Support support;
  bool per_thread;        // the variant that uses the calling thread's own default stream
  bool before_init;       // may be called before cuInit
  bool in_host_function;  // may be called in a host function
  bool exported;          // false: only cuGetProcAddress knows it
};

constexpr const char* TransportName(Transport transport) {
  switch (transport) {
    case Transport::kRing:
      return "ring";
    case Transport::kControl:
      return "control";
    case Transport::kLocal:
      return "local";
    case Transport::kNone:
      break;
  }
  return "none";
}

constexpr const char* SupportName(Support support) {
  switch (support) {
    case Support::kFull:
      return "full";
    case Support::kPartial:
      return "partial";
    case Support::kNone:
      break;
  }
  return "none";
}

}  // namespace detshare
