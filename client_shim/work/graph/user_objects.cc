#include "client_shim/work/graph/user_objects.h"

#include <algorithm>

#include "client_shim/base/handle_table.h"
#include "client_shim/work/host_functions.h"

namespace detshare::shim {
namespace {

HandleTable<UserObject>& table() {
  static auto* const objects = new HandleTable<UserObject>;
  return *objects;
}

}  // namespace

UserObject* FindUserObject(CUuserObject handle) {
  return table().Find(HandleKind::kUserObject, reinterpret_cast<uint64_t>(handle));
}

CUresult CreateUserObject(void* pointer, CUhostFn destroy, uint32_t references,
                          CUuserObject* handle) {
  uint32_t index;
  UserObject* object = table().Reserve(&index);
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  object->index = index;
  object->pointer = pointer;
  object->destroy = destroy;
  object->references = references;
  object->handle = table().Publish(HandleKind::kUserObject, index);
  *handle = reinterpret_cast<CUuserObject>(object->handle);
  return CUDA_SUCCESS;
}

void RetainUserObject(UserObject& object, uint64_t count) { object.references += count; }

void ReleaseUserObject(UserObject& object, uint64_t count) {
  object.references -= std::min(count, object.references);
  if (object.references != 0 || !table().Retire(object.handle)) return;
  HostTask task;
  // The resource belongs to the program, so it is destroyed whatever happened to the session's
  // work.
  task.run = [destroy = object.destroy, pointer = object.pointer](CUresult) {
    CallHostFunction(destroy, pointer);
  };
  EnqueueHostTask(std::move(task));
  table().Recycle(object.index);
}

}  // namespace detshare::shim
