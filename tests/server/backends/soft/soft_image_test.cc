#include "server/backends/soft/soft_image.h"

#include <cuda.h>

#include <catch2/catch.hpp>
#include <random>

#include "proto/images/fatbin.h"
#include "server/backends/images/register_counts.h"
#include "tests/server/backends/soft/soft_device_harness.h"

namespace detshare::soft {
namespace {

constexpr char kHeader[] = ".version 8.0\n.target sm_75\n.address_size 64\n";

std::string PtxStore(const std::string& name, int value) {
  return std::string(kHeader) + ".visible .entry " + name +
         "(.param .u64 out) {\n.reg .b64 %a;\n.reg .b32 %v;\nld.param.u64 %a, [out];\nmov.b32 "
         "%v, " +
         std::to_string(value) + ";\nst.global.b32 [%a], %v;\nret;\n}\n";
}

// A library, and a session that runs its kernels.
class Loaded {
 public:
  absl::Status Load(const std::string& image) {
    logs_.error_limit = 1000;
    absl::StatusOr<std::unique_ptr<Library>> library =
        device_->LoadLibrary(session_.space(), BytesOf(image), {}, logs_, nullptr);
    if (library.ok()) library_ = *std::move(library);
    return library.status();
  }
  int Run(const std::string& kernel, int value = 0) {
    int* out = session_.Allocate<int>(1);
    *out = value;
    Require(session_.queue().Launch(session_.space(), *Require(library_->GetKernel(kernel)), {},
                                    Parameters(out)));
    Require(session_.Finish());
    return *out;
  }
  absl::StatusOr<std::string> Link(const std::vector<LinkInputImage>& inputs) {
    logs_.error_limit = 1000;
    return device_->Link(inputs, {}, logs_);
  }
  const CompileLogs& logs() const { return logs_; }
  std::string log() { return device_.log(); }

 private:
  TestDevice device_;
  TestSession session_{device_, 0};
  CompileLogs logs_;
  std::unique_ptr<Library> library_;
};

// Returns PTX of a kernel that keeps `values` values at the same time.
std::string PtxOfPressure(const std::string& name, const std::string& bounds, int values) {
  std::string text = std::string(kHeader) + ".visible .entry " + name + "(.param .u64 out) " +
                     bounds + " {\n.reg .b64 %a;\n.reg .b32 %v<" + std::to_string(values) +
                     ">;\nld.param.u64 %a, [out];\n";
  for (const char* step :
       {"ld.volatile.global.b32 %v#, [%a];\n", "st.volatile.global.b32 [%a], %v#;\n"}) {
    for (int i = 0; i < values; ++i) {
      const std::string line = step;
      const size_t at = line.find('#');
      text += line.substr(0, at) + std::to_string(i) + line.substr(at + 1);
    }
  }
  return text + "ret;\n}\n";
}

// Returns a fatbin with a text.
std::string FatbinFor(uint32_t sm, const std::string& text) {
  return images::WritePtxFatbin({&text, 1}, sm);
}

// Returns the fatbin with another byte at `offset`, which changes its kind or flags.
std::string With(std::string fatbin, size_t offset, uint8_t value) {
  fatbin.at(images::kFatbinHeaderBytes + offset) = static_cast<char>(value);
  return fatbin;
}

std::string Joined(const std::string& a, const std::string& b) {
  std::string joined = a + b.substr(images::kFatbinHeaderBytes);
  const uint64_t bytes = joined.size() - images::kFatbinHeaderBytes;
  std::memcpy(joined.data() + 8, &bytes, sizeof(bytes));
  return joined;
}

}  // namespace

TEST_CASE("PTX text is loaded, terminated or not") {
  Loaded loaded;
  Require(loaded.Load(PtxStore("Go", 5)));
  CHECK(loaded.Run("Go") == 5);
  Require(loaded.Load(PtxStore("Go", 6) + std::string("\0garbage", 8)));
  CHECK(loaded.Run("Go") == 6);
}

TEST_CASE("a fatbin gives the PTX of the highest architecture that the device runs") {
  Loaded loaded;
  Require(loaded.Load(
      Joined(FatbinFor(75, PtxStore("Go", 75)),
             Joined(FatbinFor(90, PtxStore("Go", 90)), FatbinFor(100, PtxStore("Go", 100))))));
  CHECK(loaded.Run("Go") == 90);
  // Code for exactly this architecture (sm_90a) has this bit in byte 2 of the flags.
  Require(loaded.Load(Joined(With(FatbinFor(90, PtxStore("Go", 91)), 42, 0x10),
                             FatbinFor(90, PtxStore("Go", 90)))));
  CHECK(loaded.Run("Go") == 91);
  Require(loaded.Load(Joined(With(FatbinFor(89, PtxStore("Go", 89)), 42, 0x10),
                             FatbinFor(80, PtxStore("Go", 80)))));
  CHECK(loaded.Run("Go") == 80);
}

TEST_CASE("as many blocks fit on an SM as the kernel's launch bounds say") {
  TestDevice device;
  TestSession session(device, 0);
  int* out = session.Allocate<int>(1);
  for (int threads = 32; threads <= 1024; threads += 32) {
    for (const int blocks : {1, 2, 3, 5}) {
      if (threads * blocks > 2048) continue;
      INFO(threads << " threads, " << blocks << " blocks");
      const auto library = session.Load(PtxOfPressure(
          "Go",
          ".maxntid " + std::to_string(threads) + ", 1, 1 .minnctapersm " + std::to_string(blocks),
          240));
      Kernel& kernel = *Require(library->GetKernel("Go"));
      CHECK(kernel.info().attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] == threads);
      CHECK(Require(kernel.MaxActiveBlocks({threads, 0})) >= blocks);
      LaunchShape shape;
      shape.grid = {1};
      shape.block = {static_cast<uint32_t>(threads)};
      Require(session.queue().Launch(session.space(), kernel, shape, Parameters(out)));
    }
  }
  Require(session.Finish());
}

TEST_CASE("machine code beside the PTX says how many registers a kernel uses") {
  TestDevice device;
  TestSession session(device, 0);
  const auto known = images::RegisterCounts(ReadTestFile("kernels.cubin"));
  for (const char* name : {"Add", "MatMul", "Bounded", "GridSum"}) {
    INFO(name);
    CHECK(session.kernel(name).info().attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] ==
          static_cast<int>(known.at(name)));
  }
  // A block of more threads than these registers allow does not fit, as on a GPU.
  const KernelInfo& wide = session.kernel("Wide").info();
  CHECK(wide.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] > 128);
  CHECK(wide.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] <= 168);
  CHECK(wide.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] == 384);
}

TEST_CASE("a fatbin with only machine code has no binary for this GPU") {
  Loaded loaded;
  const std::string elf_only = With(FatbinFor(90,
                                              "\x7f"
                                              "ELF"),
                                    0, 2);
  CHECK(CudaResultOf(loaded.Load(elf_only)) == kCudaErrorNoBinaryForGpu);
  CHECK(CudaResultOf(loaded.Load(FatbinFor(100, PtxStore("Go", 1)))) == kCudaErrorNoBinaryForGpu);
  CHECK(loaded.logs().error.find("sm_100") != std::string::npos);
  CHECK(CudaResultOf(loaded.Load(ReadTestFile("kernels.cubin"))) == kCudaErrorNoBinaryForGpu);
  CHECK(CudaResultOf(loaded.Load(std::string(kHeader).replace(19, 2, "10") + "0\n")) !=
        kCudaSuccess);
}

TEST_CASE("data that is not an image is refused") {
  Loaded loaded;
  CHECK(CudaResultOf(loaded.Load("")) == kCudaErrorInvalidImage);
  CHECK(CudaResultOf(loaded.Load("hello")) == kCudaErrorInvalidImage);
  CHECK(CudaResultOf(loaded.Load("\x7f"
                                 "ELF")) == kCudaErrorInvalidImage);
  const std::string fatbin = FatbinFor(75, PtxStore("Go", 1));
  CHECK(CudaResultOf(loaded.Load(fatbin.substr(0, fatbin.size() - 1))) == kCudaErrorInvalidImage);
  CHECK(CudaResultOf(loaded.Load(fatbin.substr(0, 10))) == kCudaErrorInvalidImage);
}

TEST_CASE("the log and the error for the program name an unknown instruction") {
  Loaded loaded;
  const std::string text =
      std::string(kHeader) + ".visible .entry Go() {\nfrobnicate.b32 %r1, %r2;\nret;\n}\n";
  CHECK(CudaResultOf(loaded.Load(text)) == kCudaErrorInvalidPtx);
  CHECK(loaded.logs().error.find("frobnicate") != std::string::npos);
  CHECK(loaded.log().find("frobnicate") != std::string::npos);
}

TEST_CASE("PTX for newer architectures or of a newer version is refused") {
  Loaded loaded;
  CHECK(CudaResultOf(loaded.Load(".version 8.7\n.target sm_100\n.address_size 64\n")) ==
        kCudaErrorNoBinaryForGpu);
  CHECK_FALSE(loaded.Load(".version 99.0\n.target sm_75\n.address_size 64\n").ok());
}

TEST_CASE("the parts of a program that nvlink linked are linked from their PTX") {
  Loaded loaded;
  // The shim sends the linked fatbin, which has only machine code, and then its parts.
  const std::string linked = With(FatbinFor(90,
                                            "\x7f"
                                            "ELF"),
                                  0, 2);
  const std::string a = ReadTestFile("parts_a.fatbin"), b = ReadTestFile("parts_b.fatbin");
  Require(loaded.Load(linked + a + b));
  CHECK(loaded.Run("UseTwice", 11) == 11 * 2 + 20 + 20);
  CHECK(CudaResultOf(loaded.Load(linked + a)) == kCudaErrorInvalidPtx);
}

TEST_CASE("PTX and fatbins are linked into an image that can be loaded") {
  Loaded loaded;
  const std::string image =
      Require(loaded.Link({{CU_JIT_INPUT_FATBINARY, "a", ReadTestFile("parts_a.fatbin")},
                           {CU_JIT_INPUT_FATBINARY, "b", ReadTestFile("parts_b.fatbin")},
                           {CU_JIT_INPUT_PTX, "c", PtxStore("Go", 3) + '\0'}}));
  Require(loaded.Load(image));
  CHECK(loaded.Run("Go") == 3);
  CHECK(loaded.Run("UseTwice", 1) == 42);
}

TEST_CASE("A link without inputs makes an image without kernels") {
  Loaded loaded;
  Require(loaded.Load(Require(loaded.Link({}))));
}

TEST_CASE("inputs that cannot be linked are refused with their names") {
  Loaded loaded;
  CHECK(CudaResultOf(
            loaded.Link({{CU_JIT_INPUT_CUBIN, "code", ReadTestFile("kernels.cubin")}}).status()) ==
        kCudaErrorNoBinaryForGpu);
  CHECK(loaded.logs().error.find("code") != std::string::npos);
  CHECK(CudaResultOf(loaded.Link({{CU_JIT_INPUT_LIBRARY, "libx.a", "!<arch>"}}).status()) ==
        kCudaErrorNotSupported);
  CHECK(CudaResultOf(loaded.Link({{CU_JIT_INPUT_PTX, "text", "nonsense"}}).status()) ==
        kCudaErrorInvalidImage);
  CHECK(CudaResultOf(loaded.Link({{CU_JIT_INPUT_FATBINARY, "a", ReadTestFile("parts_a.fatbin")}})
                         .status()) == kCudaErrorInvalidPtx);
  CHECK(CudaResultOf(loaded
                         .Link({{CU_JIT_INPUT_PTX, "a", PtxStore("Go", 1)},
                                {CU_JIT_INPUT_PTX, "b", PtxStore("Go", 2)}})
                         .status()) == kCudaErrorInvalidPtx);
}

TEST_CASE("a module that does not load leaves nothing behind") {
  TestDevice device;
  TestSession session(device, 0);
  const uint64_t free = device->memory().free;
  CompileLogs logs;
  // The second variable is larger than the card.
  const std::string text =
      std::string(kHeader) +
      ".visible .global .b8 small[100];\n.visible .global .b8 large[1073741824];\n";
  CHECK_FALSE(device->LoadLibrary(session.space(), BytesOf(text), {}, logs, nullptr).ok());
  CHECK(device->memory().free == free);
  {
    const auto library = session.Load(std::string(kHeader) + ".visible .global .b8 small[100];\n");
    CHECK(device->memory().free == free - 100);
  }
  CHECK(device->memory().free == free);
}

TEST_CASE("damaged images never do more than fail to load") {
  TestDevice device;
  TestSession session(device, 0);
  std::mt19937 random(11);
  const std::string fatbin = ReadTestFile("parts_b.fatbin"), text = PtxStore("Go", 1);
  for (int round = 0; round < 600; ++round) {
    std::string image = round % 2 == 0 ? fatbin : text;
    for (int change = 1 + random() % 4; change > 0; --change) {
      image[random() % image.size()] =
          static_cast<char>(round % 3 == 0 ? random() : ' ' + random() % 90);
    }
    if (random() % 4 == 0) image.resize(random() % image.size());
    CompileLogs logs;
    logs.error_limit = 100;
    const auto library = device->LoadLibrary(session.space(), BytesOf(image), {}, logs, nullptr);
    if (library.ok()) continue;
    REQUIRE(CudaResultOf(library.status()) != kCudaErrorUnknown);
    REQUIRE_FALSE(logs.error.empty());
    REQUIRE(logs.error.size() <= 100);
  }
}

}  // namespace detshare::soft
