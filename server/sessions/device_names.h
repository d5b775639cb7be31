// Finds the devices that clients and operators name: by positions, or by UUIDs as nvidia-smi prints them.
//
// Threading: any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/tenant_endpoint.h"

namespace detshare {

class DeviceNames {
 public:
  // `uuids` has the UUID of each device of the daemon, as FormatUuid() returns it (proto/device_uuid.h). The functions below return
  // positions in `uuids`.
  explicit DeviceNames(std::vector<std::string> uuids) : uuids_(std::move(uuids)) {}

  // Returns the devices that `ids` name (positions or UUIDs; none: all), in the order of `ids`. With an
  // endpoint, only the devices that it shows count, and positions count from 0 among them. Returns
  // InvalidArgument for any other id, for a device that is named twice, and for an endpoint that shows a device
  // which is not there.
  absl::StatusOr<std::vector<int>> Choose(const std::vector<std::string>& ids,
                                          const TenantEndpoint* endpoint = nullptr) const;
  // Chooses among `granted` by the rules of CUDA_VISIBLE_DEVICES: the first id that names none of them ends
  // the list. No ids: all. Returns NotFound if nothing is left.
  absl::StatusOr<std::vector<int>> ChooseVisible(const std::vector<std::string>& ids,
                                                 const std::vector<int>& granted) const;

 private:
  // Returns the only device of `among` whose UUID begins with `id`, as CUDA does; -1 if there is
  // none, or several.
  int FindByUuid(const std::string& id, const std::vector<int>& among) const;

  const std::vector<std::string> uuids_;
};

}  // namespace detshare
