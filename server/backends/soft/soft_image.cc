#include "server/backends/soft/soft_image.h"

#include <cuda.h>

#include <algorithm>
#include <span>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"
#include "proto/images/fatbin.h"
#include "proto/images/image_kind.h"
#include "server/backends/images/device_code.h"
#include "server/backends/images/register_counts.h"

namespace detshare::soft {
namespace {

using images::EntryKind;
using images::FatbinEntry;

constexpr uint64_t kLargestPtx = 256 << 20;
constexpr uint32_t kNewestPtxVersion = 90;
constexpr int kUnsupportedPtxVersion = 222;

// For the same architecture, code for exactly this architecture or family wins over portable code.
std::tuple<uint32_t, uint64_t> Preference(const FatbinEntry& entry) {
  return {entry.sm,
          entry.flags & (images::kEntryArchitectureSpecific | images::kEntryFamilySpecific)};
}

std::string ArchitecturesOf(const std::vector<FatbinEntry>& entries) {
  std::string list;
  for (const FatbinEntry& entry : entries) {
    absl::StrAppend(&list, list.empty() ? "" : ", ",
                    entry.kind == EntryKind::kPtx ? "PTX" : "machine code", " for sm_", entry.sm);
  }
  return list.empty() ? "nothing" : list;
}

absl::StatusOr<std::vector<std::string>> PtxOfFatbins(std::span<const std::byte> image,
                                                      uint32_t sm) {
  std::vector<FatbinEntry> entries;
  std::string error;
  if (!images::ParseFatbins(image, &entries, &error))
    return CudaError(kCudaErrorInvalidImage, error);

  // The best entries of each fatbin.
  std::vector<std::vector<const FatbinEntry*>> chosen;
  for (const FatbinEntry& entry : entries) {
    if (chosen.size() <= entry.fatbin) chosen.resize(entry.fatbin + 1);
    if (entry.kind != EntryKind::kPtx || !images::RunsOn(entry, sm)) continue;
    std::vector<const FatbinEntry*>& best = chosen[entry.fatbin];
    if (!best.empty() && Preference(entry) < Preference(*best.front())) continue;
    if (!best.empty() && Preference(entry) > Preference(*best.front())) best.clear();
    best.push_back(&entry);
  }
  // PTX in the first fatbin is the whole program.
  if (!chosen.empty() && !chosen.front().empty()) chosen.resize(1);

  std::vector<std::string> texts;
  uint64_t left = kLargestPtx;
  for (const std::vector<const FatbinEntry*>& parts : chosen) {
    for (const FatbinEntry* part : parts) {
      std::string text;
      if (!images::DecodeEntry(*part, left, &text, &error))
        return CudaError(kCudaErrorInvalidImage, error);
      left -= text.size();
      texts.push_back(std::move(text));
    }
  }
  if (texts.empty()) {
    return CudaError(kCudaErrorNoBinaryForGpu,
                     absl::StrCat("the fatbin has ", ArchitecturesOf(entries),
                                  "; the software GPU runs PTX for sm_", sm, " or less"));
  }
  return texts;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> PtxOfImage(absl::Span<const std::byte> image,
                                                    uint32_t sm) {
  const std::span<const std::byte> bytes(image.data(), image.size());
  switch (images::SniffImage(bytes)) {
    case images::ImageKind::kPtx:
      if (bytes.size() > kLargestPtx)
        return CudaError(kCudaErrorInvalidImage, "the PTX text is too large");
      return std::vector<std::string>{
          std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
    case images::ImageKind::kFatbin:
      return PtxOfFatbins(bytes, sm);
    case images::ImageKind::kElf: {
      const auto cubin = images::ReadCubinHeader(bytes);
      if (!cubin.has_value())
        return CudaError(kCudaErrorInvalidImage, "the image is an ELF file without code for GPUs");
      return CudaError(kCudaErrorNoBinaryForGpu,
                       absl::StrCat("the image is machine code for sm_", cubin->sm,
                                    "; the software GPU runs PTX only"));
    }
    case images::ImageKind::kWrapper:
    case images::ImageKind::kUnknown:
      break;
  }
  return CudaError(kCudaErrorInvalidImage, "the image is not ELF, PTX or a fatbin");
}

std::map<std::string, uint32_t> RegistersOfImage(absl::Span<const std::byte> image, uint32_t sm) {
  std::map<std::string, uint32_t> registers;
  uint32_t best = 0;
  images::ForEachDeviceCode(
      std::span<const std::byte>(image.data(), image.size()), static_cast<int>(sm),
      [&](const images::DeviceCode& code) {
        if (code.kind != EntryKind::kElf || code.entry == nullptr || code.entry->sm < best) return;
        // Code for the nearest architecture runs.
        if (code.entry->sm > best) registers.clear();
        best = code.entry->sm;
        registers.merge(images::RegisterCounts(code.bytes));
      });
  return registers;
}

absl::StatusOr<std::unique_ptr<ptx::Module>> CompilePtx(const std::vector<std::string>& texts,
                                                        uint32_t sm) {
  absl::StatusOr<std::unique_ptr<ptx::Module>> module =
      texts.size() == 1
          ? ptx::Module::Parse(texts.front())
          : ptx::Module::Link(std::vector<std::string_view>(texts.begin(), texts.end()));
  if (!module.ok()) return CudaError(kCudaErrorInvalidPtx, std::string(module.status().message()));
  if ((*module)->target() > sm) {
    return CudaError(
        kCudaErrorNoBinaryForGpu,
        absl::StrCat("the PTX is for sm_", (*module)->target(), ", the device is sm_", sm));
  }
  if ((*module)->ptx_version() > kNewestPtxVersion) {
    return CudaError(kUnsupportedPtxVersion,
                     absl::StrCat("PTX version ", (*module)->ptx_version() / 10, ".",
                                  (*module)->ptx_version() % 10, " is newer than the driver"));
  }
  return module;
}

absl::StatusOr<std::string> LinkImages(absl::Span<const LinkInputImage> inputs, uint32_t sm) {
  std::vector<std::string> texts;
  for (const LinkInputImage& input : inputs) {
    switch (input.type) {
      case CU_JIT_INPUT_PTX:
      case CU_JIT_INPUT_FATBINARY: {
        absl::StatusOr<std::vector<std::string>> parts =
            PtxOfImage(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(input.bytes.data()),
                                           input.bytes.size()),
                       sm);
        if (!parts.ok())
          return CudaError(CudaResultOf(parts.status()),
                           absl::StrCat(input.name, ": ", parts.status().message()));
        for (std::string& part : *parts) {
          // The text ends at the terminator.
          part.resize(std::min(part.find('\0'), part.size()));
          texts.push_back(std::move(part));
        }
        break;
      }
      case CU_JIT_INPUT_CUBIN:
        return CudaError(
            kCudaErrorNoBinaryForGpu,
            absl::StrCat(input.name,
                         ": machine code cannot be linked: the software GPU runs PTX only"));
      default:
        return CudaError(
            kCudaErrorNotSupported,
            absl::StrCat(input.name,
                         ": the software GPU links only PTX and fatbins, not inputs of type ",
                         input.type));
    }
  }
  // As natively, a link without inputs makes an empty module.
  if (texts.empty()) texts.emplace_back(".version 7.0\n.target sm_75\n.address_size 64\n");
  const absl::StatusOr<std::unique_ptr<ptx::Module>> module = CompilePtx(texts, sm);
  if (!module.ok()) return module.status();
  return images::WritePtxFatbin(texts, (*module)->target());
}

}  // namespace detshare::soft
