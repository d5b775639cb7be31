#include "client_shim/compile_cache.h"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace detshare::shim {

CompileCache::Entry* CompileCache::Open(std::string key) { return new Entry{std::move(key)}; }

void CompileCache::Close(Entry* entry) { delete entry; }

bool CompileCache::Find(const Entry& entry, void** data, size_t* bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = contents_.find(entry.key);
  if (found == contents_.end()) return false;
  const std::string& contents = found->second;
  void* copy = malloc(contents.size() + 1);
  if (copy == nullptr) return false;
  memcpy(copy, contents.data(), contents.size());
  *data = copy;
  *bytes = contents.size();
  return true;
}

void CompileCache::Store(const Entry& entry, const void* data, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto old = contents_.find(entry.key); old != contents_.end()) {
    bytes_ -= old->first.size() + old->second.size();
    contents_.erase(old);
  }
  if (entry.key.size() + bytes > limit_bytes_ - bytes_) return;
  contents_.emplace(entry.key, std::string(static_cast<const char*>(data), bytes));
  bytes_ += entry.key.size() + bytes;
}

}  // namespace detshare::shim
