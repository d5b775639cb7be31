#include "server/backends/cuda/managed_image.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/server/backends/cuda/stand_in_session.h"

namespace detshare::cuda {
namespace {

std::vector<std::string> g_linked;

// Its linker notes its inputs, and links nothing.
DriverApi LinkingDriver() {
  DriverApi api = StandInDriver();
  api.cuLinkCreate = [](unsigned, CUjit_option*, void**, CUlinkState*) { return CUDA_SUCCESS; };
  api.cuLinkAddData = [](CUlinkState, CUjitInputType, void* data, size_t, const char*, unsigned,
                         CUjit_option*, void**) {
    g_linked.emplace_back(static_cast<const char*>(data));
    return CUDA_SUCCESS;
  };
  api.cuLinkComplete = [](CUlinkState, void**, size_t*) { return CUDA_ERROR_INVALID_PTX; };
  api.cuLinkDestroy = [](CUlinkState) { return CUDA_SUCCESS; };
  return api;
}

struct ScanSession : StandInSession {
  ScanSession() : StandInSession(LinkingDriver()) { g_linked.clear(); }

  void Add(const std::string& text, size_t fatbin, uint32_t sm, uint64_t flags = 0) {
    images::FatbinEntry entry;
    entry.fatbin = fatbin;
    entry.sm = sm;
    entry.flags = flags;
    scan.Add({images::EntryKind::kPtx, text, &entry});
  }
  // Returns what is linked.
  std::vector<std::string> Place() {
    CompileLogs logs;
    const auto placed = scan.Place(context, *space, {}, logs, nullptr);
    // The linker is asked only for managed variables.
    CHECK(placed.ok() == g_linked.empty());
    return g_linked;
  }
  ManagedScan scan;
};

TEST_CASE_METHOD(ScanSession,
                 "Of the texts of each fatbin, the one of the newest architecture is linked") {
  Add("first of 70", 0, 70);
  Add("first of 90", 0, 90);
  Add("first of 90 alone .managed", 0, 90, images::kEntryArchitectureSpecific);
  Add("first of 80 .managed", 0, 80);
  Add("second of 75", 1, 75);
  CHECK(Place() == std::vector<std::string>{"first of 90 alone .managed", "second of 75"});
}

TEST_CASE_METHOD(ScanSession, "Texts without managed variables are not linked") {
  Add("first", 0, 70);
  Add("second", 1, 70);
  CHECK(Place().empty());
}

}  // namespace
}  // namespace detshare::cuda
