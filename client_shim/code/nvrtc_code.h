// The PTX from which NVRTC made machine code, for devices that run only PTX.
//
// A program that asks NVRTC for machine code gets it as bytes, and later loads them. NVRTC compiles
// to PTX first. It stores or finds both results in its compile cache (compile_cache.h), one after
// the other, on one thread and for the same input. So what passes through the cache tells which PTX
// belongs to which machine code.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "proto/content_hash.h"

namespace detshare::shim {

// Any thread.
class NvrtcCode {
 public:
  // Keeps PTX up to this sum. Code that NVRTC makes afterwards is unknown.
  explicit NvrtcCode(size_t limit_bytes = size_t{16} << 20) : limit_bytes_(limit_bytes) {}

  // NVRTC has stored or found `result` in its cache on this thread. `input` is what it compiles.
  void Note(std::string_view input, std::string_view result);

  // Returns the PTX of machine code that NVRTC made; empty if it is not known. Bytes behind the end
  // of the machine code have no effect.
  std::string PtxOf(std::span<const std::byte> machine_code);

 private:
  struct Latest {
    ContentHash input;
    std::string ptx;
  };

  const size_t limit_bytes_;
  std::mutex mutex_;                          // guards the rest
  std::map<std::thread::id, Latest> latest_;  // PTX whose machine code may follow
  std::map<ContentHash, std::string> ptx_;    // by the hash of the machine code
  size_t bytes_ = 0;                          // of ptx_
};

// The process's. Never destroyed.
NvrtcCode& nvrtc_code();

}  // namespace detshare::shim
