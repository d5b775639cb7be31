#include "client_shim/code/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "client_shim/code/image_size.h"

namespace detshare::shim {

CUresult ReadFile(const char* path, std::string* contents) {
  if (*path == '\0') return CUDA_ERROR_INVALID_VALUE;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_FILE_NOT_FOUND;
  struct stat status;
  CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
  if (fstat(fd, &status) == 0) {
    // As natively: a folder has no end, and a device is an empty file.
    if (S_ISREG(status.st_mode) || S_ISCHR(status.st_mode)) result = CUDA_SUCCESS;
    if (S_ISDIR(status.st_mode)) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS && static_cast<uint64_t>(status.st_size) >= kMaxImageBytes)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  size_t read_bytes = 0;
  if (result == CUDA_SUCCESS) contents->resize(status.st_size);
  while (result == CUDA_SUCCESS && read_bytes < contents->size()) {
    const ssize_t more = read(fd, contents->data() + read_bytes, contents->size() - read_bytes);
    if (more > 0) {
      read_bytes += more;
    } else if (more == 0) {
      contents->resize(read_bytes);  // the file has become shorter
    } else if (errno != EINTR) {
      result = CUDA_ERROR_FILE_NOT_FOUND;
    }
  }
  close(fd);
  return result;
}

}  // namespace detshare::shim
