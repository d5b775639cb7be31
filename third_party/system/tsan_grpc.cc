// Suppresses the thread sanitizer's false reports about gRPC. Debian's gRPC is not instrumented, so
// the sanitizer does not see how gRPC synchronizes its threads, but it does see the code of gRPC's
// headers, which is compiled here. tests/server/session/session_test.cc tests sessions without
// gRPC, and so without these suppressions.
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions() {
  return "race:grpc::internal::\n"
         "race:grpc::ServerCompletionQueue\n"
         "race:grpc::Server::\n"
         "race:grpc::CallbackServerContext\n"
         "race:grpc::ServerContextBase\n"
         "race:google::protobuf::\n"
         // One thread makes a reactor before gRPC calls it on another thread.
         "race:std::__shared_ptr<detshare::ControlService::OpenReactor::State\n"
         "race:detshare::ControlService::OpenReactor::OnCancel\n"
         // gRPC counts the references to its event engine, and destroys it on the thread that gives
         // back the last one.
         "race:QuietEngine\n"
         "called_from_lib:libgrpc_unsecure.so\n";
}
#endif
