// Any text must either be refused with the wrong line, or be decoded into kernels that run without
// harm (module.h).
#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "server/backends/soft/ptx/block_runner.h"
#include "server/backends/soft/ptx/module.h"
#include "tests/fuzzing/check.h"
#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

// A small device memory. Kernels that allocate in a loop reach its end.
class SmallMemory final : public Memory {
 public:
  static constexpr uint64_t kBytes = 1 << 20;

  uint64_t Allocate(uint64_t bytes) override {
    if (bytes > kBytes - used_) return 0;
    used_ += bytes;
    return Memory::Allocate(bytes);
  }

 private:
  uint64_t used_ = 0;
};

void CheckError(const absl::Status& status, std::string_view text) {
  FUZZ_CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  FUZZ_CHECK(!message.empty());
  constexpr std::string_view kLine = "line ";
  if (!message.starts_with(kLine)) return;
  const unsigned long line = std::strtoul(message.c_str() + kLine.size(), nullptr, 10);
  FUZZ_CHECK(line >= 1);
  FUZZ_CHECK(line <= 1ul + static_cast<unsigned long>(std::count(text.begin(), text.end(), '\n')));
}

bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

void CheckKernels(const Module& module) {
  const std::vector<KernelInfo>& kernels = module.kernels();
  for (size_t i = 0; i < kernels.size(); ++i) {
    const KernelInfo& kernel = kernels[i];
    FUZZ_CHECK(module.FindKernel(kernel.name) == static_cast<int>(i));
    FUZZ_CHECK(kernel.registers_per_thread <= 255);
    uint32_t end = 0;
    for (const ParamInfo& param : kernel.params) {
      FUZZ_CHECK(IsPowerOfTwo(param.align) && param.offset % param.align == 0);
      FUZZ_CHECK(param.offset >= end);
      end = param.offset + param.size;
    }
    FUZZ_CHECK(end == kernel.param_bytes);
  }
}

// Returns the addresses of the globals; empty when they do not fit.
std::vector<uint64_t> Place(const Module& module, SmallMemory& memory) {
  std::vector<uint64_t> addresses;
  for (const GlobalInfo& global : module.globals()) {
    FUZZ_CHECK(IsPowerOfTwo(global.align));
    const uint64_t address = memory.Allocate(global.size);
    if (address == 0 || address % global.align != 0) return {};
    addresses.push_back(address);
  }
  return addresses;
}

// Runs a block of each kernel for some instructions.
void RunBriefly(const Executable& executable, SmallMemory& memory) {
  constexpr int kTurns = 4;
  constexpr uint64_t kBudget = 500;
  for (size_t i = 0; i < executable.module().kernels().size(); ++i) {
    LaunchConfig config;
    config.block = {40, 1, 1};
    config.params.resize(executable.module().kernels()[i].param_bytes);
    const auto launch = KernelLaunch::Create(executable, i, config, {&memory, &memory, &memory});
    if (!launch.ok()) continue;
    BlockRunner runner(launch->get());
    runner.Start(0, {0});
    for (int turn = 0; turn < kTurns; ++turn) {
      const RunState state = runner.Run(kBudget);
      if (state == RunState::kDone || state == RunState::kFaulted) break;
    }
  }
}

void Check(std::string_view text) {
  const auto module = Module::Parse(text);
  if (!module.ok()) return CheckError(module.status(), text);
  CheckKernels(**module);
  SmallMemory memory;
  const std::vector<uint64_t> addresses = Place(**module, memory);
  if (addresses.size() != (*module)->globals().size()) return;
  for (size_t i = 0; i < addresses.size(); ++i) {
    // The vector has exactly the global's size, so that a sanitizer finds a write beyond it.
    std::vector<uint8_t> image((*module)->globals()[i].size);
    (*module)->WriteInitialImage(i, addresses, image.data());
    std::copy(image.begin(), image.end(), reinterpret_cast<uint8_t*>(addresses[i]));
  }
  const auto executable = (*module)->Bind(addresses);
  if (executable.ok()) RunBriefly(**executable, memory);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  detshare::soft::ptx::testing::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
