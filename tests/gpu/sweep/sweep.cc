#include "tests/gpu/sweep/sweep.h"

#include <cstdarg>
#include <future>
#include <map>

namespace sweep {

Random numbers(0);
Fixtures fix;

namespace {

std::string family;
std::uint64_t family_seed = 0;
RoundRange rounds;
int round_number = 0;
int step = 0;
std::string line;
std::vector<Region> regions;
std::map<const void*, std::string> handles;
CUstream host_functions = nullptr;  // null: calls are made in no host function

std::string Key() { return Format("%s %d.%d", family.c_str(), round_number, ++step); }

std::string ShowLocation(const CUmemLocation& location) {
  return Format("%d:%d", static_cast<int>(location.type), location.id);
}

std::string ShowPlace(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array,
                      std::size_t pitch) {
  std::string text = "type=" + Show(type);
  if (host != nullptr) text += " host=" + Show(reinterpret_cast<CUdeviceptr>(host));
  if (device != 0) text += " device=" + Show(device);
  if (array != nullptr) text += " array=" + Show(static_cast<const void*>(array));
  return text + " pitch=" + Show(pitch);
}

template <typename T>
std::string Show3D(const T& copy) {
  return "src: " +
         ShowPlace(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray, copy.srcPitch) +
         " height=" + Show(copy.srcHeight) + " at " + Show(copy.srcXInBytes) + "," +
         Show(copy.srcY) + "," + Show(copy.srcZ) + " lod=" + Show(copy.srcLOD) + " dst: " +
         ShowPlace(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray, copy.dstPitch) +
         " height=" + Show(copy.dstHeight) + " at " + Show(copy.dstXInBytes) + "," +
         Show(copy.dstY) + "," + Show(copy.dstZ) + " lod=" + Show(copy.dstLOD) + " " +
         Show(copy.WidthInBytes) + "x" + Show(copy.Height) + "x" + Show(copy.Depth);
}

}  // namespace

std::uint64_t Random::Next() {
  state_ += 0x9e3779b97f4a7c15;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

std::string Format(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

std::uint64_t Digest(const void* bytes, std::size_t size) {
  const auto* byte = static_cast<const unsigned char*>(bytes);
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < size; ++i) hash = (hash ^ byte[i]) * 0x100000001b3;
  return hash;
}

void BeginFamily(const char* name, std::uint64_t seed, RoundRange wanted) {
  family = name;
  family_seed = seed ^ Digest(name, std::strlen(name));
  rounds = wanted;
  round_number = rounds.first - 1;
  step = 0;
  numbers = Random(family_seed);
}

bool NextRound(int count) {
  const CUresult left = cuCtxSynchronize();
  // The errors that make a context useless, from cudaErrorIllegalAddress on.
  if (left == CUDA_ERROR_ASSERT ||
      (left >= CUDA_ERROR_HARDWARE_STACK_ERROR && left <= CUDA_ERROR_LAUNCH_FAILED) ||
      left == CUDA_ERROR_ILLEGAL_ADDRESS) {
    Note("the context is lost: " + ErrorName(left));
    std::fflush(stdout);
    std::_Exit(kContextLost);
  }
  if (round_number >= count || round_number >= rounds.last) return false;
  ++round_number;
  step = 0;
  numbers = Random(family_seed + static_cast<std::uint64_t>(round_number) * 0x632be59bd9b4e019);
  return true;
}

void Note(const std::string& text) { std::printf("%s: %s\n", Key().c_str(), text.c_str()); }

std::string ErrorName(CUresult result) {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return Format("error %d", static_cast<int>(result));
}

void BeginCall(const char* name, const std::string& arguments) {
  line = Key() + " " + name + "(" + arguments + ")";
  // The begun line is out before the call: after a crash it shows which call it was.
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

void UseHostFunctions() {
  if (cuStreamCreate(&host_functions, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
    Note("there is no stream for host functions");
}

void Perform(const std::function<void()>& call) {
  // The line decides, so that the arguments are those of a run without host functions.
  if (host_functions == nullptr || Digest(line.data(), line.size()) % 2 == 0) return call();
  std::fputs(" [host function]", stdout);
  std::fflush(stdout);
  struct Task {
    const std::function<void()>* call;
    std::promise<void> done;
  } task{&call, {}};
  const auto run = [](void* data) {
    auto* task = static_cast<Task*>(data);
    (*task->call)();
    task->done.set_value();
  };
  if (cuLaunchHostFunc(host_functions, run, &task) != CUDA_SUCCESS) return call();
  task.done.get_future().wait();
}

void EndCall(CUresult result, const std::string& outputs) {
  std::printf(" = %s%s\n", ErrorName(result).c_str(), outputs.c_str());
}

void AddRegion(const Region& region) {
  RemoveRegion(region.name);
  if (region.base != 0) regions.push_back(region);
}

void RemoveRegion(const std::string& name) {
  for (std::size_t i = 0; i < regions.size(); ++i)
    if (regions[i].name == name) {
      regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
}

void NameHandle(const void* handle, const char* name) {
  if (name == nullptr) {
    handles.erase(handle);
  } else if (handle != nullptr) {
    handles[handle] = name;
  }
}

Named<CUdeviceptr> At(const Region& region, std::int64_t offset) {
  const char* sign = offset < 0 ? "-" : "+";
  const auto distance = static_cast<unsigned long long>(offset < 0 ? -offset : offset);
  std::string text = region.name;
  if (offset != 0) text += sign + Format("0x%llx", distance);
  if (region.base == 0) return {0, text + "(missing)"};
  return {region.base + static_cast<std::uint64_t>(offset), text};
}

std::string Show(unsigned long long address) {
  if (address == 0) return "null";
  if (IsUntouched(address)) return "untouched";
  for (const Region& region : regions)
    if (address >= region.base && address < region.base + region.size)
      return At(region, static_cast<std::int64_t>(address - region.base)).text;
  return "set";
}

std::string Show(const void* handle) {
  if (handle == nullptr) return "null";
  if (IsUntouched(handle)) return "untouched";
  const auto found = handles.find(handle);
  if (found != handles.end()) return found->second;
  return Show(reinterpret_cast<unsigned long long>(handle));
}

std::string Show(const char* text) {
  if (text == nullptr) return "null";
  if (IsUntouched(text)) return "untouched";
  return "\"" + std::string(text) + "\"";
}

std::string Show(float value) { return IsUntouched(value) ? "untouched" : Format("%.9g", value); }
std::string Show(double value) { return IsUntouched(value) ? "untouched" : Format("%.17g", value); }

std::string Show(const CUDA_ARRAY_DESCRIPTOR& value) {
  return Show(value.Width) + "x" + Show(value.Height) + " format=" + Show(value.Format) +
         " channels=" + Show(value.NumChannels);
}

std::string Show(const CUDA_ARRAY3D_DESCRIPTOR& value) {
  return Show(value.Width) + "x" + Show(value.Height) + "x" + Show(value.Depth) +
         " format=" + Show(value.Format) + " channels=" + Show(value.NumChannels) +
         " flags=" + Show(value.Flags);
}

std::string Show(const CUDA_RESOURCE_DESC& value) {
  std::string text = "type=" + Show(value.resType);
  if (value.resType == CU_RESOURCE_TYPE_ARRAY)
    text += " array=" + Show(static_cast<const void*>(value.res.array.hArray));
  if (value.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    text += " mipmap=" + Show(static_cast<const void*>(value.res.mipmap.hMipmappedArray));
  if (value.resType == CU_RESOURCE_TYPE_LINEAR)
    text += " at " + Show(value.res.linear.devPtr) + " format=" + Show(value.res.linear.format) +
            " channels=" + Show(value.res.linear.numChannels) +
            " size=" + Show(value.res.linear.sizeInBytes);
  if (value.resType == CU_RESOURCE_TYPE_PITCH2D)
    text += " at " + Show(value.res.pitch2D.devPtr) + " format=" + Show(value.res.pitch2D.format) +
            " channels=" + Show(value.res.pitch2D.numChannels) + " " +
            Show(value.res.pitch2D.width) + "x" + Show(value.res.pitch2D.height) +
            " pitch=" + Show(value.res.pitch2D.pitchInBytes);
  return text + " flags=" + Show(value.flags);
}

std::string Show(const CUDA_TEXTURE_DESC& value) {
  std::string text = "address=";
  for (const CUaddress_mode mode : value.addressMode) text += Show(mode) + ",";
  text += " filter=" + Show(value.filterMode) + " flags=" + Show(value.flags) +
          " anisotropy=" + Show(value.maxAnisotropy) + " mipmap=" + Show(value.mipmapFilterMode) +
          "," + Show(value.mipmapLevelBias) + "," + Show(value.minMipmapLevelClamp) + "," +
          Show(value.maxMipmapLevelClamp) + " border=";
  for (const float part : value.borderColor) text += Show(part) + ",";
  for (const int part : value.reserved)
    if (part != 0) return text + " reserved=" + Show(part);
  return text;
}

std::string Show(const CUDA_RESOURCE_VIEW_DESC& value) {
  return "format=" + Show(value.format) + " " + Show(value.width) + "x" + Show(value.height) + "x" +
         Show(value.depth) + " levels=" + Show(value.firstMipmapLevel) + "-" +
         Show(value.lastMipmapLevel) + " layers=" + Show(value.firstLayer) + "-" +
         Show(value.lastLayer);
}

std::string Show(const CUDA_ARRAY_SPARSE_PROPERTIES& value) {
  return "tile=" + Show(value.tileExtent.width) + "x" + Show(value.tileExtent.height) + "x" +
         Show(value.tileExtent.depth) + " tail=" + Show(value.miptailFirstLevel) + "," +
         Show(static_cast<std::size_t>(value.miptailSize)) + " flags=" + Show(value.flags);
}

std::string Show(const CUDA_ARRAY_MEMORY_REQUIREMENTS& value) {
  return "size=" + Show(value.size) + " alignment=" + Show(value.alignment);
}

std::string Show(const CUDA_MEMCPY2D& copy) {
  return "src: " +
         ShowPlace(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray, copy.srcPitch) +
         " at " + Show(copy.srcXInBytes) + "," + Show(copy.srcY) + " dst: " +
         ShowPlace(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray, copy.dstPitch) +
         " at " + Show(copy.dstXInBytes) + "," + Show(copy.dstY) + " " + Show(copy.WidthInBytes) +
         "x" + Show(copy.Height);
}

std::string Show(const CUDA_MEMCPY3D& value) {
  std::string text = Show3D(value);
  if (value.reserved0 != nullptr || value.reserved1 != nullptr) text += " reserved=set";
  return text;
}

std::string Show(const CUDA_MEMCPY3D_PEER& value) {
  return Show3D(value) + " contexts=" + Show(static_cast<const void*>(value.srcContext)) + "," +
         Show(static_cast<const void*>(value.dstContext));
}

std::string Show(const CUmemLocation& value) { return "location=" + ShowLocation(value); }

std::string Show(const CUmemAccessDesc& value) {
  return "location=" + ShowLocation(value.location) + " flags=" + Show(value.flags);
}

std::string Show(const CUmemPoolProps& value) {
  return "type=" + Show(value.allocType) + " handles=" + Show(value.handleTypes) +
         " location=" + ShowLocation(value.location) + " maxSize=" + Show(value.maxSize) +
         " usage=" + Show(value.usage);
}

std::string Show(const CUmemAllocationProp& value) {
  return "type=" + Show(value.type) + " handles=" + Show(value.requestedHandleTypes) +
         " location=" + ShowLocation(value.location) +
         " compression=" + Show(value.allocFlags.compressionType) +
         " rdma=" + Show(value.allocFlags.gpuDirectRDMACapable) +
         " usage=" + Show(value.allocFlags.usage);
}

std::string Show(const CUDA_KERNEL_NODE_PARAMS& value) {
  return "func=" + Show(static_cast<const void*>(value.func)) +
         " kern=" + Show(static_cast<const void*>(value.kern)) + " grid=" + Show(value.gridDimX) +
         "," + Show(value.gridDimY) + "," + Show(value.gridDimZ) +
         " block=" + Show(value.blockDimX) + "," + Show(value.blockDimY) + "," +
         Show(value.blockDimZ) + " shared=" + Show(value.sharedMemBytes) +
         (value.kernelParams == nullptr ? " params=null" : " params=set") +
         (value.extra == nullptr ? "" : " extra=set") +
         " ctx=" + Show(static_cast<const void*>(value.ctx));
}

std::string Show(const CUDA_MEMSET_NODE_PARAMS& value) {
  return "dst=" + Show(value.dst) + " pitch=" + Show(value.pitch) + " value=" + Show(value.value) +
         " element=" + Show(value.elementSize) + " " + Show(value.width) + "x" + Show(value.height);
}

std::string Show(const CUDA_HOST_NODE_PARAMS& value) {
  const bool untouched = IsUntouched(value.fn);
  return std::string("fn=") +
         (untouched             ? "untouched"
          : value.fn != nullptr ? "set"
                                : "null") +
         " userData=" + Show(static_cast<const void*>(value.userData));
}

std::string Show(const CUDA_MEM_ALLOC_NODE_PARAMS& value) {
  return Show(value.poolProps) + " descriptors=" + Show(value.accessDescCount) +
         " bytes=" + Show(value.bytesize) + " dptr=" + Show(value.dptr);
}

std::string Show(const CUDA_BATCH_MEM_OP_NODE_PARAMS& value) {
  return "ctx=" + Show(static_cast<const void*>(value.ctx)) + " count=" + Show(value.count) +
         " flags=" + Show(value.flags);
}

std::string Show(const CUgraphExecUpdateResultInfo& value) {
  return "result=" + Show(value.result) +
         " node=" + Show(static_cast<const void*>(value.errorNode)) +
         " from=" + Show(static_cast<const void*>(value.errorFromNode));
}

std::string Show(const CUgraphEdgeData& value) {
  return Format("%d-%d:%d", value.from_port, value.to_port, value.type);
}

std::string Show(const CUdevprop& value) {
  return Format("threads=%d block=%d,%d,%d grid=%d,%d,%d shared=%d constant=%d simd=%d pitch=%d ",
                value.maxThreadsPerBlock, value.maxThreadsDim[0], value.maxThreadsDim[1],
                value.maxThreadsDim[2], value.maxGridSize[0], value.maxGridSize[1],
                value.maxGridSize[2], value.sharedMemPerBlock, value.totalConstantMemory,
                value.SIMDWidth, value.memPitch) +
         Format("registers=%d clock=%d align=%d", value.regsPerBlock, value.clockRate,
                value.textureAlign);
}

std::string Show(const CUexecAffinityParam& value) {
  return "type=" + Show(value.type) + " sms=" + Show(value.param.smCount.val);
}

std::string Show(const CUdevResource& value) {
  return "type=" + Show(value.type) + " sms=" + Show(value.sm.smCount) +
         " least=" + Show(value.sm.minSmPartitionSize) +
         " alignment=" + Show(value.sm.smCoscheduledAlignment);
}

}  // namespace sweep
