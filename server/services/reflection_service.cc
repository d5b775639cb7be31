#include "server/services/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <utility>

namespace detshare {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

// The maximum number of questions in one stream. A tool with more questions opens another stream.
constexpr int kMaxQuestions = 10'000;
constexpr size_t kMaxName = 512;

void Fail(grpc::StatusCode code, const std::string& why, ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(code);
  response->mutable_error_response()->set_error_message(why);
}

// Adds a file and all files that it imports, each once.
void AddFile(const FileDescriptor& file, std::set<std::string>* added,
             ServerReflectionResponse* response) {
  if (!added->insert(std::string(file.name())).second) return;
  google::protobuf::FileDescriptorProto description;
  file.CopyTo(&description);
  response->mutable_file_descriptor_response()->add_file_descriptor_proto(
      description.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), added, response);
}

class Reactor final
    : public grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse> {
 public:
  explicit Reactor(const std::vector<std::string>& services) : services_(services) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok || ++questions_ > kMaxQuestions) {
      return Finish(ok ? grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many questions")
                       : grpc::Status::OK);
    }
    Reply();
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  void Reply() {
    response_.Clear();
    response_.set_valid_host(request_.host().substr(0, kMaxName));
    *response_.mutable_original_request() = request_;
    const DescriptorPool& pool = *DescriptorPool::generated_pool();
    switch (request_.message_request_case()) {
      case ServerReflectionRequest::kListServices:
        for (const std::string& service : services_)
          response_.mutable_list_services_response()->add_service()->set_name(service);
        return;
      case ServerReflectionRequest::kFileByFilename:
        return ReplyWithFile(pool.FindFileByName(request_.file_by_filename()));
      case ServerReflectionRequest::kFileContainingSymbol:
        return ReplyWithFile(pool.FindFileContainingSymbol(request_.file_containing_symbol()));
      default:
        // The services use no extensions.
        return Fail(grpc::StatusCode::UNIMPLEMENTED, "this kind of question is not supported",
                    &response_);
    }
  }
  void ReplyWithFile(const FileDescriptor* file) {
    if (file == nullptr)
      return Fail(grpc::StatusCode::NOT_FOUND, "no such file or symbol", &response_);
    std::set<std::string> added;
    AddFile(*file, &added, &response_);
  }

  const std::vector<std::string>& services_;
  ServerReflectionRequest request_;
  ServerReflectionResponse response_;
  int questions_ = 0;
};

}  // namespace

grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse>*
ReflectionService::ServerReflectionInfo(grpc::CallbackServerContext*) {
  return new Reactor(services_);
}

}  // namespace detshare
