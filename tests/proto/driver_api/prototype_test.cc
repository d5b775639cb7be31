// The generated prototype_check.cc compares the table's prototypes and versions with cuda.h and
// cudaTypedefs.h in static assertions. It is part of this test: it compiles, or the error names the
// row.
#include <catch2/catch.hpp>

#include "proto/driver_api/driver_api_table.h"

namespace detshare {
namespace {

TEST_CASE(
    "Every exported function of the table has been compared with cuda.h and cudaTypedefs.h by the "
    "compiler") {
  CHECK(kExportedRowCount == 637);
  CHECK(std::size(kRowsByApi) == kRowCount);
}

}  // namespace
}  // namespace detshare
