// cuGetProcAddress, against the recorded replies of driver 580.
#include "proto/driver_api/proc_address.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "proto/driver_api/driver_api_table.h"

namespace detshare {
namespace {

constexpr int kDriver = 13000;

// An address that tells its row.
void* FakeEntryPoint(size_t row) { return reinterpret_cast<void*>(0x1000 + row); }

std::string SymbolAt(void* address) {
  if (address == nullptr) return "null";
  return kRows[reinterpret_cast<size_t>(address) - 0x1000].symbol;
}

struct Reply {
  CUresult result;
  CUdriverProcAddressQueryResult status;
  std::string symbol;
};

// A value in the enumeration's range that no call returns.
constexpr auto kUntouched = static_cast<CUdriverProcAddressQueryResult>(3);

Reply Ask(const std::string& name, int version, uint64_t flags) {
  void* pfn = FakeEntryPoint(0);
  CUdriverProcAddressQueryResult status = kUntouched;
  const CUresult result =
      GetProcAddress(name.c_str(), &pfn, version, flags, &status, kDriver, &FakeEntryPoint);
  return {result, status, SymbolAt(pfn)};
}

// The lines of a testdata file, split at tabs, without comments.
std::vector<std::vector<std::string>> ReadTable(const std::string& name) {
  std::ifstream file("tests/proto/driver_api/testdata/" + name);
  REQUIRE(file.good());
  std::vector<std::vector<std::string>> rows;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> fields;
    std::istringstream stream(line);
    std::string field;
    while (std::getline(stream, field, '\t')) fields.push_back(field);
    rows.push_back(fields);
  }
  return rows;
}

TEST_CASE("CUDA's runtime and libraries find exactly the functions that driver 580 has") {
  const auto asked = ReadTable("asked_functions.tsv");
  REQUIRE(asked.size() > 600);
  for (const auto& row : asked) {
    INFO(row[0] << " " << row[1] << " flags " << row[2]);
    const Reply reply = Ask(row[0], std::stoi(row[1]), std::stoul(row[2]));
    CHECK((reply.result == CUDA_SUCCESS && reply.symbol != "null") == (row[3] == "found"));
    CHECK((reply.status == CU_GET_PROC_ADDRESS_SUCCESS) == (row[3] == "found"));
  }
}

TEST_CASE("For every version and flag, a name gives the function that driver 580 gives") {
  const auto steps = ReadTable("driver_580_results.tsv");
  REQUIRE(steps.size() > 1500);
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto& step = steps[i];
    const int from = std::stoi(step[2]);
    const bool continues =
        i + 1 < steps.size() && steps[i + 1][0] == step[0] && steps[i + 1][1] == step[1];
    const int until = continues ? std::stoi(steps[i + 1][2]) : kDriver + 1;
    for (const int version : {from, (from + until) / 20 * 10, until - 1}) {
      const Reply reply = Ask(step[0], version, std::stoul(step[1]));
      INFO(step[0] << " " << version << " flags " << step[1] << ": " << reply.symbol
                   << ", driver: " << step[4]);
      REQUIRE(reply.result == CUDA_SUCCESS);
      REQUIRE(static_cast<int>(reply.status) == std::stoi(step[3]));
      REQUIRE(reply.symbol == step[4]);
    }
  }
}

TEST_CASE("An unknown or too new name succeeds with a null pointer and the reason") {
  for (const char* name : {"cuNope", "", "cumemalloc", "cuMemAlloc_v2", "cuMemcpy_ptds"}) {
    const Reply reply = Ask(name, kDriver, 0);
    CHECK(reply.result == CUDA_SUCCESS);
    CHECK(reply.status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK(reply.symbol == "null");
  }
  for (const int version : {0, 11000}) {
    const Reply reply = Ask("cuLaunchKernelEx", version, 0);
    CHECK(reply.result == CUDA_SUCCESS);
    CHECK(reply.status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CHECK(reply.symbol == "null");
  }
}

TEST_CASE("A negative version means the newest ABI") {
  CHECK(Ask("cuMemAlloc", -1, 0).symbol == "cuMemAlloc_v2");
}

TEST_CASE("The per-thread flag wins over the legacy flag") {
  CHECK(Ask("cuMemcpyHtoD", 7000, 3).symbol == "cuMemcpyHtoD_v2_ptds");
  CHECK(Ask("cuMemcpyHtoD", 7000, 1).symbol == "cuMemcpyHtoD_v2");
  CHECK(Ask("cuMemAlloc", 7000, 2).symbol == "cuMemAlloc_v2");
}

TEST_CASE(
    "A version above the driver's, unknown flags and null pointers are invalid and change "
    "nothing") {
  for (const auto& [version, flags] : {std::pair<int, uint64_t>{kDriver + 1, 0},
                                       {14000, 0},
                                       {kDriver, 4},
                                       {kDriver, uint64_t{1} << 40}}) {
    const Reply reply = Ask("cuMemAlloc", version, flags);
    CHECK(reply.result == CUDA_ERROR_INVALID_VALUE);
    CHECK(reply.status == kUntouched);
    CHECK(reply.symbol == SymbolAt(FakeEntryPoint(0)));
  }
  void* pfn = nullptr;
  CHECK(GetProcAddress(nullptr, &pfn, kDriver, 0, nullptr, kDriver, &FakeEntryPoint) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(GetProcAddress("cuInit", nullptr, kDriver, 0, nullptr, kDriver, &FakeEntryPoint) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(GetProcAddressV1("cuInit", nullptr, kDriver, 0, kDriver, &FakeEntryPoint) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("The older cuGetProcAddress has no status and says that nothing was found") {
  void* pfn = FakeEntryPoint(1);
  CHECK(GetProcAddressV1("cuNope", &pfn, kDriver, 0, kDriver, &FakeEntryPoint) ==
        CUDA_ERROR_NOT_FOUND);
  CHECK(GetProcAddressV1("cuLaunchKernelEx", &pfn, 11000, 0, kDriver, &FakeEntryPoint) ==
        CUDA_ERROR_NOT_FOUND);
  CHECK(pfn == FakeEntryPoint(1));
  CHECK(GetProcAddressV1("cuMemAlloc", &pfn, 11030, 0, kDriver, &FakeEntryPoint) == CUDA_SUCCESS);
  CHECK(SymbolAt(pfn) == "cuMemAlloc_v2");
}

TEST_CASE("Each ABI of a function is found at the version in which it appeared") {
  for (size_t i = 0; i < kRowCount; ++i) {
    const FoundRow found = FindRow(kRows[i].api, kRows[i].version, kRows[i].per_thread);
    INFO(kRows[i].symbol);
    CHECK(found.status == CU_GET_PROC_ADDRESS_SUCCESS);
    CHECK(found.row == i);
  }
}

}  // namespace
}  // namespace detshare
