#include "tools/detsharectl/owner_json.h"

#include "proto/owner.h"

namespace detshare::ctl {

nlohmann::ordered_json OwnerJson(const proto::Owner& owner) {
  if (IsEmpty(owner)) return nullptr;
  return {{"namespace", owner.namespace_()},
          {"pod", owner.pod()},
          {"container", owner.container()},
          {"user", owner.user()},
          {"job", owner.job()}};
}

}  // namespace detshare::ctl
