// User objects: resources of the program that graphs keep alive (cuUserObjectCreate). GraphMutex()
// guards their counts. After the last reference is released, the destructor runs on the thread of
// host functions.
#pragma once

#include <cstdint>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

struct UserObject {
  uint64_t handle = 0;
  uint32_t index = 0;
  void* pointer = nullptr;
  CUhostFn destroy = nullptr;
  uint64_t references = 0;
};

// Null for every other number.
UserObject* FindUserObject(CUuserObject handle);
CUresult CreateUserObject(void* pointer, CUhostFn destroy, uint32_t references,
                          CUuserObject* handle);
void RetainUserObject(UserObject& object, uint64_t count);
// Releases at most as many references as there are.
void ReleaseUserObject(UserObject& object, uint64_t count);

}  // namespace detshare::shim
