#include "proto/owner.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace detshare {
namespace {

constexpr size_t kMaxLabel = 63, kMaxPod = 253, kMaxFree = 128;

bool IsAlphanumeric(char letter) { return absl::ascii_isalnum(static_cast<unsigned char>(letter)); }

absl::Status CheckName(const char* field, const std::string& name, size_t longest) {
  const bool allowed = std::all_of(name.begin(), name.end(), [](char letter) {
    return IsAlphanumeric(letter) || letter == '-' || letter == '_' || letter == '.';
  });
  if (name.empty() || (allowed && name.size() <= longest && IsAlphanumeric(name.front()) &&
                       IsAlphanumeric(name.back())))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the owner's ", field, " has at most ", longest,
                   " letters, digits, or any of -_., and begins and ends with a letter or digit"));
}

absl::Status CheckFree(const char* field, const std::string& text) {
  const bool allowed = std::all_of(text.begin(), text.end(), [](char letter) {
    return absl::ascii_isgraph(static_cast<unsigned char>(letter)) && letter != '"' &&
           letter != '\'' && letter != '`';
  });
  if (allowed && text.size() <= kMaxFree) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the owner's ", field, " has at most ", kMaxFree,
                                                 " printable ASCII characters, and no spaces or "
                                                 "quotes"));
}

}  // namespace

absl::Status CheckOwner(const proto::Owner& owner) {
  for (const absl::Status& status :
       {CheckName("namespace", owner.namespace_(), kMaxLabel),
        CheckName("pod", owner.pod(), kMaxPod),
        CheckName("container", owner.container(), kMaxLabel), CheckFree("user", owner.user()),
        CheckFree("job", owner.job())}) {
    if (!status.ok()) return status;
  }
  if (!owner.pod().empty() && owner.namespace_().empty())
    return absl::InvalidArgumentError("an owner with a pod also needs the pod's namespace");
  if (!owner.container().empty() && owner.pod().empty())
    return absl::InvalidArgumentError("an owner with a container also needs the container's pod");
  return absl::OkStatus();
}

bool IsEmpty(const proto::Owner& owner) { return AreSame(owner, proto::Owner()); }

bool AreSame(const proto::Owner& one, const proto::Owner& other) {
  return one.namespace_() == other.namespace_() && one.pod() == other.pod() &&
         one.container() == other.container() && one.user() == other.user() &&
         one.job() == other.job();
}

std::string OwnerText(const proto::Owner& owner) {
  std::vector<std::string> parts;
  if (!owner.namespace_().empty()) {
    std::string path = owner.namespace_();
    if (!owner.pod().empty()) absl::StrAppend(&path, "/", owner.pod());
    if (!owner.container().empty()) absl::StrAppend(&path, "/", owner.container());
    parts.push_back(std::move(path));
  }
  if (!owner.user().empty()) parts.push_back(owner.user());
  if (!owner.job().empty()) parts.push_back(absl::StrCat("job ", owner.job()));
  return absl::StrJoin(parts, ", ");
}

absl::StatusOr<proto::Owner> OwnerOfPod(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  const bool named = std::none_of(parts.begin(), parts.end(),
                                  [](const std::string& part) { return part.empty(); });
  if (parts.size() < 2 || parts.size() > 3 || !named) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is no pod; write NAMESPACE/POD or NAMESPACE/POD/CONTAINER"));
  }
  proto::Owner owner;
  owner.set_namespace_(parts[0]);
  owner.set_pod(parts[1]);
  if (parts.size() == 3) owner.set_container(parts[2]);
  if (absl::Status valid = CheckOwner(owner); !valid.ok()) return valid;
  return owner;
}

}  // namespace detshare
