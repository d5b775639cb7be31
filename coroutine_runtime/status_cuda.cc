#include "coroutine_runtime/status_cuda.h"

#include <charconv>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace detshare {
namespace {

constexpr char kPayloadUrl[] = "detshare/CUresult";

absl::StatusCode CodeOf(int result) {
  switch (result) {
    case kCudaErrorInvalidValue:
    case kCudaErrorInvalidDevice:
    case kCudaErrorInvalidImage:
    case kCudaErrorInvalidPtx:
    case kCudaErrorInvalidHandle:
    case kCudaErrorInvalidClusterSize:
      return absl::StatusCode::kInvalidArgument;
    case kCudaErrorOutOfMemory:
    case kCudaErrorLaunchOutOfResources:
    case kCudaErrorCooperativeLaunchTooLarge:
      return absl::StatusCode::kResourceExhausted;
    case kCudaErrorNotInitialized:
    case kCudaErrorDeinitialized:
    case kCudaErrorInvalidContext:
    case kCudaErrorIllegalState:
    case kCudaErrorSystemDriverMismatch:
      return absl::StatusCode::kFailedPrecondition;
    case kCudaErrorNoDevice:
    case kCudaErrorNotFound:
    case kCudaErrorNoBinaryForGpu:
    case kCudaErrorJitCompilerNotFound:
      return absl::StatusCode::kNotFound;
    case kCudaErrorNotReady:
    case kCudaErrorSystemNotReady:
      return absl::StatusCode::kUnavailable;
    case kCudaErrorNotPermitted:
      return absl::StatusCode::kPermissionDenied;
    case kCudaErrorNotSupported:
      return absl::StatusCode::kUnimplemented;
    case kCudaErrorIllegalAddress:
    case kCudaErrorAssert:
    case kCudaErrorIllegalInstruction:
    case kCudaErrorMisalignedAddress:
    case kCudaErrorInvalidAddressSpace:
    case kCudaErrorInvalidPc:
    case kCudaErrorLaunchFailed:
      return absl::StatusCode::kAborted;
    default:
      return absl::StatusCode::kUnknown;
  }
}

int NearestResult(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return kCudaSuccess;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
      return kCudaErrorInvalidValue;
    case absl::StatusCode::kResourceExhausted:
      return kCudaErrorOutOfMemory;
    case absl::StatusCode::kNotFound:
      return kCudaErrorNotFound;
    case absl::StatusCode::kUnavailable:
      return kCudaErrorNotReady;
    case absl::StatusCode::kFailedPrecondition:
      return kCudaErrorIllegalState;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kCudaErrorNotPermitted;
    case absl::StatusCode::kUnimplemented:
      return kCudaErrorNotSupported;
    default:
      return kCudaErrorUnknown;
  }
}

}  // namespace

absl::Status CudaError(int result, std::string_view message) {
  absl::Status status(CodeOf(result), absl::string_view(message.data(), message.size()));
  status.SetPayload(kPayloadUrl, absl::Cord(std::to_string(result)));
  return status;
}

int CudaResultOf(const absl::Status& status) {
  if (status.ok()) return kCudaSuccess;
  if (absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl)) {
    const std::string text(*payload);
    int result = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), result);
    if (parsed.ec == std::errc() && result != kCudaSuccess) return result;
  }
  return NearestResult(status.code());
}

}  // namespace detshare
