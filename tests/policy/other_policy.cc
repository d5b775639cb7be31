// A policy for another interface. The variable OTHER_FIELD of the environment names the field that
// differs when the object is loaded.
#include <cstdlib>
#include <string_view>

#include "policy/shared_object.h"

namespace {

detshare::policy::PolicyInterface Other() {
  detshare::policy::PolicyInterface interface;
  const char* const named = std::getenv("OTHER_FIELD");
  const std::string_view field = named != nullptr ? named : "";
  interface.version += field == "version";
  interface.snapshot_bytes += field == "snapshot_bytes";
  interface.coroutine_bytes += field == "coroutine_bytes";
  interface.tenant_bytes += field == "tenant_bytes";
  interface.grant_bytes += field == "grant_bytes";
  return interface;
}

}  // namespace

extern "C" __attribute__((visibility("default")))
const detshare::policy::PolicyInterface detshare_policy;
const detshare::policy::PolicyInterface detshare_policy = Other();
