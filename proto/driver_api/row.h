// What the table of driver entry points says about one function. The rows themselves (kRows) are
// generated from driver_api.table into driver_api_table.h; that file's header explains every field
// at length.
#pragma once

#include <cstdint>

namespace detshare {

// How a call reaches whoever answers it.
enum class Lane : uint8_t {
  kRing,   // crosses to the daemon through the submission ring
  kGrpc,   // crosses by the rpc for rare calls
  kLocal,  // answered by the client, from what it holds or by reducing it to other rows
  kNone,   // not supported
};

enum class Support : uint8_t { kFull, kPartial, kNone };

struct Row {
  const char* symbol;  // exported name, such as "cuMemcpyHtoD_v2_ptds"
  const char* api;     // the name that cuGetProcAddress knows, "cuMemcpyHtoD"
  const char* family;  // "copy"
  const char* title;   // of the family, for people
  const char* note;    // "" or why support is not full
  uint16_t op;         // detshare::Op, unique; on the wire for lanes kRing and kGrpc
  uint16_t version;    // CUDA version in which this ABI appeared, 12040 for 12.4
  Lane lane;
  Support support;
  bool per_thread;   // the variant whose default stream is the calling thread's own
  bool before_init;  // may be called before cuInit
  bool exported;     // false: only cuGetProcAddress knows it
};

constexpr const char* LaneName(Lane lane) {
  switch (lane) {
    case Lane::kRing:
      return "ring";
    case Lane::kGrpc:
      return "grpc";
    case Lane::kLocal:
      return "local";
    case Lane::kNone:
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
