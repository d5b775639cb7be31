#include "client_shim/code/code_choice.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "proto/images/image_kind.h"

namespace detshare::shim {
namespace {

// The layout is drawn in proto/images/fatbin.h.
constexpr size_t kFatbinHeaderBytes = 16;
constexpr size_t kEntryHeaderBytes = 64;
constexpr uint16_t kPtxEntry = 1;
constexpr uint16_t kElfEntry = 2;

bool IsOne(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && strcmp(value, "1") == 0;
}

template <typename T>
T Read(std::span<const std::byte> bytes, size_t offset) {
  T value;
  memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

void Append(std::string* to, std::span<const std::byte> bytes) {
  to->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Copies the fatbin at the start of `bytes` to the end of *out, without the entries of kind
// `unwanted`, and removes it from `bytes`. Adds the number of entries that stay to *kept. Returns
// false if the fatbin is malformed.
bool Filter(std::span<const std::byte>* bytes, uint16_t unwanted, std::string* out, size_t* kept) {
  if (bytes->size() < kFatbinHeaderBytes) return false;
  const auto header = Read<uint16_t>(*bytes, 6);
  const auto payload = Read<uint64_t>(*bytes, 8);
  if (header < kFatbinHeaderBytes || header > bytes->size() || payload > bytes->size() - header)
    return false;
  const size_t begin = out->size();
  Append(out, bytes->first(header));
  std::span<const std::byte> entries = bytes->subspan(header, payload);
  while (!entries.empty()) {
    if (entries.size() < kEntryHeaderBytes) return false;
    const auto kind = Read<uint16_t>(entries, 0);
    const auto entry_header = Read<uint32_t>(entries, 4);
    const auto entry_payload = Read<uint64_t>(entries, 8);
    if (entry_header < kEntryHeaderBytes || entry_header > entries.size() ||
        entry_payload > entries.size() - entry_header) {
      return false;
    }
    const size_t size = entry_header + entry_payload;
    if (kind != unwanted) {
      Append(out, entries.first(size));
      *kept += kind == kPtxEntry || kind == kElfEntry;
    }
    entries = entries.subspan(size);
  }
  const uint64_t left = out->size() - begin - header;
  memcpy(out->data() + begin + 8, &left, sizeof(left));
  *bytes = bytes->subspan(header + payload);
  return true;
}

}  // namespace

CodeChoice CodeChoiceOfProcess() {
  static const CodeChoice choice = IsOne("CUDA_DISABLE_PTX_JIT") ? CodeChoice::kMachineCodeOnly
                                   : IsOne("CUDA_FORCE_PTX_JIT") ? CodeChoice::kPtxOnly
                                                                 : CodeChoice::kAny;
  return choice;
}

CUresult ChooseCode(CodeChoice choice, ImagePieces* pieces, std::deque<std::string>* storage) {
  if (choice == CodeChoice::kAny) return CUDA_SUCCESS;
  const bool ptx = choice == CodeChoice::kPtxOnly;
  const CUresult nothing = ptx ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_JIT_COMPILATION_DISABLED;
  size_t kept = 0;
  for (std::span<const std::byte>& piece : *pieces) {
    switch (images::SniffImage(piece)) {
      case images::ImageKind::kPtx:
        if (!ptx) return nothing;
        ++kept;
        break;
      case images::ImageKind::kElf:
        if (ptx) return nothing;
        ++kept;
        break;
      case images::ImageKind::kFatbin: {
        std::string& filtered = storage->emplace_back();
        std::span<const std::byte> left = piece;
        while (left.size() >= kFatbinHeaderBytes) {
          if (!Filter(&left, ptx ? kElfEntry : kPtxEntry, &filtered, &kept))
            return CUDA_ERROR_INVALID_IMAGE;
          // Fatbins begin at multiples of 8.
          filtered.resize((filtered.size() + 7) / 8 * 8);
          const size_t used = static_cast<size_t>(left.data() - piece.data());
          const size_t padding = std::min<size_t>((8 - used % 8) % 8, left.size());
          left = left.subspan(padding);
        }
        piece = std::as_bytes(std::span(filtered));
        break;
      }
      default:
        return CUDA_ERROR_INVALID_IMAGE;
    }
  }
  return kept == 0 ? nothing : CUDA_SUCCESS;
}

}  // namespace detshare::shim
