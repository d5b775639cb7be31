#include "server/session/session_images.h"

namespace detshare {

ArrayId SessionImages::AddArray(const SessionDevice* device, ContextId context,
                                std::unique_ptr<Array> array, QuotaCharge charge) {
  const uint64_t bytes = TexelBytes(array->description());
  bytes_->fetch_add(bytes, std::memory_order_relaxed);
  array->KeepUntilFree(std::make_shared<const QuotaCharge>(std::move(charge)));
  std::shared_ptr<Array> counted(array.release(), [total = bytes_, bytes](Array* ended) {
    delete ended;
    total->fetch_sub(bytes, std::memory_order_relaxed);
  });
  while (next_array_ == 0 || arrays_.contains(next_array_)) ++next_array_;
  const ArrayId id = next_array_++;
  arrays_.emplace(id, OwnedArray{std::move(counted), device, context});
  return id;
}

std::shared_ptr<Array> SessionImages::FindArray(const SessionDevice* device, ArrayId id) const {
  const auto found = arrays_.find(id);
  return found == arrays_.end() || found->second.device != device ? nullptr : found->second.array;
}

std::shared_ptr<Array> SessionImages::TakeArray(const SessionDevice* device, ArrayId id) {
  const auto found = arrays_.find(id);
  if (found == arrays_.end() || found->second.device != device) return nullptr;
  std::shared_ptr<Array> array = std::move(found->second.array);
  arrays_.erase(found);
  return array;
}

bool SessionImages::AddObject(const SessionDevice* device, Kind kind, OwnedImage object) {
  const uint64_t handle = object.object->handle();
  return objects_.try_emplace({{device, kind}, handle}, std::move(object)).second;
}

OwnedImage SessionImages::TakeObject(const SessionDevice* device, Kind kind, uint64_t handle) {
  const auto found = objects_.find({{device, kind}, handle});
  if (found == objects_.end()) return {};
  OwnedImage object = std::move(found->second);
  objects_.erase(found);
  return object;
}

std::vector<OwnedImage> SessionImages::TakeContext(ContextId context) {
  std::vector<OwnedImage> taken;
  absl::erase_if(objects_, [&](auto& entry) {
    if (entry.second.context != context) return false;
    taken.push_back(std::move(entry.second));
    return true;
  });
  absl::erase_if(arrays_, [&](auto& entry) {
    if (entry.second.context != context) return false;
    taken.emplace_back(std::move(entry.second.array), nullptr);
    return true;
  });
  return taken;
}

void SessionImages::Clear() {
  kept_.clear();
  objects_.clear();
  arrays_.clear();
}

}  // namespace detshare
