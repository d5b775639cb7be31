// A policy for an interface that does not exist yet.
#include "policy/shared_object.h"

extern "C" __attribute__((visibility("default")))
const detshare::policy::PolicyInterface detshare_policy;
const detshare::policy::PolicyInterface detshare_policy = {
    .version = detshare::policy::PolicyInterface::kVersion + 1};
