// Three-dimensional copies and memsets of pitched allocations, at positions inside both sides.
#include "check.h"

struct Shape {
  int width, height, depth;  // in elements
  std::size_t Count() const { return static_cast<std::size_t>(width) * height * depth; }
  std::size_t At(int x, int y, int z) const {
    return (static_cast<std::size_t>(z) * height + y) * width + x;
  }
};

using Element = std::uint16_t;

cudaPitchedPtr HostPointer(std::vector<Element>& values, Shape shape) {
  return make_cudaPitchedPtr(values.data(), shape.width * sizeof(Element),
                             shape.width * sizeof(Element), shape.height);
}

cudaExtent Bytes(int width, int height, int depth) {
  return make_cudaExtent(width * sizeof(Element), height, depth);
}

cudaPos Position(int x, int y, int z) { return make_cudaPos(x * sizeof(Element), y, z); }

__global__ void Negate(cudaPitchedPtr data, int width, int height, int depth) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  int z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x >= width || y >= height || z >= depth) return;
  char* row = static_cast<char*>(data.ptr) + (z * data.ysize + y) * data.pitch;
  Element& element = reinterpret_cast<Element*>(row)[x];
  element = static_cast<Element>(~element);
}

int main() {
  const Shape shape{53, 19, 11};
  const Shape other{70, 25, 13};
  std::vector<Element> host(shape.Count());
  check::Random random(33);
  for (Element& value : host) value = static_cast<Element>(random.Next32());

  cudaPitchedPtr a, b;
  CHECK(cudaMalloc3D(&a, Bytes(shape.width, shape.height, shape.depth)));
  CHECK(cudaMalloc3D(&b, Bytes(other.width, other.height, other.depth)));
  REQUIRE(a.pitch >= shape.width * sizeof(Element));

  cudaMemcpy3DParms up = {};
  up.srcPtr = HostPointer(host, shape);
  up.dstPtr = a;
  up.extent = Bytes(shape.width, shape.height, shape.depth);
  up.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&up));
  Negate<<<dim3(2, 3, 3), dim3(32, 8, 4)>>>(a, shape.width, shape.height, shape.depth);
  CHECK(cudaGetLastError());

  // A box of the first allocation to another place in the second one, in a stream.
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMemset3DAsync(b, 0x11, Bytes(other.width, other.height, other.depth), stream));
  cudaMemcpy3DParms across = {};
  across.srcPtr = a;
  across.srcPos = Position(3, 4, 2);
  across.dstPtr = b;
  across.dstPos = Position(21, 1, 5);
  across.extent = Bytes(40, 13, 8);
  across.kind = cudaMemcpyDeviceToDevice;
  CHECK(cudaMemcpy3DAsync(&across, stream));
  CHECK(cudaStreamSynchronize(stream));

  std::vector<Element> got(other.Count()), want(other.Count(), 0x1111);
  cudaMemcpy3DParms down = {};
  down.srcPtr = b;
  down.dstPtr = HostPointer(got, other);
  down.extent = Bytes(other.width, other.height, other.depth);
  down.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3D(&down));
  for (int z = 0; z < 8; ++z) {
    for (int y = 0; y < 13; ++y) {
      for (int x = 0; x < 40; ++x) {
        want[other.At(x + 21, y + 1, z + 5)] =
            static_cast<Element>(~host[shape.At(x + 3, y + 4, z + 2)]);
      }
    }
  }
  check::Compare("whole", got, want);

  // A box of the device into the middle of a pageable host array, asynchronously.
  std::vector<Element> box(shape.Count(), 0x2222), want_box(shape.Count(), 0x2222);
  cudaMemcpy3DParms part = {};
  part.srcPtr = b;
  part.srcPos = Position(20, 0, 4);
  part.dstPtr = HostPointer(box, shape);
  part.dstPos = Position(7, 2, 1);
  part.extent = Bytes(31, 15, 9);
  part.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3DAsync(&part, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int z = 0; z < 9; ++z) {
    for (int y = 0; y < 15; ++y) {
      for (int x = 0; x < 31; ++x) {
        want_box[shape.At(x + 7, y + 2, z + 1)] = want[other.At(x + 20, y, z + 4)];
      }
    }
  }
  check::Compare("box", box, want_box);

  CHECK(cudaMemset3D(a, 0, Bytes(shape.width, shape.height, shape.depth)));
  std::vector<Element> zeros(shape.Count(), 1);
  down.srcPtr = a;
  down.dstPtr = HostPointer(zeros, shape);
  down.extent = Bytes(shape.width, shape.height, shape.depth);
  CHECK(cudaMemcpy3D(&down));
  check::Compare("zeroed", zeros, std::vector<Element>(shape.Count(), 0));

  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(a.ptr));
  CHECK(cudaFree(b.ptr));
  return check::Ok();
}
