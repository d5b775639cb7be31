#include "server/backends/cuda/other_sharing.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace detshare {

std::string MpsPipeDirectory() {
  const char* const directory = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  return directory != nullptr && *directory != '\0' ? directory : "/tmp/nvidia-mps";
}

absl::Status RefuseMps(const std::string& pipe_directory) {
  std::error_code error;
  if (!std::filesystem::exists(pipe_directory + "/control", error)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "MPS runs, and the daemon would be its client: its control daemon listens in ",
      pipe_directory,
      ". End MPS (echo quit | nvidia-cuda-mps-control), or keep it for other programs and start "
      "detshared with CUDA_MPS_PIPE_DIRECTORY=/nonexistent. If MPS has crashed, remove the "
      "directory"));
}

absl::Status RefuseMig(int ordinal, const std::string& device_name) {
  // The driver names such a device "NVIDIA H100 80GB HBM3 MIG 3g.40gb".
  if (device_name.find(" MIG ") == std::string::npos) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "device ", ordinal, " is a part of a GPU in MIG mode (", device_name,
      "), and the daemon divides whole GPUs. Turn MIG off (nvidia-smi -i GPU -mig 0), or show the "
      "daemon other GPUs with CUDA_VISIBLE_DEVICES=GPU-UUID"));
}

}  // namespace detshare
