#include "tests/server/backends/soft/ptx/ptx_harness.h"

#include <atomic>
#include <stdexcept>
#include <thread>

namespace detshare::soft::ptx::testing {

bool Memory::Find(uint64_t address, MemoryRange* range) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return false;
  --it;
  if (address >= it->second.end) return false;
  *range = {it->second.begin, it->second.end, true};
  return true;
}

uint64_t Memory::Allocate(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > (uint64_t{1} << 30)) return 0;
  Block block;
  block.storage = std::make_unique<uint8_t[]>(bytes + 512);
  block.begin = (reinterpret_cast<uint64_t>(block.storage.get()) + 255) / 256 * 256;
  block.end = block.begin + bytes;
  const uint64_t begin = block.begin;
  blocks_[begin] = std::move(block);
  return begin;
}

bool Memory::Free(uint64_t address) {
  std::lock_guard<std::mutex> lock(mutex_);
  return blocks_.erase(address) != 0;
}

void Memory::Print(std::string_view text) {
  std::lock_guard<std::mutex> lock(mutex_);
  output_ += text;
}

std::string Memory::output() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return output_;
}

void Memory::ClearOutput() {
  std::lock_guard<std::mutex> lock(mutex_);
  output_.clear();
}

Program::Program(Memory* memory, std::string_view text)
    : Program(memory, std::vector<std::string_view>{text}) {}

Program::Program(Memory* memory, const std::vector<std::string_view>& texts) : memory_(memory) {
  auto module = Module::Link(texts);
  if (!module.ok()) throw std::runtime_error(module.status().ToString());
  module_ = *std::move(module);
  for (const GlobalInfo& g : module_->globals()) addresses_.push_back(memory_->Allocate(g.size));
  for (size_t i = 0; i < addresses_.size(); ++i) {
    module_->WriteInitialImage(i, addresses_, reinterpret_cast<uint8_t*>(addresses_[i]));
  }
  auto executable = module_->Bind(addresses_);
  if (!executable.ok()) throw std::runtime_error(executable.status().ToString());
  executable_ = *std::move(executable);
}

Result Program::Run(std::string_view kernel, LaunchConfig config, int threads, uint64_t budget) {
  // Kernels of tests run too few times to become machine code by themselves.
  if (config.native == NativeUse::kWarm) config.native = NativeUse::kAtOnce;
  const int index = module_->FindKernel(kernel);
  if (index < 0) throw std::runtime_error("no kernel " + std::string(kernel));
  auto launch = KernelLaunch::Create(*executable_, static_cast<size_t>(index), std::move(config),
                                     {memory_, memory_, memory_, images_, nullptr, runtime_});
  if (!launch.ok()) throw std::runtime_error(launch.status().ToString());
  const uint64_t units = (*launch)->unit_count();
  const bool all_at_once = (*launch)->config().cooperative;
  Result result;
  std::mutex mutex;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  auto finish = [&](const BlockRunner& runner, RunState state) {
    std::lock_guard<std::mutex> lock(mutex);
    result.counters.Add(runner.counters());
    if (state == RunState::kFaulted && result.fault.kind == FaultKind::kNone) {
      result.fault = runner.fault();
      stop = true;
    }
  };
  auto worker = [&](uint64_t first, uint64_t step) {
    if (all_at_once) {
      std::vector<std::unique_ptr<BlockRunner>> runners;
      for (uint64_t unit = first; unit < units; unit += step) {
        runners.push_back(std::make_unique<BlockRunner>(launch->get()));
        runners.back()->Start(unit, {static_cast<uint32_t>(unit % 132)});
      }
      while (!runners.empty() && !stop) {
        for (size_t i = 0; i < runners.size();) {
          const RunState state = runners[i]->Run(budget);
          if (state == RunState::kDone || state == RunState::kFaulted) {
            finish(*runners[i], state);
            runners.erase(runners.begin() + static_cast<long>(i));
          } else {
            ++i;
          }
        }
      }
      return;
    }
    BlockRunner runner(launch->get());
    for (;;) {
      const uint64_t unit = next.fetch_add(1);
      if (unit >= units || stop) return;
      runner.Start(unit, {static_cast<uint32_t>(unit % 132)});
      RunState state;
      do {
        state = runner.Run(budget);
      } while (state == RunState::kYielded || state == RunState::kSpinning);
      finish(runner, state);
    }
  };
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(worker, t, threads);
  worker(0, static_cast<uint64_t>(threads));
  for (std::thread& t : pool) t.join();
  return result;
}

LaunchConfig Config(uint32_t grid, uint32_t block, const Params& params) {
  LaunchConfig config;
  config.grid = {grid, 1, 1};
  config.block = {block, 1, 1};
  config.params = params.bytes();
  return config;
}

}  // namespace detshare::soft::ptx::testing
