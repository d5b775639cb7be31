// What the thread sanitizer must not say of gRPC: its library is not instrumented, so that the
// orders which it makes between its threads are not seen, while its headers are compiled here.
// Sessions without gRPC are tested without this (tests/server/session/session_test.cc).
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions() {
  return "race:grpc::internal::\n"
         "race:grpc::ServerCompletionQueue\n"
         "race:grpc::Server::\n"
         "race:grpc::CallbackServerContext\n"
         "race:grpc::ServerContextBase\n"
         "race:google::protobuf::\n"
         // A reactor is made before gRPC calls it, by another thread.
         "race:std::__shared_ptr<detshare::ControlService::OpenReactor::State\n"
         "called_from_lib:libgrpc_unsecure.so\n";
}
#endif
