// Rules and texts for the owners of tenant endpoints (message Owner of proto/admin.proto).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/admin.pb.h"

namespace detshare {

// InvalidArgument, with the field and the rule, unless
// - namespace, pod and container are names as in Kubernetes: letters, digits and -_. with a letter
//   or digit at both ends, at most 63 characters, those of a pod at most 253;
// - a pod has a namespace, and a container has a pod;
// - user and job are printable ASCII without spaces and quotes, at most 128 characters.
absl::Status CheckOwner(const proto::Owner& owner);

bool IsEmpty(const proto::Owner& owner);
bool AreSame(const proto::Owner& one, const proto::Owner& other);

// "default/chat-0/server", "alice, job 123"; "" for an empty owner.
std::string OwnerText(const proto::Owner& owner);

// Reads "NAMESPACE/POD" or "NAMESPACE/POD/CONTAINER". InvalidArgument for another text.
absl::StatusOr<proto::Owner> OwnerOfPod(absl::string_view text);

}  // namespace detshare
