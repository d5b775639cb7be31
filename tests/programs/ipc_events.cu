// An event that two processes record and wait for.
#include "check.h"
#include "child_process.h"
#include "gate.h"

namespace {

__global__ void Set(int* value, int to) { *value = to; }
__global__ void Compare(const int* value, int want, int* wrong) {
  if (*value != want) ++*wrong;
}

// What a process offers the other.
struct Offer {
  cudaIpcEventHandle_t event;
  cudaIpcMemHandle_t value;
};

// Both processes write a word and read that of the other by turns. Only their events order the work:
// the processes tell each other that an event was recorded, not that it is complete.
void TakeTurns(const Line& other, int sign) {
  constexpr int kRounds = 200;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaEvent_t own, others;
  CHECK(cudaEventCreateWithFlags(&own, cudaEventInterprocess | cudaEventDisableTiming));
  int* const value = check::Zeroed<int>(1);
  int* const wrong = check::Zeroed<int>(1);
  Offer offer;
  CHECK(cudaIpcGetEventHandle(&offer.event, own));
  CHECK(cudaIpcGetMemHandle(&offer.value, value));
  other.Send(offer);
  offer = other.Receive<Offer>();
  CHECK(cudaIpcOpenEventHandle(&others, offer.event));
  void* others_value;
  CHECK(cudaIpcOpenMemHandle(&others_value, offer.value, cudaIpcMemLazyEnablePeerAccess));
  const auto record_and_meet = [&] {
    CHECK(cudaEventRecord(own, stream));
    other.Send('m');
    other.Receive<char>();
  };
  for (int round = 1; round <= kRounds; ++round) {
    CHECK(cudaStreamWaitEvent(stream, others, 0));
    Set<<<1, 1, 0, stream>>>(value, sign * round);
    record_and_meet();
    CHECK(cudaStreamWaitEvent(stream, others, 0));
    Compare<<<1, 1, 0, stream>>>(static_cast<int*>(others_value), -sign * round, wrong);
    record_and_meet();
  }
  CHECK(cudaStreamSynchronize(stream));
  int count = -1;
  CHECK(cudaMemcpy(&count, wrong, sizeof(count), cudaMemcpyDefault));
  if (count != 0) std::printf("%d of %d words were read too early or too late\n", count, kRounds);
  REQUIRE(count == 0);
  other.Send('e');
  other.Receive<char>();
  CHECK(cudaIpcCloseMemHandle(others_value));
  CHECK(cudaEventDestroy(others));
  other.Send('e');
  other.Receive<char>();
  CHECK(cudaEventDestroy(own));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(value));
  CHECK(cudaFree(wrong));
}

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
  TakeTurns(parent, -1);
  return 0;
}

}  // namespace

int main() {
  const ChildProcess process(Child);
  const Line& child = process.line();

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
  TakeTurns(child, 1);
  std::printf("both took turns\n");
  process.Await();

  // The parent records the event after the other process has ended.
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaEventSynchronize(event));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaEventDestroy(plain));
  CHECK(cudaStreamDestroy(stream));
  return check::Ok();
}
