// A policy for another interface. OTHER_FIELD is the field that differs.
#include "policy/shared_object.h"

extern "C" __attribute__((visibility("default")))
const detshare::policy::PolicyInterface detshare_policy;
const detshare::policy::PolicyInterface detshare_policy = {
    .OTHER_FIELD = detshare::policy::PolicyInterface().OTHER_FIELD + 1};
