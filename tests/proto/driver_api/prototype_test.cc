// The table's prototypes and versions against cuda.h and cudaTypedefs.h are static assertions of
// the generated prototype_check.cc, which is part of this test: it compiles, or names the row.
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
