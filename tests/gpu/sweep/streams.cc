// Streams, values in memory, events and captures.
#include "tests/gpu/sweep/sweep.h"

namespace sweep {
namespace {

void CUDA_CB DoNothing(void*) {}
void CUDA_CB StreamNothing(CUstream, CUresult, void*) {}

std::string ShowAttribute(int id, const CUlaunchAttributeValue& value) {
  if (IsUntouched(value)) return "untouched";
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return Show(reinterpret_cast<unsigned long long>(value.accessPolicyWindow.base_ptr)) + "," +
             Show(value.accessPolicyWindow.num_bytes) + "," +
             Show(value.accessPolicyWindow.hitRatio) + "," +
             Show(value.accessPolicyWindow.hitProp) + "," + Show(value.accessPolicyWindow.missProp);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return Format("%d,%d", value.memSyncDomainMap.default_, value.memSyncDomainMap.remote);
    default:
      return Show(value.priority);
  }
}

CUlaunchAttributeValue AnyStreamValue(int id) {
  CUlaunchAttributeValue value{};
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      value.accessPolicyWindow = {
          reinterpret_cast<void*>(fix.device_memory.base),
          numbers.Mostly<std::size_t>({4096, 65536}, {0, 1ull << 40}),
          numbers.Mostly<float>({0.5f, 1, 0}, {2, -1}),
          static_cast<CUaccessProperty>(numbers.Mostly<int>({0, 1, 2}, {3, -1})),
          static_cast<CUaccessProperty>(numbers.Mostly<int>({0, 1}, {2, 3}))};
      break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      value.memSyncDomainMap = {static_cast<unsigned char>(numbers.Pick<int>({0, 1, 3, 4, 255})),
                                static_cast<unsigned char>(numbers.Pick<int>({0, 1, 3, 4, 255}))};
      break;
    default:
      value.priority = numbers.Mostly<int>({0, 1, 2, 3, -1, -5}, {4, 5, 100, -100});
  }
  return value;
}

int AnyStreamAttribute() {
  return numbers.Mostly<int>({1, 3, 8, 9, 10}, {0, 2, 4, 6, 14, 17, 100, -1}, 15);
}

void AskStream(CUstream stream) {
  const auto named = As(stream, Show(static_cast<const void*>(stream)));
  Out<unsigned> flags("flags");
  Out<int> priority("priority");
  Out<CUdevice> device("device");
  Out<CUcontext> context("context");
  Out<CUgreenCtx> green("green");
  Out<unsigned long long> id("id", Shown::kHidden);
  CALL(cuStreamGetFlags, named, flags.MaybeNull());
  CALL(cuStreamGetPriority, named, priority.MaybeNull());
  CALL(cuStreamGetDevice, named, device);
  CALL(cuStreamGetId, named, id.MaybeNull());
  if (numbers.Chance(50)) {
    CALL(cuStreamGetCtx, named, context.MaybeNull());
  } else {
    CALL(cuStreamGetCtx_v2, named, context, green);
  }
  const int attribute = AnyStreamAttribute();
  CUlaunchAttributeValue value;
  FillPattern(&value);
  CALL(cuStreamGetAttribute, named, attribute, As(&value, "value"));
  Note("value: " + ShowAttribute(attribute, value));
}

void OneStream() {
  Out<CUstream> stream("made");
  if (numbers.Chance(40)) {
    CALL(cuStreamCreate, stream.MaybeNull(), AnyFlags(1));
  } else {
    CALL(cuStreamCreateWithPriority, stream.MaybeNull(), AnyFlags(1),
         numbers.Mostly<int>({0, -1, -2, -5}, {1, -6, 100, INT32_MIN}));
  }
  const CUstream made = stream.Or(nullptr);
  if (made == nullptr) return;
  NameHandle(made, "made");
  AskStream(made);
  for (int change = 0; change < 2; ++change) {
    const int attribute = AnyStreamAttribute();
    CUlaunchAttributeValue value = AnyStreamValue(attribute);
    CALL(cuStreamSetAttribute, made, attribute, As(&value, ShowAttribute(attribute, value)));
    FillPattern(&value);
    CALL(cuStreamGetAttribute, made, attribute, As(&value, "value"));
    Note("value: " + ShowAttribute(attribute, value));
  }
  if (numbers.Chance(20)) CALL(cuStreamCopyAttributes, As(fix.blocking, "blocking"), made);
  CALL(cuStreamDestroy, made);
  NameHandle(made, nullptr);
}

void UseStream() {
  const Named<CUstream> stream = AnyStream();
  Settle();
  switch (numbers.Below(8)) {
    case 0:
      CALL(cuStreamQuery, stream);
      break;
    case 1:
      CALL(cuStreamSynchronize, stream);
      break;
    case 2:
      CALL(cuStreamWaitEvent, stream, AnyEvent(), numbers.Mostly<unsigned>({0}, {1, 2}, 25));
      break;
    case 3:
      CALL(cuStreamAddCallback, stream, As(&StreamNothing, "callback"), nullptr,
           numbers.Mostly<unsigned>({0}, {1}));
      break;
    case 4:
      CALL(cuLaunchHostFunc, stream, As(&DoNothing, "function"), nullptr);
      break;
    case 5: {
      Out<CUstreamCaptureStatus> status("status");
      CALL(cuStreamIsCapturing, stream, status.MaybeNull());
      break;
    }
    default:
      AskStream(stream.value);
  }
  Settle();
}

void AttachMemory() {
  Out<CUdeviceptr> memory("memory");
  CALL(cuMemAllocManaged, memory, 64 * kKiB, numbers.Pick<unsigned>({1, 2}));
  const CUdeviceptr made = memory.Or(0);
  if (made == 0) return;
  for (int change = 0; change < 3; ++change)
    CALL(cuStreamAttachMemAsync, AnyStream(),
         As(made + numbers.Mostly<unsigned>({0}, {4096}), "managed"),
         numbers.Mostly<std::size_t>({0, 64 * kKiB}, {1, 4096, 128 * kKiB}),
         numbers.Mostly<unsigned>({1, 2, 4}, {0, 3, 8, UINT32_MAX}));
  CALL(cuStreamAttachMemAsync, As(fix.stream, "stream"), At(fix.device_memory, 0), 0, 1);
  Settle();
  cuMemFree(made);
}

// All words of the memory are the same, so that no wait can hang: what it waits for is there,
// wherever its address is.
constexpr std::uint32_t kWord = 0x05050505;

std::uint64_t AwaitedValue(unsigned comparison, bool wide) {
  const std::uint64_t word = wide ? std::uint64_t{kWord} << 32 | kWord : kWord;
  switch (comparison & 3) {
    case 0:  // at least
      return numbers.Pick<std::uint64_t>({0, word});
    case 1:  // equal
      return word;
    case 2:  // any common bit
      return numbers.Pick<std::uint64_t>({4, word});
    default:  // nor: some bit is in neither
      return 0;
  }
}

// Managed and unknown memory are not for values: a wait could hang.
Named<CUdeviceptr> ValuePlace() {
  const Named<CUdeviceptr> usual =
      At(fix.second, numbers.Mostly<std::int64_t>({0, 8, 64}, {1, 2, 4, 7}));
  const Named<CUdeviceptr> other = numbers.Pick<Named<CUdeviceptr>>(
      {At(fix.pinned, 8), At(fix.mapped, 8), At(fix.pooled, 8), At(fix.registered, 8)});
  return numbers.Chance(80) ? usual : other;
}

void ResetValues() {
  for (const Region* region : {&fix.device_memory, &fix.second, &fix.mapped, &fix.pooled})
    cuMemsetD8(region->base, kWord & 0xff, region->size);
  for (const Region* region : {&fix.pinned, &fix.registered})
    if (region->base != 0)
      std::memset(reinterpret_cast<void*>(region->base), kWord & 0xff, region->size);
  Settle();
}

void NoteValues() {
  std::uint64_t words[16] = {};
  std::string text = "values:";
  for (const Region* region :
       {&fix.second, &fix.mapped, &fix.pooled, &fix.pinned, &fix.registered}) {
    const CUresult result =
        cuMemcpy(reinterpret_cast<CUdeviceptr>(words), region->base, sizeof words);
    if (result != CUDA_SUCCESS) text += " " + ErrorName(result);
    text += Format(" %llx", static_cast<unsigned long long>(Digest(words, sizeof words)));
  }
  Note(text);
}

unsigned AnyComparison() {
  return numbers.Mostly<unsigned>({0, 1, 2, 3}, {4, 8, 1u << 30, 1u << 31, (1u << 30) | 1}, 15);
}

void OneValue() {
  const Named<CUdeviceptr> place = ValuePlace();
  const Named<CUstream> stream = AnyStream();
  const auto value = static_cast<std::uint32_t>(numbers.Next());
  const unsigned flags = numbers.Mostly<unsigned>({0}, {1, 1, 2, 4, UINT32_MAX}, 25);
  const unsigned comparison = AnyComparison();
  switch (numbers.Below(4)) {
    case 0:
      CALL(cuStreamWriteValue32, stream, place, value, flags);
      break;
    case 1:
      CALL(cuStreamWriteValue64, stream, place, std::uint64_t{value} << 20, flags);
      break;
    case 2:
      CALL(cuStreamWaitValue32, stream, place,
           static_cast<std::uint32_t>(AwaitedValue(comparison, false)), comparison);
      break;
    default:
      CALL(cuStreamWaitValue64, stream, place, AwaitedValue(comparison, true), comparison);
  }
}

void ValueBatch() {
  CUstreamBatchMemOpParams list[4] = {};
  const unsigned count = numbers.Mostly<unsigned>({1, 2, 3}, {0, 4}, 10);
  std::string text;
  for (unsigned i = 0; i < 4; ++i) {
    const int type = numbers.Mostly<int>({1, 2, 4, 5, 2, 5, 6}, {0, 3, 7, -1}, 15);
    list[i].operation = static_cast<CUstreamBatchMemOpType>(type);
    Named<CUdeviceptr> place = ValuePlace();
    if (type == 1 || type == 4) {
      // Nothing of the list writes there, so that the wait ends.
      place = At(fix.device_memory, static_cast<std::int64_t>(i * 16));
      list[i].waitValue.address = place.value;
      list[i].waitValue.flags = AnyComparison();
      list[i].waitValue.value64 = AwaitedValue(list[i].waitValue.flags, type == 4);
    } else if (type == 2 || type == 5) {
      list[i].writeValue.address = place.value;
      list[i].writeValue.flags = numbers.Mostly<unsigned>({0}, {1, 2, 8});
      list[i].writeValue.value64 = numbers.Below(1000);
    } else if (type == 3 || type == 6) {
      list[i].flushRemoteWrites.flags = numbers.Mostly<unsigned>({0}, {1, 2, 8});
    }
    if (i < count) text += Format("%d:", type) + place.text + " ";
  }
  CALL(cuStreamBatchMemOp, AnyStream(), count, As(list, "{" + text + "}"),
       numbers.Mostly<unsigned>({0}, {1, 4}));
}

void OneEvent() {
  Out<CUevent> event("made");
  const unsigned flags =
      numbers.Mostly<unsigned>({0, 1, 2, 3, 6}, {4, 5, 7, 8, 16, UINT32_MAX}, 20);
  CALL(cuEventCreate, event.MaybeNull(), flags);
  const CUevent made = event.Or(nullptr);
  if (made == nullptr) return;
  NameHandle(made, "made");
  Out<float> time("time", Shown::kHidden);
  if (numbers.Chance(30)) CALL(cuEventElapsedTime, time, made, made);
  CALL(cuEventQuery, made);
  if (numbers.Chance(50)) {
    CALL(cuEventRecord, made, AnyStream());
  } else {
    CALL(cuEventRecordWithFlags, made, AnyStream(), numbers.Mostly<unsigned>({0}, {1, 2}, 30));
  }
  CALL(cuEventSynchronize, made);
  CALL(cuEventQuery, made);
  CALL(cuEventElapsedTime, time.MaybeNull(), numbers.Pick<CUevent>({made, fix.event, fix.untimed}),
       numbers.Pick<CUevent>({made, fix.event, fix.untimed}));
  CALL(cuStreamWaitEvent, AnyStream(), made, numbers.Mostly<unsigned>({0}, {1, 2}));
  CALL(cuEventDestroy, made);
  NameHandle(made, nullptr);
}

// What one may not do during a capture, and what one may.
void CallWhileCapturing(CUstream stream) {
  Out<CUdeviceptr> memory("memory");
  Out<CUstreamCaptureStatus> status("status");
  Out<cuuint64_t> id("id", Shown::kHidden);
  Out<CUgraph> graph("graph");
  Out<std::size_t> count("count");
  // An empty list may begin at any address.
  Out<const CUgraphNode*> nodes("nodes", Shown::kHidden);
  Out<const CUgraphEdgeData*> edges("edges", Shown::kHidden);
  void* parameters[2];
  CUdeviceptr out = fix.second.base;
  unsigned value = 3;
  parameters[0] = &out;
  parameters[1] = &value;
  switch (numbers.Below(20)) {
    case 0:
      CALL(cuMemcpyHtoDAsync, At(fix.second, 0), At(fix.pinned, 0), 64, stream);
      break;
    case 1:
      CALL(cuMemsetD8Async, At(fix.second, 0), 1, numbers.Mostly<std::size_t>({64}, {0, SIZE_MAX}),
           stream);
      break;
    case 2:
      CALL(cuLaunchKernel, As(fix.store, "store"), 1, 1, 1, 1, 1, 1, 0, stream,
           As(parameters, "params"), nullptr);
      break;
    case 3:
      CALL(cuStreamSynchronize, stream);
      break;
    case 4:
      CALL(cuStreamQuery, stream);
      break;
    case 5:
      CALL(cuMemAlloc, memory, 4096);
      if (memory.Or(0) != 0) cuMemFree(memory.value);
      break;
    case 6:
      CALL(cuCtxSynchronize);
      break;
    case 7:
      CALL(cuMemcpyHtoD, At(fix.second, 0), At(fix.host, 0), 64);
      break;
    case 8:
      CALL(cuEventRecord, As(fix.untimed, "untimed"), stream);
      break;
    case 9:
      CALL(cuEventQuery, As(fix.untimed, "untimed"));
      break;
    case 10:
      CALL(cuStreamWaitEvent, stream, AnyEvent(), numbers.Pick<unsigned>({0, 1}));
      break;
    case 11:
      CALL(cuEventRecordWithFlags, As(fix.event, "event"), stream, 1);
      break;
    case 12:
      CALL(cuStreamGetCaptureInfo, stream, status, id, graph, nodes, edges, count);
      break;
    case 13:
      CALL(cuLaunchHostFunc, stream, As(&DoNothing, "function"), nullptr);
      break;
    case 14:
      CALL(cuLaunchKernel, As(fix.nothing, "nothing"), 1, 1, 1, 1, 1, 1, 0,
           As(fix.blocking, "blocking"), nullptr, nullptr);
      break;
    case 15:
      CALL(cuLaunchKernel, As(fix.nothing, "nothing"), 1, 1, 1, 1, 1, 1, 0,
           numbers.Pick<CUstream>({nullptr, CU_STREAM_LEGACY}), nullptr, nullptr);
      break;
    case 16:
      CALL(cuStreamIsCapturing, numbers.Pick<CUstream>({stream, fix.blocking, nullptr}), status);
      break;
    case 17:
      CALL(cuStreamUpdateCaptureDependencies, stream, nullptr, nullptr, 0,
           numbers.Mostly<unsigned>({0, 1}, {2}));
      break;
    case 18:
      CALL(cuMemAllocAsync, memory, 4096, stream);
      if (memory.Or(0) != 0) CALL(cuMemFreeAsync, As(memory.value, "memory"), stream);
      break;
    default:
      CALL(cuMemFree, As<CUdeviceptr>(0, "null"));
  }
}

void OneCapture() {
  const CUstream stream = numbers.Mostly<CUstream>(
      {fix.stream, fix.blocking}, {nullptr, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}, 8);
  if (numbers.Chance(30)) {
    Out<CUstreamCaptureMode> mode("mode");
    mode.value = static_cast<CUstreamCaptureMode>(numbers.Mostly<int>({0, 1, 2}, {3, -1}, 20));
    Note("mode: " + Show(mode.value));
    CALL(cuThreadExchangeStreamCaptureMode, mode);
  }
  CUgraph to = nullptr;
  if (numbers.Chance(20)) {
    cuGraphCreate(&to, 0);
    NameHandle(to, "to");
    CALL(cuStreamBeginCaptureToGraph, stream, to, nullptr, nullptr, 0,
         numbers.Mostly<int>({0, 1, 2}, {3}));
  } else {
    CALL(cuStreamBeginCapture, stream, numbers.Mostly<int>({0, 1, 2}, {3, -1}, 8));
  }
  if (numbers.Chance(5)) CALL(cuStreamBeginCapture, stream, 0);
  for (std::uint64_t calls = numbers.Below(5); calls > 0; --calls) CallWhileCapturing(stream);
  Out<CUgraph> graph("graph"), wrong("graph");
  if (numbers.Chance(15)) CALL(cuStreamEndCapture, As(fix.blocking, "blocking"), wrong);
  CALL(cuStreamEndCapture, stream, graph);
  CUgraph made = graph.Or(nullptr);
  if (made == nullptr) made = wrong.Or(nullptr);
  if (made != nullptr) {
    Out<std::size_t> nodes("nodes"), edges("edges");
    CALL(cuGraphGetNodes, made, nullptr, nodes);
    CALL(cuGraphGetEdges, made, nullptr, nullptr, nullptr, edges);
    Out<CUgraphExec> exec("exec");
    CALL(cuGraphInstantiate, exec, made, 0);
    if (exec.Or(nullptr) != nullptr) {
      CALL(cuGraphLaunch, exec.value, As(fix.stream, "stream"));
      CALL(cuStreamSynchronize, As(fix.stream, "stream"));
      CALL(cuGraphExecDestroy, exec.value);
    }
    if (made != to) CALL(cuGraphDestroy, made);
  }
  if (to != nullptr) {
    CALL(cuGraphDestroy, to);
    NameHandle(to, nullptr);
  }
  // Nothing of this round goes on into the next.
  CUgraph left = nullptr;
  for (const CUstream used : {fix.stream, fix.blocking, CU_STREAM_PER_THREAD}) {
    if (cuStreamEndCapture(used, &left) == CUDA_SUCCESS && left != nullptr) cuGraphDestroy(left);
    left = nullptr;
  }
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  cuThreadExchangeStreamCaptureMode(&mode);
  cuEventRecord(fix.untimed, fix.stream);
  cuEventRecord(fix.event, fix.stream);
  Settle();
}

}  // namespace

void Streams() {
  while (NextRound(120)) {
    switch (numbers.Below(10)) {
      case 0:
      case 1:
      case 2:
        OneStream();
        break;
      case 3:
        AttachMemory();
        break;
      default:
        UseStream();
    }
  }
  CALL(cuStreamDestroy, As<CUstream>(nullptr, "null"));
}

void StreamMemory() {
  while (NextRound(150)) {
    ResetValues();
    if (numbers.Chance(70)) {
      OneValue();
    } else {
      ValueBatch();
    }
    Settle();
    NoteValues();
  }
}

void Events() {
  while (NextRound(60)) {
    OneEvent();
  }
  const auto none = As<CUevent>(nullptr, "null");
  Out<float> time("time");
  CALL(cuEventQuery, none);
  CALL(cuEventSynchronize, none);
  CALL(cuEventDestroy, none);
  CALL(cuEventElapsedTime, time, none, As(fix.event, "event"));
}

void Captures() {
  while (NextRound(100)) {
    OneCapture();
  }
}

}  // namespace sweep
