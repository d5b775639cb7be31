// A memory pool of one process, and its allocations in another process.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "check.h"

constexpr std::size_t kCount = 100000;

__global__ void Add(unsigned* values, std::size_t count, unsigned what) {
  std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) values[i] += what * static_cast<unsigned>(i);
}

void SendDescriptor(int socket, int descriptor) {
  char byte = 'd', control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  REQUIRE(sendmsg(socket, &message, 0) == 1);
}

int ReceiveDescriptor(int socket) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  REQUIRE(recvmsg(socket, &message, 0) == 1);
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
  return descriptor;
}

// The importer adds to both allocations and frees them in different ways.
int Child(int socket) {
  const int descriptor = ReceiveDescriptor(socket);
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  cudaMemPool_t pool = nullptr;
  CHECK(cudaMemPoolImportFromShareableHandle(
      &pool, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
      cudaMemHandleTypePosixFileDescriptor, 0));
  close(descriptor);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  // The importer cannot allocate from the pool.
  void* none = nullptr;
  REQUIRE(cudaMallocFromPoolAsync(&none, 100, pool, stream) != cudaSuccess);
  cudaGetLastError();
  cudaMemAccessFlags access = cudaMemAccessFlagsProtNone;
  cudaMemLocation here = {};
  here.type = cudaMemLocationTypeDevice;
  CHECK(cudaMemPoolGetAccess(&access, pool, &here));
  if (access != cudaMemAccessFlagsProtReadWrite) {
    cudaMemAccessDesc both = {};
    both.location = here;
    both.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaMemPoolSetAccess(pool, &both, 1));
  }
  unsigned* memory[2] = {};
  for (unsigned*& one : memory) {
    cudaMemPoolPtrExportData data;
    REQUIRE(read(socket, &data, sizeof data) == sizeof data);
    void* pointer = nullptr;
    CHECK(cudaMemPoolImportPointer(&pointer, pool, &data));
    one = static_cast<unsigned*>(pointer);
    Add<<<(kCount + 255) / 256, 256, 0, stream>>>(one, kCount, 5);
    CHECK(cudaGetLastError());
  }
  CHECK(cudaFreeAsync(memory[0], stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaFree(memory[1]));
  CHECK(cudaMemPoolDestroy(pool));
  CHECK(cudaStreamDestroy(stream));
  return 0;
}

int main() {
  int sockets[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(sockets[0]);
    std::_Exit(Child(sockets[1]));
  }
  close(sockets[1]);

  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = 0;
  cudaMemPool_t pool = nullptr;
  CHECK(cudaMemPoolCreate(&pool, &properties));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  unsigned* memory[2] = {};
  for (unsigned n = 0; n < 2; ++n) {
    CHECK(cudaMallocFromPoolAsync(&memory[n], kCount * sizeof(unsigned), pool, stream));
    CHECK(cudaMemsetAsync(memory[n], 0, kCount * sizeof(unsigned), stream));
    Add<<<(kCount + 255) / 256, 256, 0, stream>>>(memory[n], kCount, n + 1);
  }
  CHECK(cudaStreamSynchronize(stream));

  // A pointer can be shared only after its pool was.
  cudaMemPoolPtrExportData early;
  EXPECT(cudaMemPoolExportPointer(&early, memory[0]), cudaErrorInvalidValue);
  int descriptor = -1;
  CHECK(cudaMemPoolExportToShareableHandle(&descriptor, pool, cudaMemHandleTypePosixFileDescriptor,
                                           0));
  SendDescriptor(sockets[0], descriptor);
  close(descriptor);
  for (unsigned* one : memory) {
    cudaMemPoolPtrExportData data;
    CHECK(cudaMemPoolExportPointer(&data, one));
    REQUIRE(write(sockets[0], &data, sizeof data) == sizeof data);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (unsigned n = 0; n < 2; ++n) {
    std::vector<unsigned> want(kCount);
    for (std::size_t i = 0; i < kCount; ++i) want[i] = (n + 6) * static_cast<unsigned>(i);
    check::Compare(n == 0 ? "first" : "second", check::Download(memory[n], kCount), want);
    CHECK(cudaFreeAsync(memory[n], stream));
  }
  CHECK(cudaStreamSynchronize(stream));

  // Memory that cannot be shared.
  void* plain = nullptr;
  cudaMemPoolPtrExportData data;
  CHECK(cudaMalloc(&plain, 1000));
  EXPECT(cudaMemPoolExportPointer(&data, plain), cudaErrorInvalidValue);
  CHECK(cudaFree(plain));
  CHECK(cudaMemPoolDestroy(pool));
  CHECK(cudaStreamDestroy(stream));
  return check::Ok();
}
