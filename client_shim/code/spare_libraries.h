// Libraries that the program has unloaded and the daemon still holds, so that a program that loads
// the same image again needs no call. A program that compiles small kernels as it goes may do so
// thousands of times a second.
//
// A spare library is like one that was just loaded: its code has no variables, and no attribute of
// its kernels was ever set.
//
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/ring_abi.h"
#include "proto/wire/library.h"

namespace detshare::shim {

struct KernelInstance;

struct SpareLibrary {
  // A later load must have these in common with this library.
  uint16_t device = 0;
  ContextId context = 0;  // 0: it belongs to the process
  std::vector<wire::JitOption> options;
  std::string image;

  LibraryId id = 0;
  uint32_t kernel_count = 0;
  // The kernels that programs have asked for, on that device.
  std::map<std::string, KernelInstance*, std::less<>> instances;
};

class SpareLibraries {
 public:
  static constexpr size_t kMaxLibraries = 64;
  static constexpr size_t kMaxImageBytes = wire::kSearchedImageBytes;

  // Takes the library out of the table. None: there is no such library.
  std::optional<SpareLibrary> Take(uint16_t device, ContextId context,
                                   const std::vector<wire::JitOption>& options,
                                   std::string_view image);
  // Adds a library. Returns the library that had to leave, which the caller unloads.
  std::optional<SpareLibrary> Keep(SpareLibrary library);
  // Takes all libraries for which `chosen` is true.
  std::vector<SpareLibrary> TakeAll(const std::function<bool(const SpareLibrary&)>& chosen);

 private:
  std::mutex mutex_;
  std::list<SpareLibrary> libraries_;  // least recently used first; guarded by mutex_
};

}  // namespace detshare::shim
