// Virtual functions. One kernel makes objects on the device, and another calls them through their
// base class.
#include <new>

#include "check.h"

class Shape {
 public:
  __device__ explicit Shape(int id) : id_(id) {}
  __device__ virtual int Area() const = 0;
  __device__ virtual int Describe(int factor) const { return id_ * factor; }
  __device__ virtual ~Shape() {}

 protected:
  int id_;
};

class Square : public Shape {
 public:
  __device__ Square(int id, int side) : Shape(id), side_(side) {}
  __device__ int Area() const override { return side_ * side_; }

 protected:
  int side_;
};

class Bordered : public Square {
 public:
  __device__ Bordered(int id, int side, int border) : Square(id, side), border_(border) {}
  __device__ int Area() const override { return Square::Area() - border_; }
  __device__ int Describe(int factor) const override { return Square::Describe(factor) + 1000000; }

 private:
  int border_;
};

class Rectangle : public Shape {
 public:
  __device__ Rectangle(int id, int width, int height) : Shape(id), width_(width), height_(height) {}
  __device__ int Area() const override { return width_ * height_; }
  __device__ ~Rectangle() override { width_ = -7; }

 private:
  int width_;
  int height_;
};

constexpr int kCount = 999;
constexpr int kSlot = 64;

__global__ void Make(char* memory, Shape** shapes) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount) return;
  void* slot = memory + i * kSlot;
  switch (i % 3) {
    case 0:
      shapes[i] = new (slot) Square(i, i % 50);
      break;
    case 1:
      shapes[i] = new (slot) Bordered(i, i % 70, 5);
      break;
    default:
      shapes[i] = new (slot) Rectangle(i, i % 20, i % 30);
  }
}

__global__ void Use(Shape* const* shapes, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount) return;
  // Threads exchange their objects.
  const Shape* shape = shapes[kCount - 1 - i];
  out[i] = shape->Area() * 10 + shape->Describe(3);
}

__global__ void Destroy(Shape** shapes) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) shapes[i]->~Shape();
}

int main() {
  char* memory = check::Zeroed<char>(kCount * kSlot);
  Shape** shapes = check::Zeroed<Shape*>(kCount);
  int* out = check::Zeroed<int>(kCount);
  Make<<<(kCount + 63) / 64, 64>>>(memory, shapes);
  Use<<<(kCount + 63) / 64, 64>>>(shapes, out);
  CHECK(cudaGetLastError());
  std::vector<int> want(kCount);
  for (int k = 0; k < kCount; ++k) {
    int i = kCount - 1 - k;
    int area = i % 3 == 0   ? (i % 50) * (i % 50)
               : i % 3 == 1 ? (i % 70) * (i % 70) - 5
                            : (i % 20) * (i % 30);
    want[k] = area * 10 + i * 3 + (i % 3 == 1 ? 1000000 : 0);
  }
  check::Compare("shapes", check::Download(out, kCount), want);
  Destroy<<<(kCount + 63) / 64, 64>>>(shapes);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFree(memory));
  CHECK(cudaFree(shapes));
  CHECK(cudaFree(out));
  return check::Ok();
}
