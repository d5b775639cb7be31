#include "client_shim/code/spare_libraries.h"

#include <algorithm>
#include <utility>

namespace detshare::shim {
namespace {

bool SameOptions(const std::vector<wire::JitOption>& a, const std::vector<wire::JitOption>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const wire::JitOption& one, const wire::JitOption& other) {
                      return one.option == other.option && one.value == other.value;
                    });
}

}  // namespace

std::optional<SpareLibrary> SpareLibraries::Take(uint16_t device, ContextId context,
                                                 const std::vector<wire::JitOption>& options,
                                                 std::string_view image) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(libraries_.begin(), libraries_.end(), [&](const SpareLibrary& library) {
        return library.device == device && library.context == context && library.image == image &&
               SameOptions(library.options, options);
      });
  if (found == libraries_.end()) return std::nullopt;
  SpareLibrary taken = std::move(*found);
  libraries_.erase(found);
  return taken;
}

std::optional<SpareLibrary> SpareLibraries::Keep(SpareLibrary library) {
  const std::lock_guard lock(mutex_);
  libraries_.push_back(std::move(library));
  if (libraries_.size() <= kMaxLibraries) return std::nullopt;
  SpareLibrary oldest = std::move(libraries_.front());
  libraries_.pop_front();
  return oldest;
}

std::vector<SpareLibrary> SpareLibraries::TakeAll(
    const std::function<bool(const SpareLibrary&)>& chosen) {
  const std::lock_guard lock(mutex_);
  std::vector<SpareLibrary> taken;
  for (auto library = libraries_.begin(); library != libraries_.end();) {
    if (!chosen(*library)) {
      ++library;
      continue;
    }
    taken.push_back(std::move(*library));
    library = libraries_.erase(library);
  }
  return taken;
}

}  // namespace detshare::shim
