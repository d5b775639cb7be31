// The linker. The shim collects the inputs and sends them to the daemon together when the link is
// completed.
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "client_shim/base/log.h"
#include "client_shim/code/image_size.h"
#include "client_shim/code/link_request.h"
#include "client_shim/code/read_file.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "proto/driver_api/shim_api.h"
#include "proto/images/image_kind.h"

namespace detshare::shim::api {
namespace {

LinkState* Find(CUlinkState handle) {
  return links().Find(HandleKind::kLink, reinterpret_cast<uint64_t>(handle));
}

// Whether the input can be of the given kind.
bool Plausible(CUjitInputType type, std::string_view bytes) {
  const auto image = std::as_bytes(std::span(bytes));
  switch (type) {
    case CU_JIT_INPUT_CUBIN:
      return images::ReadCubinHeader(image).has_value();
    case CU_JIT_INPUT_PTX:
      return images::SniffImage(image) == images::ImageKind::kPtx;
    case CU_JIT_INPUT_FATBINARY:
      return images::SniffImage(image) == images::ImageKind::kFatbin;
    default:
      return true;
  }
}

CUresult Add(CUlinkState handle, CUjitInputType type, std::string bytes, std::string name,
             unsigned int option_count, CUjit_option* options, void** values) {
  LinkState* state = Find(handle);
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (type < 0 || type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  // The options of one input. None of them changes the link, but the shim reports wrong ones.
  JitOptions own;
  if (const CUresult result = own.Parse(option_count, options, values); result != CUDA_SUCCESS)
    return result;
  const std::lock_guard lock(state->mutex);
  if (state->complete) return CUDA_ERROR_INVALID_VALUE;
  if (state->failed != CUDA_SUCCESS) return state->failed;
  // NVIDIA's driver takes PTX for a fatbin, too.
  if (type == CU_JIT_INPUT_FATBINARY && Plausible(CU_JIT_INPUT_PTX, bytes)) type = CU_JIT_INPUT_PTX;
  if (!Plausible(type, bytes)) {
    // Text that is no PTX is left out of the link. Another wrong input ends the link.
    if (type != CU_JIT_INPUT_PTX) state->failed = CUDA_ERROR_INVALID_IMAGE;
    state->options.WriteBack("", "an input of the link is not of the type that the program names",
                             0);
    return CUDA_ERROR_INVALID_IMAGE;
  }
  state->inputs.push_back({static_cast<uint32_t>(type), std::move(name), std::move(bytes)});
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  Context* context;
  if (const CUresult result = CurrentContext(&context); result != CUDA_SUCCESS) return result;
  JitOptions parsed;
  if (const CUresult result = parsed.Parse(numOptions, options, optionValues);
      result != CUDA_SUCCESS)
    return result;
  // A linker has no binary to fall back to.
  for (unsigned int i = 0; i < numOptions; ++i)
    if (options[i] == CU_JIT_FALLBACK_STRATEGY) return CUDA_ERROR_INVALID_VALUE;
  uint32_t index;
  LinkState* state = links().Reserve(&index);
  if (state == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  state->index = index;
  state->device = context->device;
  state->context = context->id.load(std::memory_order_acquire);
  state->options = std::move(parsed);
  state->inputs.clear();
  state->image.clear();
  state->complete = false;
  state->failed = CUDA_SUCCESS;
  state->handle = links().Publish(HandleKind::kLink, index);
  *stateOut = reinterpret_cast<CUlinkState>(state->handle);
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int numOptions, CUjit_option* options,
                          void** optionValues) {
  if (Find(state) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (size == 0 || size >= kMaxImageBytes) return CUDA_ERROR_INVALID_VALUE;
  return Add(state, type, std::string(static_cast<const char*>(data), size),
             name != nullptr ? name : "", numOptions, options, optionValues);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  if (Find(state) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::string bytes;
  if (const CUresult result = ReadFile(path, &bytes); result != CUDA_SUCCESS) return result;
  return Add(state, type, std::move(bytes), path, numOptions, options, optionValues);
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  LinkState* link = Find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(link->mutex);
  if (link->failed != CUDA_SUCCESS) return link->failed;
  if (!link->complete) {
    const auto begin = std::chrono::steady_clock::now();
    const LinkRequest request(*link);
    std::string reply;
    const CUresult result =
        session().CallControl(Op::cuLinkComplete, link->device, link->context, &request.args(),
                              sizeof(request.args()), request.payload(), &reply);
    LinkReply parts;
    const bool sound = ParseLinkReply(reply, &parts);
    if (sound) {
      link->options.WriteBack(
          parts.info, parts.error,
          std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - begin)
              .count());
    }
    if (result != CUDA_SUCCESS) return link->failed = result;
    if (!sound) {
      Log(LogLevel::kError, "detshared sent a malformed reply to cuLinkComplete");
      return CUDA_ERROR_UNKNOWN;
    }
    link->image = parts.image;
    link->inputs.clear();
    link->complete = true;
  }
  *cubinOut = link->image.data();
  if (sizeOut != nullptr) *sizeOut = link->image.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
  LinkState* link = Find(state);
  if (link == nullptr || !links().Retire(reinterpret_cast<uint64_t>(state)))
    return CUDA_ERROR_INVALID_HANDLE;
  {
    const std::lock_guard lock(link->mutex);
    link->inputs.clear();
    link->image = std::string();
  }
  links().Recycle(link->index);
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim::api
