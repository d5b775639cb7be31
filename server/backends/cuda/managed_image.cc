#include "server/backends/cuda/managed_image.h"

#include <utility>
#include <vector>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_library.h"
#include "server/backends/images/managed_elf.h"

namespace detshare::cuda {
namespace {

absl::Status NotSupported(std::string_view what) {
  return CudaError(CUDA_ERROR_NOT_SUPPORTED, what);
}

}  // namespace

void ManagedScan::Add(const images::DeviceCode& code) {
  const bool elf = code.kind == images::EntryKind::kElf;
  Code added{code.kind};
  added.managed = elf ? images::HasManagedVariables(code.bytes)
                      : code.bytes.find(".managed") != std::string_view::npos;
  any_ |= added.managed;
  size_t fatbin = 0;
  if (code.entry != nullptr) {
    fatbin = code.entry->fatbin;
    added.sm = code.entry->sm;
    added.specific = (code.entry->flags & images::kEntryArchitectureSpecific) != 0;
  }
  // Chooses the best code of each fatbin as the driver does: the newest architecture.
  const auto [place, first] = best_.try_emplace(fatbin);
  Code& best = place->second;
  if (!first && std::pair(added.sm, added.specific) <= std::pair(best.sm, best.specific)) return;
  // Keeps each such PTX text: it is linked with the texts of the other fatbins, and any of them may
  // have the variables. Of machine code, the first fatbin is linked already and is the program.
  const bool kept =
      elf ? added.managed && place == best_.begin() : added.managed || code.entry != nullptr;
  if (kept) added.bytes = code.bytes;
  best = std::move(added);
}

absl::StatusOr<std::optional<std::string>> ManagedScan::Place(
    CudaContext& context, CudaAddressSpace& space, absl::Span<const JitOptionValue> options,
    CompileLogs& logs, const PlaceManaged& place) {
  if (!any_) return std::nullopt;
  std::string elf;
  if (best_.begin()->second.kind == images::EntryKind::kElf) {
    const Code& code = best_.begin()->second;
    if (!code.managed) return std::nullopt;
    elf = code.bytes;
  } else {
    std::vector<LinkInputImage> inputs;
    for (const auto& [fatbin, code] : best_) inputs.push_back({CU_JIT_INPUT_PTX, "", code.bytes});
    absl::StatusOr<std::string> linked;
    const absl::Status status = context.GroupOf(space).idle.Run(space, [&] {
      linked = LinkImages(context, inputs, options, logs);
      return linked.status();
    });
    if (!status.ok()) return status;
    elf = *std::move(linked);
  }

  std::vector<images::ManagedElfVariable> found;
  std::string error;
  if (!images::FindManagedVariables(elf, &found, &error))
    return CudaError(kCudaErrorInvalidImage, error);
  if (found.empty()) return std::nullopt;
  if (!place) return NotSupported("the session has no place for managed variables");
  std::vector<ManagedVariable> variables;
  for (images::ManagedElfVariable& variable : found)
    variables.push_back({std::move(variable.name), variable.bytes, variable.alignment});
  DETSHARE_ASSIGN_OR_RETURN(const ManagedPlaces places, place(variables));
  std::vector<std::string> contents;
  if (!images::PlaceManagedVariables(&elf, places.addresses, &contents, &error))
    return NotSupported(error);
  if (places.initialize) {
    for (size_t i = 0; i < contents.size(); ++i) places.initialize(i, contents[i]);
  }
  return elf;
}

}  // namespace detshare::cuda
