// Two thousand small launches without waiting, in one stream and over several. Each depends on the
// one before.
#include "check.h"

constexpr unsigned kLaunches = 2000;
constexpr int kStreams = 4;

__global__ void Step(unsigned* state, unsigned* log, unsigned launch) {
  unsigned value = state[threadIdx.x] * 1103515245u + launch;
  state[threadIdx.x] = value;
  if (threadIdx.x == 0 && log != nullptr) log[launch] = value;
}

int main() {
  unsigned* state = check::Zeroed<unsigned>(32);
  unsigned* log = check::Zeroed<unsigned>(kLaunches);
  for (unsigned launch = 0; launch < kLaunches; ++launch) Step<<<1, 32>>>(state, log, launch);
  CHECK(cudaGetLastError());
  std::vector<unsigned> want_log(kLaunches), want(32, 0u);
  for (unsigned launch = 0; launch < kLaunches; ++launch) {
    for (unsigned& value : want) value = value * 1103515245u + launch;
    want_log[launch] = want[0];
  }
  check::Compare("log", check::Download(log, kLaunches), want_log);
  check::Compare("state", check::Download(state, 32), want);

  // From stream to stream, with an event at each step.
  cudaStream_t streams[kStreams];
  cudaEvent_t events[kStreams];
  for (int s = 0; s < kStreams; ++s) {
    CHECK(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&events[s], cudaEventDisableTiming));
  }
  for (unsigned launch = 0; launch < 400; ++launch) {
    int s = launch % kStreams, previous = (s + kStreams - 1) % kStreams;
    if (launch > 0) CHECK(cudaStreamWaitEvent(streams[s], events[previous], 0));
    Step<<<1, 32, 0, streams[s]>>>(state, nullptr, launch);
    CHECK(cudaEventRecord(events[s], streams[s]));
    for (unsigned& value : want) value = value * 1103515245u + launch;
  }
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  check::Compare("over streams", check::Download(state, 32), want);
  for (int s = 0; s < kStreams; ++s) {
    CHECK(cudaStreamDestroy(streams[s]));
    CHECK(cudaEventDestroy(events[s]));
  }
  CHECK(cudaFree(state));
  CHECK(cudaFree(log));
  return check::Ok();
}
