// Memory of one process in another. A file descriptor that is sent over a unix socket names it.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "check_driver.h"

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

CUmemAllocationProp Properties() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

CUdeviceptr MapAll(CUmemGenericAllocationHandle handle, std::size_t bytes) {
  CUdeviceptr address = 0;
  CHECK_CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CHECK_CU(cuMemMap(address, bytes, 0, handle, 0));
  CUmemAccessDesc access{};
  access.location = Properties().location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK_CU(cuMemSetAccess(address, bytes, &access, 1));
  return address;
}

void AddOnGpu(CUdeviceptr memory, std::size_t count, unsigned what) {
  Add<<<(count + 255) / 256, 256>>>(reinterpret_cast<unsigned*>(memory), count, what);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
}

// The importer adds to what the exporter wrote, and ends.
int Child(int socket) {
  check::UsePrimaryContext();
  const int descriptor = ReceiveDescriptor(socket);
  std::size_t bytes = 0;
  REQUIRE(read(socket, &bytes, sizeof bytes) == sizeof bytes);
  CUmemGenericAllocationHandle handle = 0;
  CHECK_CU(cuMemImportFromShareableHandle(
      &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(descriptor);
  const CUdeviceptr memory = MapAll(handle, bytes);
  CHECK_CU(cuMemRelease(handle));
  AddOnGpu(memory, bytes / sizeof(unsigned), 5);
  CHECK_CU(cuMemUnmap(memory, bytes));
  CHECK_CU(cuMemAddressFree(memory, bytes));
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

  check::UsePrimaryContext();
  const CUmemAllocationProp properties = Properties();
  std::size_t unit = 0;
  CHECK_CU(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  const std::size_t bytes = 3 * unit, count = bytes / sizeof(unsigned);
  CUmemGenericAllocationHandle handle = 0;
  CHECK_CU(cuMemCreate(&handle, bytes, &properties, 0));
  const CUdeviceptr memory = MapAll(handle, bytes);
  CHECK_CU(cuMemsetD32(memory, 7, count));
  AddOnGpu(memory, count, 2);

  int descriptor = -1;
  CHECK_CU(cuMemExportToShareableHandle(&descriptor, handle,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  SendDescriptor(sockets[0], descriptor);
  close(descriptor);
  REQUIRE(write(sockets[0], &bytes, sizeof bytes) == sizeof bytes);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);

  std::vector<unsigned> got(count), want(count);
  for (std::size_t i = 0; i < count; ++i) want[i] = 7 + 7 * static_cast<unsigned>(i);
  CHECK_CU(cuMemcpyDtoH(got.data(), memory, bytes));
  check::Compare("written by both", got, want);
  CHECK_CU(cuMemUnmap(memory, bytes));
  CHECK_CU(cuMemAddressFree(memory, bytes));
  CHECK_CU(cuMemRelease(handle));
  return check::Ok();
}
