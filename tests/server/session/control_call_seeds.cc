#include <string>

#include "proto/wire/all.h"
#include "tests/fuzzing/write_seeds.h"
#include "tests/server/session/control_call_input.h"
#include "tests/server/session/graph_payload_builder.h"

namespace detshare {
namespace {

// The first ids that a session gives out.
constexpr LibraryId kLibrary = 1;
constexpr KernelId kKernel = 1;
constexpr StreamId kStream = 1;
constexpr EventId kEvent = 1;

// Where it has its first memory.
constexpr uint64_t kMemory = kInputDeviceBase;
constexpr uint64_t kPinned = kInputPinnedBase;

std::string Load(const std::string& image) {
  wire::cuLibraryLoadData load{};
  load.context = 1;
  load.image_bytes = image.size();
  load.jit_option_count = 1;
  load.info_log_bytes = load.error_log_bytes = 100;
  return CallOf(Op::cuLibraryLoadData, load, image + GraphBuilder::Bytes(wire::JitOption{7, 3}));
}

std::string GetKernel(const std::string& name) {
  return CallOf(Op::cuLibraryGetKernel, wire::cuLibraryGetKernel{kLibrary, 0}, name);
}

std::string MakeStream() {
  return RecordOf(Op::cuStreamCreateWithPriority,
                  wire::cuStreamCreateWithPriority{kStream, 1, 0, 0});
}

std::string Allocate() { return RecordOf(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{1 << 16}); }

wire::cuLaunchKernelEx Launch(StreamId stream) {
  wire::cuLaunchKernelEx launch{};
  launch.stream = stream;
  launch.kernel = kKernel;
  for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
  return launch;
}

wire::cuMemcpy3DAsync_v2 Copy(StreamId stream) {
  wire::cuMemcpy3DAsync_v2 copy{};
  copy.destination = {{kMemory, wire::kAddress, 0}, 64, 4096};
  copy.source = {{kMemory + 8192, wire::kAddress, 0}, 64, 4096};
  copy.width = 64;
  copy.height = copy.depth = 2;
  copy.stream = stream;
  copy.signal.index = kNoFence;
  return copy;
}

std::string Code() {
  return Load("code of a library") + GetKernel("add") + GetKernel("fault") +
         CallOf(Op::cuLibraryEnumerateKernels, wire::cuLibraryEnumerateKernels{kLibrary, 0}) +
         CallOf(Op::cuLibraryGetGlobal, wire::cuLibraryGetGlobal{kLibrary, 0}, "counter") +
         Load("code with managed variables") +
         CallOf(Op::cuLibraryGetGlobal, wire::cuLibraryGetGlobal{2, 0}, "first") +
         CallOf(Op::cuLibraryUnload, wire::cuLibraryUnload{2, 0}) + Load("no code") +
         CallOf(Op::cuLibraryUnload, wire::cuLibraryUnload{kLibrary, 0});
}

std::string Link() {
  wire::cuLinkComplete link{};
  link.input_count = 2;
  link.jit_option_count = 1;
  link.info_log_bytes = 10;
  const auto input = [](const std::string& name, const std::string& bytes) {
    return GraphBuilder::Bytes(
               wire::LinkInput{1, static_cast<uint32_t>(name.size()), bytes.size()}) +
           name + bytes;
  };
  return CallOf(
      Op::cuLinkComplete, link,
      input("a.ptx", "text") + input("b", "more") + GraphBuilder::Bytes(wire::JitOption{1, 1}));
}

std::string Work() {
  std::string input = MakeStream() + Load("code") + GetKernel("add") + Allocate();
  input += RecordOf(Op::cuLaunchKernelEx, Launch(kStream), std::string(16, '\0'));
  input += RecordOf(Op::cuMemcpy3DAsync_v2, Copy(kStream));
  input += RecordOf(Op::cuMemsetD2D32Async,
                    wire::cuMemsetD2D32Async{kMemory, 256, 16, 4, 7, 4, kStream, 0});
  input +=
      RecordOf(Op::cuMemcpyAsync,
               wire::cuMemcpyAsync{
                   {kMemory, wire::kAddress, 0}, {0, wire::kInline, 0}, 8, kStream, 0, {1, 0, 0}},
               "8 bytes.");
  input += RecordOf(
      Op::cuMemcpyAsync,
      wire::cuMemcpyAsync{
          {64, wire::kStaging, 0}, {kMemory, wire::kAddress, 0}, 8, kStream, 0, {2, 0, 0}});
  input += RecordOf(Op::cuEventCreate, wire::cuEventCreate{kEvent, 1, 0, 0});
  input += RecordOf(Op::cuEventRecordWithFlags,
                    wire::cuEventRecordWithFlags{kEvent, kStream, {1, 1, 0}});
  input += RecordOf(Op::cuStreamWaitEvent, wire::cuStreamWaitEvent{kStream, kEvent});
  input += RecordOf(Op::cuStreamSynchronize, wire::cuStreamSynchronize{kStream, 0, {3, 0, 0}});
  input += RecordOf(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{kStream, 2, 1, {1, 3, 0}});
  input += RecordOf(Op::cuMemFree_v2, wire::cuMemFree_v2{kMemory});
  return input + RecordOf(Op::cuCtxDestroy_v2, wire::cuCtxDestroy_v2{1, 0});
}

std::string Host() {
  wire::cuMemHostRegister_v2 registered{};
  registered.bytes = kPageBytes;
  registered.descriptor = -1;
  return RecordOf(Op::cuMemHostAlloc, wire::cuMemHostAlloc{4096, 0, 0}) +
         CallOf(Op::cuMemHostRegister_v2, registered, "name") +
         RecordOf(Op::cuMemFreeHost, wire::cuMemFreeHost{kPinned});
}

std::string Virtual() {
  const uint64_t unit = wire::kPhysicalUnit;
  const uint64_t address = kInputDeviceBase + (uint64_t{1} << 28);
  return RecordOf(Op::cuMemAddressReserve, wire::cuMemAddressReserve{unit, 0, address}) +
         RecordOf(Op::cuMemCreate, wire::cuMemCreate{unit}) +
         RecordOf(Op::cuMemMap, wire::cuMemMap{address, unit, 1, 0}) +
         RecordOf(Op::cuMemSetAccess, wire::cuMemSetAccess{address, unit, 1, 3}) +
         RecordOf(Op::cuMemExportToShareableHandle, wire::cuMemExportToShareableHandle{1, 0}) +
         RecordOf(Op::cuMemUnmap, wire::cuMemUnmap{address, unit}) +
         RecordOf(Op::cuMemRelease, wire::cuMemRelease{1, 0}) +
         RecordOf(Op::cuMemAddressFree, wire::cuMemAddressFree{address, unit});
}

std::string Pools() {
  return MakeStream() + RecordOf(Op::cuMemPoolCreate, wire::cuMemPoolCreate{1 << 20, 2, 0}) +
         RecordOf(Op::cuMemAllocAsync, wire::cuMemAllocAsync{4096, kStream, 2}) +
         RecordOf(Op::cuMemFreeAsync, wire::cuMemFreeAsync{kMemory, kStream, 0}) +
         RecordOf(Op::cuMemPoolSetAttribute, wire::cuMemPoolSetAttribute{1 << 16, 2, 4}) +
         RecordOf(Op::cuMemPoolSetAccess, wire::cuMemPoolSetAccess{2, 1, 3, 0}) +
         RecordOf(Op::cuMemPoolTrimTo, wire::cuMemPoolTrimTo{0, 2, 0}) +
         RecordOf(Op::cuMemPoolDestroy, wire::cuMemPoolDestroy{2, 0});
}

std::string Arrays() {
  wire::cuTexObjectCreate texture{};
  texture.array = 1;
  return RecordOf(Op::cuArray3DCreate_v2, wire::cuArray3DCreate_v2{64, 32, 0, 0x20, 4, 2, 0}) +
         RecordOf(Op::cuTexObjectCreate, texture) +
         RecordOf(Op::cuSurfObjectCreate, wire::cuSurfObjectCreate{1, 0}) +
         RecordOf(Op::cuTexObjectDestroy, wire::cuTexObjectDestroy{0x7001}) +
         RecordOf(Op::cuArrayDestroy, wire::cuArrayDestroy{1, 0});
}

// Signals, waits and events refer to what the input made before.
std::string Graphs() {
  GraphBuilder root, body;
  root.NodeOf(wire::kNodeKernel, Launch(0), std::string(16, '\0'));
  root.NodeOf(wire::kNodeCopy, Copy(0));
  root.NodeOf(wire::kNodeFill, wire::cuMemsetD2D32Async{kMemory, 256, 16, 4, 7, 4, 0, 0});
  root.NodeOf(wire::kNodeSignal, wire::GraphFence{1, 0});
  root.NodeOf(wire::kNodeConditional, wire::GraphConditional{1, 0, 1, 1, 0});
  root.Edge(0, 1);
  root.Edge(1, 2);
  body.NodeOf(wire::kNodeKernel, Launch(0), std::string(16, '\0'));
  const std::string payload = root.Build() + body.Build();
  std::string input = MakeStream() + Load("code") + GetKernel("add") + Allocate();
  input += CallOf(Op::cuGraphConditionalHandleCreate,
                  wire::cuGraphConditionalHandleCreate{1, 1, 0, 0, 0});
  input += CallOf(Op::cuGraphInstantiateWithParams, wire::cuGraphInstantiateWithParams{1, 1, 0, 2},
                  payload);
  input += RecordOf(Op::cuGraphLaunch, wire::cuGraphLaunch{1, kStream, 1, 0}, std::string(8, '\1'));
  input += RecordOf(Op::cuGraphNodeSetEnabled, wire::cuGraphNodeSetEnabled{1, 0, 0, 0});
  input +=
      RecordOf(Op::cuGraphExecNodeSetParams, wire::cuGraphExecNodeSetParams{1, 0, 2, 0},
               GraphBuilder::OneNode(wire::kNodeFill, GraphBuilder::Bytes(wire::cuMemsetD2D32Async{
                                                          kMemory, 256, 8, 2, 9, 4, 0, 0})));
  input += CallOf(Op::cuGraphExecUpdate_v2, wire::cuGraphExecUpdate_v2{1, 2}, payload);
  input += RecordOf(Op::cuGraphUpload, wire::cuGraphUpload{1, kStream});
  return input + RecordOf(Op::cuGraphExecDestroy, wire::cuGraphExecDestroy{1, 0});
}

std::string Fault() {
  wire::cuLaunchKernelEx launch = Launch(kStream);
  return MakeStream() + Load("code") + GetKernel("fault") + RecordOf(Op::cuLaunchKernelEx, launch) +
         GetKernel("add");
}

}  // namespace
}  // namespace detshare

int main(int argc, char** argv) {
  using namespace detshare;  // NOLINT
  return fuzzing::WriteSeeds(argc, argv,
                             {{"arrays", Arrays()},
                              {"code", Code()},
                              {"fault", Fault()},
                              {"graphs", Graphs()},
                              {"host", Host()},
                              {"link", Link()},
                              {"pools", Pools()},
                              {"virtual", Virtual()},
                              {"work", Work()}});
}
