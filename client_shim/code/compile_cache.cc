#include "client_shim/code/compile_cache.h"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace detshare::shim {
namespace {

bool Copy(const std::string& contents, void** data, size_t* bytes) {
  void* copy = malloc(contents.size() + 1);
  if (copy == nullptr) return false;
  memcpy(copy, contents.data(), contents.size());
  *data = copy;
  *bytes = contents.size();
  return true;
}

}  // namespace

CompileCache::Entry* CompileCache::Open(std::string key, size_t input_begin) {
  return new Entry{std::move(key), input_begin};
}

void CompileCache::Close(Entry* entry) { delete entry; }

bool CompileCache::Find(const Entry& entry, void** data, size_t* bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = contents_.find(entry.key);
    if (found != contents_.end()) return Copy(found->second, data, bytes);
  }
  std::string contents;
  if (disk_ == nullptr || !disk_->Find(entry.key, &contents) || !Copy(contents, data, bytes))
    return false;
  Remember(entry.key, std::move(contents));
  return true;
}

void CompileCache::Store(const Entry& entry, const void* data, size_t bytes) {
  std::string contents(static_cast<const char*>(data), bytes);
  if (disk_ != nullptr) disk_->Store(entry.key, contents);
  Remember(entry.key, std::move(contents));
}

void CompileCache::Remember(const std::string& key, std::string contents) {
  const std::lock_guard lock(mutex_);
  if (const auto old = contents_.find(key); old != contents_.end()) {
    bytes_ -= old->first.size() + old->second.size();
    contents_.erase(old);
  }
  const size_t bytes = key.size() + contents.size();
  if (bytes > limit_bytes_ - bytes_) return;
  contents_.emplace(key, std::move(contents));
  bytes_ += bytes;
}

}  // namespace detshare::shim
