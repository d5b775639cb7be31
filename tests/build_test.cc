#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <cuda.h>
#include <google/protobuf/stubs/common.h>
#include <grpcpp/grpcpp.h>
#include <lz4.h>
#include <zstd.h>

#include <boost/interprocess/file_mapping.hpp>
#include <catch2/catch.hpp>

TEST_CASE("the libraries that headers describe are the ones that are linked") {
  CHECK(absl::InternalError("x").ToString() == "INTERNAL: x");
  CHECK(ZSTD_versionNumber() == ZSTD_VERSION_NUMBER);
  CHECK(LZ4_versionNumber() == LZ4_VERSION_NUMBER);
  CHECK(grpc::Version() == GRPC_CPP_VERSION_STRING);
  CHECK(CUDA_VERSION >= 13000);
  CHECK_NOTHROW(google::protobuf::internal::VerifyVersion(
      GOOGLE_PROTOBUF_VERSION, GOOGLE_PROTOBUF_MIN_LIBRARY_VERSION, __FILE__));
}
