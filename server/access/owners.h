// Whose work comes through the tenant endpoints of a daemon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "proto/admin.pb.h"
#include "proto/mutex.h"

namespace detshare {

// Any thread may call it.
class Owners {
 public:
  // Replaces the owner of an open endpoint. `number` is TenantEndpoint::number.
  void Set(uint64_t number, const std::string& endpoint, const std::string& tenant,
           const proto::Owner& owner);
  void Close(uint64_t number);

  // These return an empty owner if none is known.
  proto::Owner OfEndpoint(const std::string& name) const;
  // Also knows the endpoints that were closed last: events of their sessions come after the end.
  proto::Owner OfNumber(uint64_t number) const;
  // Of all open endpoints of the tenant. Fields in which they differ are empty.
  proto::Owner OfTenant(const std::string& tenant) const;

 private:
  // Their sessions end soon after them, so few are needed at a time.
  static constexpr size_t kClosed = 128;

  struct Entry {
    std::string endpoint, tenant;
    proto::Owner owner;
    bool open = true;
  };

  mutable Mutex mutex_;
  std::map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by number
  std::deque<uint64_t> closed_ ABSL_GUARDED_BY(mutex_);        // the oldest first
};

}  // namespace detshare
