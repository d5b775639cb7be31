#include "client_shim/code/nvrtc_code.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proto/images/image_kind.h"

namespace detshare::shim {
namespace {

// Threads that compiled to PTX alone. More of them are forgotten.
constexpr size_t kMaxThreads = 256;

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The hash of a cubin without what follows it; nullopt for other bytes.
std::optional<ContentHash> HashOfCubin(std::span<const std::byte> image) {
  const std::optional<images::CubinInfo> info = images::ReadCubinHeader(image);
  if (!info.has_value() || info->bytes > image.size()) return std::nullopt;
  return HashOf(image.first(info->bytes));
}

}  // namespace

void NvrtcCode::Note(std::string_view input, std::string_view result) {
  const bool is_ptx = images::SniffImage(BytesOf(result)) == images::ImageKind::kPtx;
  const std::optional<ContentHash> cubin = is_ptx ? std::nullopt : HashOfCubin(BytesOf(result));
  if (!is_ptx && !cubin.has_value()) return;
  const ContentHash compiled = HashOf(BytesOf(input));
  const std::lock_guard lock(mutex_);
  if (is_ptx) {
    if (latest_.size() >= kMaxThreads) latest_.clear();
    latest_[std::this_thread::get_id()] = {compiled, std::string(result)};
    return;
  }
  const auto latest = latest_.find(std::this_thread::get_id());
  if (latest == latest_.end() || latest->second.input != compiled) return;
  std::string ptx = std::move(latest->second.ptx);
  latest_.erase(latest);
  if (ptx.size() > limit_bytes_ - bytes_ || ptx_.count(*cubin) != 0) return;
  bytes_ += ptx.size();
  ptx_.emplace(*cubin, std::move(ptx));
}

std::string NvrtcCode::PtxOf(std::span<const std::byte> machine_code) {
  const std::optional<ContentHash> cubin = HashOfCubin(machine_code);
  if (!cubin.has_value()) return {};
  const std::lock_guard lock(mutex_);
  const auto found = ptx_.find(*cubin);
  return found == ptx_.end() ? std::string() : found->second;
}

NvrtcCode& nvrtc_code() {
  static NvrtcCode* const code = new NvrtcCode;
  return *code;
}

}  // namespace detshare::shim
