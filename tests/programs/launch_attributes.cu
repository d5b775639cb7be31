// Launches by cudaLaunchKernel and cudaLaunchKernelEx: argument arrays, configurations with and
// without attributes, and grids of every shape.
#include "check.h"

__global__ void Mark(unsigned* out, unsigned factor, double offset) {
  unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned i = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
  out[i] = (blockIdx.x + 3 * blockIdx.y + 7 * blockIdx.z) * factor +
           (threadIdx.x + 11 * threadIdx.y + 13 * threadIdx.z) + static_cast<unsigned>(offset);
}

std::vector<unsigned> Expected(dim3 grid, dim3 block, unsigned factor, double offset) {
  std::vector<unsigned> want;
  for (unsigned bz = 0; bz < grid.z; ++bz)
    for (unsigned by = 0; by < grid.y; ++by)
      for (unsigned bx = 0; bx < grid.x; ++bx)
        for (unsigned z = 0; z < block.z; ++z)
          for (unsigned y = 0; y < block.y; ++y)
            for (unsigned x = 0; x < block.x; ++x)
              want.push_back((bx + 3 * by + 7 * bz) * factor + (x + 11 * y + 13 * z) +
                             static_cast<unsigned>(offset));
  return want;
}

int main() {
  struct Shape {
    dim3 grid, block;
  };
  const Shape shapes[] = {{dim3(1), dim3(1)},
                          {dim3(7), dim3(33)},
                          {dim3(1000), dim3(3)},
                          {dim3(2, 300), dim3(5, 5)},
                          {dim3(3, 2, 4), dim3(8, 4, 2)},
                          {dim3(1, 1, 50), dim3(1, 1, 64)},
                          {dim3(2), dim3(1024)},
                          {dim3(1, 3), dim3(1, 512)}};
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  unsigned* out = check::Zeroed<unsigned>(1 << 15);
  double offset = 0.0;
  for (const Shape& shape : shapes) {
    unsigned factor = 100 + shape.grid.x;
    std::vector<unsigned> want;
    for (int way = 0; way < 3; ++way) {
      offset += 1000.75;
      want = Expected(shape.grid, shape.block, factor, offset);
      CHECK(cudaMemsetAsync(out, 0, want.size() * sizeof(unsigned), stream));
      if (way == 0) {
        void* arguments[] = {&out, &factor, &offset};
        CHECK(cudaLaunchKernel(Mark, shape.grid, shape.block, arguments, 0, stream));
      } else {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributePriority;
        attribute.val.priority = 0;
        cudaLaunchConfig_t config = {};
        config.gridDim = shape.grid;
        config.blockDim = shape.block;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = way - 1;
        CHECK(cudaLaunchKernelEx(&config, Mark, out, factor, offset));
      }
      CHECK(cudaStreamSynchronize(stream));
      check::Compare("marks", check::Download(out, want.size()), want);
    }
  }
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(out));
  return check::Ok();
}
