// Takes the place of the implementations behind the generated code: records which functions were
// called with which arguments.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare {

struct Recorded {
  std::string symbol;
  std::vector<uint64_t> args;  // every argument as a number
  bool per_thread_default;     // inside a PerThreadDefaultScope
  CUstream config_stream;      // of an argument `const CUlaunchConfig*`
};

// The calls since a test last cleared the list.
extern std::vector<Recorded> recorded;
// The result of Enter() for rows that are not before_init.
extern CUresult enter_result;
extern bool in_host_function;
extern int per_thread_default_depth;

template <typename T>
uint64_t AsNumber(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uint64_t>(value);
  } else if constexpr (std::is_class_v<T>) {
    // A struct passed by value is recorded by its first bytes.
    uint64_t number = 0;
    std::memcpy(&number, &value, std::min(sizeof(number), sizeof(value)));
    return number;
  } else {
    return static_cast<uint64_t>(value);
  }
}

inline CUstream StreamOf(const CUlaunchConfig* config) { return config->hStream; }
template <typename T>
CUstream StreamOf(const T&) {
  return nullptr;
}

template <typename... Args>
CUresult Record(const char* symbol, Args... args) {
  Recorded call{symbol, {AsNumber(args)...}, per_thread_default_depth != 0, nullptr};
  for (CUstream stream : std::initializer_list<CUstream>{nullptr, StreamOf(args)...}) {
    if (stream != nullptr) call.config_stream = stream;
  }
  recorded.push_back(call);
  return CUDA_SUCCESS;
}

inline void RecordHandler(const char* symbol, size_t payload_bytes) {
  recorded.push_back({symbol, {payload_bytes}, false, nullptr});
}

struct CrossingRow {
  const char* symbol;
  uint16_t op;
  size_t args_bytes;
};
extern const std::vector<CrossingRow> kCrossingRows;

}  // namespace detshare
