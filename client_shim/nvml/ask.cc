#include "client_shim/nvml/ask.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "client_shim/nvml/devices.h"

namespace detshare::nvml {
namespace {

nvmlReturn_t AskOne(const char* function, Age age, const Subject& subject, Arguments arguments,
                    std::string* data) {
  if (!subject.valid) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<proto::HostReply> replies;
  const nvmlReturn_t result =
      AskHost({{function, subject.device, subject.peer, arguments}}, age, &replies);
  if (result != NVML_SUCCESS) return result;
  *data = replies[0].data();
  // An older host library may lack a function that a newer caller uses. For that caller the card
  // does not support it.
  return replies[0].result() == NVML_ERROR_FUNCTION_NOT_FOUND ? NVML_ERROR_NOT_SUPPORTED
                                                              : replies[0].result();
}

}  // namespace

Subject::Subject(nvmlDevice_t device) : device(PositionOf(device)), valid(this->device >= 0) {}

Subject::Subject(nvmlDevice_t device, nvmlDevice_t peer)
    : device(PositionOf(device)),
      peer(PositionOf(peer)),
      valid(this->device >= 0 && this->peer >= 0) {}

nvmlReturn_t AskPlain(const char* function, Age age, Subject subject, Arguments arguments,
                      std::initializer_list<Out> outs) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  size_t bytes = 0;
  for (const Out& out : outs) {
    if (out.to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    bytes += out.bytes;
  }
  std::string data;
  if (const nvmlReturn_t result = AskOne(function, age, subject, arguments, &data);
      result != NVML_SUCCESS)
    return result;
  if (data.size() != bytes) return NVML_ERROR_UNKNOWN;
  const char* from = data.data();
  for (const Out& out : outs) {
    memcpy(out.to, from, out.bytes);
    from += out.bytes;
  }
  return NVML_SUCCESS;
}

nvmlReturn_t AskText(const char* function, Age age, Subject subject, Arguments arguments,
                     char* text, unsigned int length) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (text == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  std::string data;
  if (const nvmlReturn_t result = AskOne(function, age, subject, arguments, &data);
      result != NVML_SUCCESS)
    return result;
  return CopyText(data, text, length);
}

nvmlReturn_t AskList(const char* function, Age age, Subject subject, Arguments arguments,
                     unsigned int* count, unsigned int* list) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (count == nullptr || (list == nullptr && *count != 0)) return NVML_ERROR_INVALID_ARGUMENT;
  std::string data;
  if (const nvmlReturn_t result = AskOne(function, age, subject, arguments, &data);
      result != NVML_SUCCESS)
    return result;
  if (data.size() % sizeof(*list) != 0) return NVML_ERROR_UNKNOWN;
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(data.size() / sizeof(*list));
  if (room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (!data.empty()) memcpy(list, data.data(), data.size());
  return NVML_SUCCESS;
}

nvmlReturn_t AskVersioned(const char* function, Age age, Subject subject, void* data) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (data == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  uint32_t version;
  memcpy(&version, data, sizeof(version));
  std::string reply;
  const nvmlReturn_t result = AskOne(function, age, subject, {version}, &reply);
  if (result != NVML_SUCCESS) return result;
  if (reply.size() != (version & 0xFFFFFF)) return NVML_ERROR_UNKNOWN;
  memcpy(data, reply.data(), reply.size());
  return NVML_SUCCESS;
}

nvmlReturn_t AskWords(const char* function, Age age, Subject subject, Arguments arguments,
                      unsigned int size, unsigned long* words) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (words == nullptr || size == 0) return NVML_ERROR_INVALID_ARGUMENT;
  std::string data;
  if (const nvmlReturn_t result = AskOne(function, age, subject, arguments, &data);
      result != NVML_SUCCESS)
    return result;
  const size_t bytes = std::min(data.size(), size * sizeof(*words));
  memset(words, 0, size * sizeof(*words));
  memcpy(words, data.data(), bytes);
  return NVML_SUCCESS;
}

}  // namespace detshare::nvml
