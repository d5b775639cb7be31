// Runs kernels for tests: an arena of device memory in which only allocations are accessible, a
// launcher with a given number of threads, and captured output.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/backends/soft/ptx/block_runner.h"

namespace detshare::soft::ptx::testing {

// Device memory, made of host allocations. Each allocation is a range of its own, so an access
// beyond it is a fault.
class Memory : public MemoryGuard, public DeviceHeap, public OutputSink {
 public:
  bool Find(uint64_t address, MemoryRange* range) const override;
  uint64_t Allocate(uint64_t bytes) override;
  bool Free(uint64_t address) override;
  void Print(std::string_view text) override;
  void PrintError(std::string_view text) override { Print(text); }

  template <class T>
  T* New(size_t count) {
    return reinterpret_cast<T*>(Allocate(count * sizeof(T)));
  }
  std::string output() const;
  void ClearOutput();

 private:
  struct Block {
    std::unique_ptr<uint8_t[]> storage;
    uint64_t begin, end;
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Block> blocks_;
  std::string output_;
};

// Packs kernel arguments with their natural alignment.
class Params {
 public:
  template <class T>
  Params& Add(const T& value) {
    const size_t at = (bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T);
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    return *this;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

struct Result {
  Fault fault;
  CostCounters counters;
};

// A loaded module with its globals in `memory`.
class Program {
 public:
  // Throws std::runtime_error with the status when the parser refuses the text.
  Program(Memory* memory, std::string_view text);
  Program(Memory* memory, const std::vector<std::string_view>& texts);

  Result Run(std::string_view kernel, LaunchConfig config, int threads = 1,
             uint64_t budget = 100000);
  template <class T>
  T* Global(std::string_view name) {
    const int index = module_->FindGlobal(name);
    return index < 0 ? nullptr : reinterpret_cast<T*>(addresses_[static_cast<size_t>(index)]);
  }
  const Module& module() const { return *module_; }
  // Sets the images for the handles of the kernels. They must outlive the runs.
  void set_images(const ImageTable* images) { images_ = images; }
  // Lets kernels launch kernels. It must outlive the runs.
  void set_runtime(DeviceRuntime* runtime) { runtime_ = runtime; }

 private:
  DeviceRuntime* runtime_ = nullptr;
  const ImageTable* images_ = nullptr;
  Memory* memory_;
  std::unique_ptr<Module> module_;
  std::vector<uint64_t> addresses_;
  std::unique_ptr<Executable> executable_;
};

// A launch configuration for one-dimensional grids.
LaunchConfig Config(uint32_t grid, uint32_t block, const Params& params);

}  // namespace detshare::soft::ptx::testing
