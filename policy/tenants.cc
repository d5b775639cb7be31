#include "policy/tenants.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace detshare::policy {

absl::Status CheckTenants(absl::Span<const Tenant> tenants) {
  std::set<absl::string_view> names;
  for (const Tenant& tenant : tenants) {
    const auto refuse = [&](absl::string_view reason) {
      return absl::InvalidArgumentError(absl::StrCat("tenant ", tenant.name, ": ", reason));
    };
    if (!names.insert(tenant.name).second) return refuse("it is configured twice");
    if (!(tenant.weight > 0 && tenant.weight <= kMaxWeight)) {
      return refuse("its weight must be above 0, and at most a million");
    }
    if (tenant.min_sms < 0 || tenant.max_sms < 0) {
      return refuse("its bounds of SMs must not be negative");
    }
    if (tenant.max_sms > 0 && tenant.min_sms > tenant.max_sms) {
      return refuse("its lower bound of SMs must not be above its upper bound");
    }
    if (tenant.slo_latency < 0 || tenant.slo_ttft < 0 || tenant.slo_tpot < 0) {
      return refuse("its SLOs must not be negative");
    }
  }
  return absl::OkStatus();
}

}  // namespace detshare::policy
