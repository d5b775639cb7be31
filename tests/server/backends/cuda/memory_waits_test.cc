#include "server/backends/cuda/memory_waits.h"

#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "tests/server/backends/cuda/stand_in_session.h"

namespace detshare::cuda {
namespace {

CUcontext g_current_context = nullptr;
std::map<CUevent, CUcontext> g_home_of_event;

// Its events can be recorded only in the context in which they were made.
DriverApi DriverWithContexts() {
  DriverApi api = StandInDriver();
  api.cuCtxSetCurrent = [](CUcontext context) {
    g_current_context = context;
    return CUDA_SUCCESS;
  };
  api.cuEventCreate = [](CUevent* event, unsigned flags) {
    const CUresult result = StandInDriver().cuEventCreate(event, flags);
    g_home_of_event[*event] = g_current_context;
    return result;
  };
  api.cuEventRecord = [](CUevent event, CUstream stream) {
    return g_home_of_event.at(event) == g_current_context
               ? StandInDriver().cuEventRecord(event, stream)
               : CUDA_ERROR_INVALID_HANDLE;
  };
  api.cuEventDestroy = [](CUevent event) {
    g_home_of_event.erase(event);
    return CUDA_SUCCESS;
  };
  return api;
}

// A session that changes between two groups.
struct TwoGroups {
  int homes[2] = {};
  const DriverApi api = DriverWithContexts();
  CudaContext gpu{api, 0, reinterpret_cast<CUcontext>(&homes[0])};
  CudaGroup urgent{gpu, reinterpret_cast<CUcontext>(&homes[1]), /*urgent=*/true};
  StandInStream ordinary_stream, urgent_stream;
  std::vector<MemoryOp> operations = std::vector<MemoryOp>(1);
  MemoryWaits waits{api};

  TwoGroups() {
    operations[0].operation = MemoryOp::kWait32;
    REQUIRE(operations[0].is_wait());
  }

  CUresult Submit(const CudaGroup& group, StandInStream& stream) {
    api.cuCtxSetCurrent(group.context);
    return waits.Submit(group, reinterpret_cast<CUstream>(&stream), operations, [&] {
      ++stream.in_flight;
      return CUDA_SUCCESS;
    });
  }
};

TEST_CASE_METHOD(TwoGroups, "Waits of a session that changes its group have events of that group") {
  g_home_of_event.clear();
  for (int round = 0; round < 3; ++round) {
    CHECK(Submit(gpu.ordinary, ordinary_stream) == CUDA_SUCCESS);
    CHECK(waits.Pending());
    ordinary_stream.in_flight = 0;
    CHECK_FALSE(waits.Pending());
    CHECK(Submit(urgent, urgent_stream) == CUDA_SUCCESS);
    CHECK(waits.Pending());
    urgent_stream.in_flight = 0;
    CHECK_FALSE(waits.Pending());
  }
  CHECK(g_home_of_event.size() == 2);  // they serve again
}

TEST_CASE_METHOD(TwoGroups, "Work that is refused leaves no wait, and its event serves again") {
  g_home_of_event.clear();
  for (int round = 0; round < 3; ++round) {
    api.cuCtxSetCurrent(urgent.context);
    CHECK(waits.Submit(urgent, reinterpret_cast<CUstream>(&urgent_stream), operations,
                       [] { return CUDA_ERROR_INVALID_VALUE; }) == CUDA_ERROR_INVALID_VALUE);
    CHECK_FALSE(waits.Pending());
    CHECK(Submit(gpu.ordinary, ordinary_stream) == CUDA_SUCCESS);
    ordinary_stream.in_flight = 0;
  }
  CHECK(g_home_of_event.size() == 2);
}

}  // namespace
}  // namespace detshare::cuda
