#include "tools/kubernetes/shares.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/detsharectl/settings.h"

namespace detshare::kubernetes {
namespace {

// The name, a dot and a share's id are the name of a tenant endpoint, which has at most 64
// characters.
constexpr size_t kLongestName = 23;

bool IsResourceName(const std::string& name) {
  if (name.empty() || name.size() > kLongestName) return false;
  const auto alnum = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); };
  return alnum(name.front()) && alnum(name.back()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return alnum(c) || c == '-'; });
}

const Share* Find(const std::vector<Share>& shares, const std::string& id) {
  const auto found =
      std::find_if(shares.begin(), shares.end(), [&](const Share& one) { return one.id == id; });
  return found != shares.end() ? &*found : nullptr;
}

}  // namespace

absl::StatusOr<Resource> ParseResource(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  Resource resource;
  resource.name = parts.front();
  if (!IsResourceName(resource.name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a resource's name has 1 to ", kLongestName,
        " small letters, digits and -, and a letter or digit at both ends; not ", resource.name));
  }
  ctl::TenantFlags flags;
  flags.name = "share";
  const std::map<std::string, std::string*> fields = {
      {"class", &flags.tenant_class},          {"weight", &flags.weight},
      {"exclusive", &flags.exclusive},         {"memory", &flags.memory},
      {"pinned-memory", &flags.pinned_memory}, {"slo-latency", &flags.slo_latency},
      {"slo-ttft", &flags.slo_ttft},           {"slo-tpot", &flags.slo_tpot}};
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::pair<std::string, std::string> field =
        absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
    const auto known = fields.find(field.first);
    if (known != fields.end() && !field.second.empty()) {
      *known->second = field.second;
    } else if (field.first != "shares" || !absl::SimpleAtoi(field.second, &resource.shares) ||
               resource.shares < 1 || resource.shares > kMaxShares) {
      return absl::InvalidArgumentError(absl::StrCat(
          "resource ", resource.name, ": ", parts[i], " is not one of shares=1..", kMaxShares,
          ", class=, weight=, exclusive=, memory=, pinned-memory=, slo-latency=, slo-ttft=, "
          "slo-tpot="));
    }
  }
  if (!flags.tenant_class.empty() && flags.tenant_class != "latency" &&
      flags.tenant_class != "batch") {
    return absl::InvalidArgumentError(
        absl::StrCat("resource ", resource.name, ": a class is latency or batch"));
  }
  absl::StatusOr<proto::TenantSetting> tenant = ctl::ToSetting(flags);
  if (!tenant.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("resource ", resource.name, ": ", std::string(tenant.status().message())));
  }
  resource.tenant = *std::move(tenant);
  resource.tenant.clear_name();
  return resource;
}

std::vector<Share> SharesOf(const Resource& resource, const std::vector<Gpu>& gpus) {
  std::vector<Share> shares;
  for (const Gpu& gpu : gpus) {
    const std::string id = gpu.uuid.rfind("GPU-", 0) == 0 ? gpu.uuid.substr(4) : gpu.uuid;
    for (int i = 0; i < resource.shares; ++i)
      shares.push_back({absl::StrCat(id, "-", i), gpu.uuid,
                        gpu.memory / static_cast<uint64_t>(resource.shares),
                        gpu.healthy && (gpu.allocator.empty() || gpu.allocator == kAllocator)});
  }
  return shares;
}

std::vector<std::string> Prefer(const std::vector<Share>& shares,
                                const std::vector<std::string>& available,
                                const std::vector<std::string>& must, int size) {
  std::vector<std::string> chosen;
  std::map<std::string, std::vector<std::string>> left;  // by GPU
  std::set<std::string> begun;                           // GPUs with a chosen share
  const auto take = [&](const Share& share) {
    chosen.push_back(share.id);
    begun.insert(share.gpu);
  };
  for (const std::string& id : must) {
    const Share* const share = Find(shares, id);
    if (share != nullptr && std::count(chosen.begin(), chosen.end(), id) == 0) take(*share);
  }
  // In the order of the shares, so that the order of `available` does not matter.
  for (const Share& share : shares) {
    if (std::count(available.begin(), available.end(), share.id) != 0 &&
        std::count(chosen.begin(), chosen.end(), share.id) == 0)
      left[share.gpu].push_back(share.id);
  }
  while (static_cast<int>(chosen.size()) < size && !left.empty()) {
    // Prefers a GPU that the container has already, then the GPU with the most shares left.
    const auto best = std::max_element(left.begin(), left.end(), [&](const auto& a, const auto& b) {
      return std::make_pair(begun.count(a.first), a.second.size()) <
             std::make_pair(begun.count(b.first), b.second.size());
    });
    for (const std::string& id : best->second) {
      if (static_cast<int>(chosen.size()) < size) take(*Find(shares, id));
    }
    left.erase(best);
  }
  return chosen;
}

absl::StatusOr<proto::TenantEndpoint> EndpointOf(const Resource& resource,
                                                 const std::vector<Share>& shares,
                                                 std::vector<std::string> ids) {
  if (ids.empty()) return absl::InvalidArgumentError("no share is named");
  std::sort(ids.begin(), ids.end());
  if (std::adjacent_find(ids.begin(), ids.end()) != ids.end())
    return absl::InvalidArgumentError("a share is named twice");
  proto::TenantEndpoint endpoint;
  endpoint.set_name(EndpointName(resource, ids.front()));
  endpoint.set_allocator(kAllocator);
  std::map<std::string, uint64_t> count;  // the number of the container's shares, by GPU
  uint64_t part = UINT64_MAX, max = 0;
  for (const std::string& id : ids) {
    const Share* const share = Find(shares, id);
    if (share == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(id.substr(0, 64), " is no share of ", resource.name));
    }
    if (++count[share->gpu] == 1) endpoint.add_device_ids(share->gpu);
    max = std::max(max, count[share->gpu]);
    part = std::min(part, share->memory);
  }
  // Every field is set. The daemon would keep the earlier container's value of a missing field.
  proto::TenantSetting& tenant = *endpoint.mutable_tenant();
  tenant.set_tenant_class("unset");
  tenant.set_weight(1);
  tenant.set_exclusive(false);
  tenant.set_memory(part);
  tenant.set_pinned_memory(0);
  tenant.set_slo_latency_ns(0);
  tenant.set_slo_ttft_ns(0);
  tenant.set_slo_tpot_ns(0);
  tenant.MergeFrom(resource.tenant);
  tenant.set_weight(tenant.weight() * static_cast<double>(ids.size()));
  tenant.set_memory(tenant.memory() * max);  // the limit applies to each device
  tenant.set_pinned_memory(tenant.pinned_memory() * ids.size());
  return endpoint;
}

std::string EndpointName(const Resource& resource, const std::string& id) {
  return absl::StrCat(resource.name, ".", id);
}

}  // namespace detshare::kubernetes
