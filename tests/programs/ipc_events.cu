// An event that two processes record and wait for.
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "gate.h"

namespace {

// A pipe to the other process.
struct Line {
  int in = -1, out = -1;
  template <typename T>
  void Send(const T& value) const {
    REQUIRE(write(out, &value, sizeof(value)) == sizeof(value));
  }
  template <typename T>
  T Receive() const {
    T value;
    REQUIRE(read(in, &value, sizeof(value)) == sizeof(value));
    return value;
  }
};

// Opens the parent's event, queries it before and after its completion, and then records it behind
// a gate.
int Child(const Line& parent) {
  const auto handle = parent.Receive<cudaIpcEventHandle_t>();
  cudaEvent_t event;
  CHECK(cudaIpcOpenEventHandle(&event, handle));
  EXPECT(cudaEventQuery(event), cudaErrorNotReady);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamWaitEvent(stream, event, 0));
  EXPECT(cudaStreamQuery(stream), cudaErrorNotReady);
  parent.Send('o');  // open the gate
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaEventSynchronize(event));
  CHECK(cudaEventQuery(event));

  parent.Receive<char>();  // the parent has seen its own recording complete; the next one is
                           // another
  Gate gate;
  gate.Close(stream);
  CHECK(cudaEventRecord(event, stream));
  EXPECT(cudaEventQuery(event), cudaErrorNotReady);
  parent.Send('r');  // recorded
  parent.Receive<char>();
  gate.Open();
  CHECK(cudaEventSynchronize(event));
  parent.Receive<char>();
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
  return 0;
}

}  // namespace

int main() {
  int down[2], up[2];
  REQUIRE(pipe(down) == 0 && pipe(up) == 0);
  std::fflush(stdout);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) std::_Exit(Child({down[0], up[1]}));
  const Line child{up[0], down[1]};

  cudaEvent_t event, plain;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
  CHECK(cudaEventCreate(&plain));
  CHECK(cudaEventQuery(event));  // never recorded
  cudaIpcEventHandle_t handle;
  EXPECT(cudaIpcGetEventHandle(&handle, plain), cudaErrorInvalidResourceHandle);
  CHECK(cudaIpcGetEventHandle(&handle, event));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  Gate gate;
  gate.Close(stream);
  CHECK(cudaEventRecord(event, stream));
  EXPECT(cudaEventQuery(event), cudaErrorNotReady);
  child.Send(handle);
  child.Receive<char>();
  gate.Open();
  CHECK(cudaEventSynchronize(event));
  std::printf("the child saw the parent's recording\n");

  child.Send('s');
  child.Receive<char>();
  EXPECT(cudaEventQuery(event), cudaErrorNotReady);
  CHECK(cudaStreamWaitEvent(stream, event, 0));
  EXPECT(cudaStreamQuery(stream), cudaErrorNotReady);
  child.Send('g');
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaEventQuery(event));
  std::printf("the parent saw the child's recording\n");
  child.Send('e');
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);

  // The parent records the event after the other process has ended.
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaEventSynchronize(event));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaEventDestroy(plain));
  CHECK(cudaStreamDestroy(stream));
  return check::Ok();
}
