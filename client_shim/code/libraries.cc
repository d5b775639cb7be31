#include "client_shim/code/libraries.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "client_shim/base/log.h"
#include "client_shim/code/code_choice.h"
#include "client_shim/code/nvrtc_code.h"
#include "client_shim/memory/host_memory.h"
#include "client_shim/memory/managed_mapping.h"
#include "client_shim/memory/pointer_map.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/objects/waits.h"
#include "proto/content_hash.h"
#include "proto/images/image_kind.h"
#include "proto/wire/launch.h"
#include "proto/wire/library.h"

namespace detshare::shim {
namespace {

// An image of at most this size is kept, so that it can be loaded again after its context was
// reset.
constexpr size_t kKeptImageBytes = 4 << 20;
// The images of modules are kept up to this sum, so that they can become spare libraries.
constexpr size_t kModuleImageBytes = 16 << 20;
std::atomic<size_t> module_image_bytes{0};  // relaxed: only a sum

// Takes structs and texts off the front of a reply.
class ReplyReader {
 public:
  explicit ReplyReader(std::string_view reply) : rest_(reply) {}

  template <typename T>
  bool Struct(T* value) {
    std::string_view bytes;
    if (!Bytes(sizeof(T), &bytes)) return false;
    memcpy(value, bytes.data(), sizeof(T));
    return true;
  }
  bool Bytes(uint64_t count, std::string_view* bytes) {
    if (count > rest_.size()) return false;
    *bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return true;
  }

 private:
  std::string_view rest_;
};

CUresult Malformed(Op op) {
  Log(LogLevel::kError, "detshared sent a malformed reply to %s",
      OpName(static_cast<uint16_t>(op)));
  return CUDA_ERROR_UNKNOWN;
}

float MillisecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void AppendPieces(const ImagePieces& image, std::vector<ConstBuffer>* payload, uint64_t* bytes) {
  static constexpr char kZeros[kImagePieceAlignment] = {};
  for (const std::span<const std::byte> piece : image) {
    if (const size_t over = *bytes % kImagePieceAlignment; over != 0) {
      payload->push_back({kZeros, kImagePieceAlignment - over});
      *bytes += kImagePieceAlignment - over;
    }
    payload->push_back({piece.data(), piece.size()});
    *bytes += piece.size();
  }
}

// Smaller images are sent without asking whether the daemon has them.
constexpr uint64_t kAskedImageBytes = 64 << 10;

// Needs library.mutex. Maps the managed variables of a library that was just loaded, unless another
// device has loaded them already.
CUresult AdoptManaged(Library& library, uint16_t device, const wire::cuLibraryLoadData_Reply& fixed,
                      ReplyReader& reader) {
  if (fixed.managed_count == 0 || library.managed_address != 0) return CUDA_SUCCESS;
  const bool moves = fixed.managed_file == wire::kManagedRange;
  if (moves ? !MapManagedRange({fixed.managed_address, fixed.managed_bytes})
            : !MapPinnedFile(fixed.managed_file, fixed.managed_address, fixed.managed_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  library.managed_address = fixed.managed_address;
  library.managed_bytes = fixed.managed_bytes;
  library.managed_moves = moves;
  std::vector<Allocation> variables;
  for (uint32_t i = 0; i < fixed.managed_count; ++i) {
    wire::ManagedVariable variable;
    std::string_view name, contents;
    if (!reader.Struct(&variable) || !reader.Bytes(variable.name_bytes, &name) ||
        !reader.Bytes(variable.contents_bytes, &contents) || contents.size() > variable.bytes ||
        variable.address - fixed.managed_address > fixed.managed_bytes ||
        variable.bytes > fixed.managed_bytes - (variable.address - fixed.managed_address)) {
      return Malformed(Op::cuLibraryLoadData);
    }
    memcpy(reinterpret_cast<void*>(variable.address), contents.data(), contents.size());
    library.managed.emplace(name, Global{variable.address, variable.bytes});
    Allocation allocation;
    allocation.kind = MemoryKind::kManaged;
    allocation.device = device;
    allocation.address = allocation.gpu_address = allocation.host_address = variable.address;
    allocation.bytes = variable.bytes;
    allocation.migrates = moves;
    variables.push_back(allocation);
  }
  for (const Allocation& variable : variables) pointers().Add(variable);
  return CUDA_SUCCESS;
}

// Needs library.mutex. Called before the library is unloaded from its last device.
void DropManaged(Library& library) {
  // Pages that move are gone with the mapping. Other memory the daemon has mapped, too.
  if (library.managed_address != 0 && library.managed_moves) SynchronizeContexts();
  for (const auto& [name, variable] : library.managed) {
    Allocation taken;
    pointers().Take(variable.address, MemoryKind::kManaged, &taken);
  }
  library.managed.clear();
  if (library.managed_address != 0)
    munmap(reinterpret_cast<void*>(library.managed_address), library.managed_bytes);
  library.managed_address = 0;
}

// Needs library.mutex. The library's managed variables end with its last device.
CUresult UnloadOn(Library& library, uint16_t device) {
  const auto loaded =
      std::count_if(library.ids.begin(), library.ids.end(), [](LibraryId id) { return id != 0; });
  if (loaded == 1) DropManaged(library);
  const wire::cuLibraryUnload args{library.ids[device], 0};
  std::string reply;
  return session().CallControl(Op::cuLibraryUnload, device, library.context_id, &args, sizeof(args),
                               {}, &reply);
}

// Needs library.mutex. Makes one cuLibraryLoadData call. If `jit` is not null, it gets the logs.
// Sets *unknown if the daemon does not have the image.
CUresult Request(Library& library, uint16_t device, wire::cuLibraryLoadData args,
                 std::vector<ConstBuffer> payload, JitOptions* jit, bool* unknown) {
  const auto begin = std::chrono::steady_clock::now();
  payload.push_back({library.options.data(), library.options.size() * sizeof(wire::JitOption)});
  args.context = library.context_id;
  args.maps_managed = ManagedPagesMove();
  args.jit_option_count = static_cast<uint32_t>(library.options.size());
  for (const LibraryId id : library.ids) {
    if (id != 0) args.sibling = id;
  }
  if (jit != nullptr) {
    args.info_log_bytes = jit->info_log_bytes();
    args.error_log_bytes = jit->error_log_bytes();
  }
  std::string reply;
  const CUresult result = session().CallControl(Op::cuLibraryLoadData, device, library.context_id,
                                                &args, sizeof(args), payload, &reply);
  wire::cuLibraryLoadData_Reply fixed{};
  std::string_view info, error;
  ReplyReader reader(reply);
  const bool sound = reader.Struct(&fixed) && reader.Bytes(fixed.info_log_bytes, &info) &&
                     reader.Bytes(fixed.error_log_bytes, &error);
  *unknown = sound && fixed.image_unknown != 0;
  if (*unknown || (sound && args.source == wire::kImageAsked)) return result;
  if (sound && jit != nullptr) jit->WriteBack(info, error, MillisecondsSince(begin));
  if (result != CUDA_SUCCESS) return result;
  if (!sound || fixed.library == 0) return Malformed(Op::cuLibraryLoadData);
  library.ids[device] = fixed.library;
  library.kernel_count = fixed.kernel_count;
  library.without_variables = fixed.without_variables != 0;
  const CUresult adopted = AdoptManaged(library, device, fixed, reader);
  if (adopted != CUDA_SUCCESS) {
    DropManaged(library);
    UnloadOn(library, device);
    library.ids[device] = 0;
  }
  return adopted;
}

// Needs library.mutex. Lets the daemon load the image for that device. Sends the image unless the
// daemon has it from an earlier process.
CUresult Send(Library& library, const ImagePieces& image, uint16_t device, JitOptions* jit) {
  wire::cuLibraryLoadData args{};
  std::vector<ConstBuffer> payload;
  uint64_t bytes = 0;
  AppendPieces(image, &payload, &bytes);
  if (bytes >= kMaxImageBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  bool unknown = bytes < kAskedImageBytes;
  if (!unknown) {
    std::vector<std::span<const std::byte>> whole;
    for (const ConstBuffer& piece : payload)
      whole.push_back({static_cast<const std::byte*>(piece.data), piece.bytes});
    const auto name = [&](uint32_t source, const ContentHash& hash) {
      args.source = source;
      memcpy(args.hash, hash.data(), sizeof(args.hash));
    };
    name(wire::kImageAsked, SketchOf(whole));
    const CUresult asked = Request(library, device, args, {}, nullptr, &unknown);
    if (asked != CUDA_SUCCESS) return asked;
    if (!unknown) {
      ContentHasher hasher;
      for (const auto& piece : whole) hasher.Add(piece);
      name(wire::kImageKept, hasher.Finish());
      const CUresult loaded = Request(library, device, args, {}, jit, &unknown);
      if (!unknown) return loaded;
    }
  }
  args = {};
  args.image_bytes = bytes;
  return Request(library, device, args, std::move(payload), jit, &unknown);
}

bool CanReload(const Library& library) {
  return !library.image.empty() || !library.preserved.empty();
}

// Needs library.mutex. Loads the library on that device if it is not loaded there.
CUresult EnsureLoaded(Library& library, uint16_t device) {
  if (library.ids[device] != 0) [[likely]]
    return CUDA_SUCCESS;
  if (library.failure != CUDA_SUCCESS) return library.failure;
  if (library.module || !CanReload(library)) return CUDA_ERROR_INVALID_HANDLE;
  if (!library.preserved.empty()) return Send(library, library.preserved, device, nullptr);
  return Send(library, {std::as_bytes(std::span(library.image))}, device, nullptr);
}

// Needs library.mutex. Asks the daemon for a kernel.
CUresult AskForKernel(Library& library, std::string_view name, uint16_t device,
                      KernelInstance** instance) {
  if (device == library.home_device) {
    if (const auto known = library.known.find(name); known != library.known.end()) {
      *instance = known->second;
      return CUDA_SUCCESS;
    }
  }
  if (const CUresult loaded = EnsureLoaded(library, device); loaded != CUDA_SUCCESS) return loaded;
  const wire::cuLibraryGetKernel args{library.ids[device], 0};
  const ConstBuffer payload{name.data(), name.size()};
  std::string reply;
  const CUresult result = session().CallControl(Op::cuLibraryGetKernel, device, library.context_id,
                                                &args, sizeof(args), {&payload, 1}, &reply);
  if (result != CUDA_SUCCESS) return result;
  ReplyReader reader(reply);
  wire::cuLibraryGetKernel_Reply fixed;
  if (!reader.Struct(&fixed)) return Malformed(Op::cuLibraryGetKernel);
  auto made = std::make_unique<KernelInstance>();
  made->id = fixed.kernel;
  made->parameter_bytes = fixed.param_bytes;
  for (uint32_t i = 0; i < fixed.param_count; ++i) {
    wire::KernelParameter parameter;
    if (!reader.Struct(&parameter) || parameter.offset > fixed.param_bytes ||
        parameter.bytes > fixed.param_bytes - parameter.offset) {
      return Malformed(Op::cuLibraryGetKernel);
    }
    made->parameters.push_back(parameter);
  }
  for (uint32_t i = 0; i < wire::kFunctionAttributes; ++i) {
    made->attributes[i].store(fixed.attributes[i], std::memory_order_relaxed);
  }
  *instance = made.release();  // never freed, because programs launch without a lock
  return CUDA_SUCCESS;
}

// Needs library.mutex. Makes a kernel of that name without instances.
// Returns a copy of the name that is the same for each caller.
const char* InternName(std::string_view name) {
  static std::mutex mutex;
  static auto* const names = new std::set<std::string, std::less<>>;
  const std::lock_guard lock(mutex);
  const auto known = names->find(name);
  return (known != names->end() ? known : names->emplace(name).first)->c_str();
}

Kernel* AddKernel(Library& library, std::string_view name) {
  uint32_t index;
  Kernel* kernel = code_tables().kernels.Reserve(&index);
  if (kernel == nullptr) return nullptr;
  kernel->index = index;
  kernel->library = &library;
  kernel->library_handle = library.handle;
  kernel->name = InternName(name);
  for (auto& instance : kernel->instances) instance.store(nullptr, std::memory_order_relaxed);
  kernel->handle = code_tables().kernels.Publish(HandleKind::kKernel, index);
  library.kernels.emplace(name, kernel);
  return kernel;
}

uint16_t CurrentDeviceOr(uint16_t device) {
  Context* context;
  return CurrentContext(&context) == CUDA_SUCCESS ? context->device : device;
}

// Needs library.mutex. Forgets what the library has on that device.
void DropInstance(Library& library, uint16_t device) {
  library.ids[device] = 0;
  if (device == library.home_device) library.known.clear();
  for (const auto& [name, kernel] : library.kernels) {
    kernel->instances[device].store(nullptr, std::memory_order_release);
  }
  for (auto it = library.globals.begin(); it != library.globals.end();) {
    if (it->first.first != device) {
      ++it;
      continue;
    }
    Allocation taken;
    pointers().Take(it->second.address, MemoryKind::kGlobal, &taken);
    it = library.globals.erase(it);
  }
}

// Needs library.mutex. Ends the library here. Its handle is stale already.
void Forget(Library& library) {
  DropManaged(library);
  for (uint16_t device = 0; device < kMaxDevices; ++device) DropInstance(library, device);
  for (const auto& [name, kernel] : library.kernels) {
    if (code_tables().kernels.Retire(kernel->handle)) code_tables().kernels.Recycle(kernel->index);
  }
  library.kernels.clear();
  library.names.clear();
  if (library.module) module_image_bytes.fetch_sub(library.image.size(), std::memory_order_relaxed);
  library.image = std::string();
  library.preserved.clear();
  library.options.clear();
}

size_t BytesOf(const ImagePieces& image) {
  size_t bytes = 0;
  for (const auto& piece : image) bytes += piece.size() + kImagePieceAlignment;
  return bytes;
}

std::string Joined(const ImagePieces& image) {
  std::string joined;
  for (const auto& piece : image) {
    joined.resize((joined.size() + kImagePieceAlignment - 1) / kImagePieceAlignment *
                  kImagePieceAlignment);
    joined.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return joined;
}

// Needs library.mutex. Returns whether there was a spare library of this image, with which the
// library then continues. Keeps the image of a small module, so that the module can become a spare
// library when it is unloaded.
bool AdoptSpare(Library& library, const ImagePieces& image, JitOptions& options) {
  if (BytesOf(image) > SpareLibraries::kMaxImageBytes) return false;
  std::string joined = Joined(image);
  // A program that asks for logs wants those of a compilation.
  const bool logs = options.info_log_bytes() != 0 || options.error_log_bytes() != 0;
  std::optional<SpareLibrary> spare;
  if (!logs) {
    spare =
        code_tables().spares.Take(library.home_device, library.context_id, library.options, joined);
  }
  const size_t bytes = joined.size();
  if (library.module &&
      module_image_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes <= kModuleImageBytes) {
    library.image = std::move(joined);
  } else if (library.module) {
    module_image_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  }
  if (!spare.has_value()) return false;
  library.ids[library.home_device] = spare->id;
  library.kernel_count = spare->kernel_count;
  library.without_variables = true;
  library.known = std::move(spare->instances);
  options.WriteBack({}, {}, 0);
  return true;
}

// Whether the image is machine code without a fatbin around it, and if so, whether a device of the
// given kind executes it.
enum class MachineCode { kNone, kForDevice, kForeign };
MachineCode MachineCodeIn(const ImagePieces& image, const DeviceInfo& device) {
  if (image.size() != 1) return MachineCode::kNone;
  const std::optional<images::CubinInfo> cubin = images::ReadCubinHeader(image.front());
  if (!cubin.has_value()) return MachineCode::kNone;
  return cubin->sm / 10 == device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) &&
                 cubin->sm % 10 <= device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
             ? MachineCode::kForDevice
             : MachineCode::kForeign;
}

// For a device that runs only PTX. Replaces machine code that NVRTC made for this device by its PTX.
void UsePtxOfNvrtc(const DeviceInfo& device, ImagePieces* image, std::deque<std::string>* storage) {
  if (MachineCodeIn(*image, device) != MachineCode::kForDevice) return;
  std::string ptx = nvrtc_code().PtxOf(image->front());
  if (ptx.empty()) return;
  storage->push_back(std::move(ptx));
  image->front() = std::as_bytes(std::span(storage->back()));
}

// Says what to do about code that a device cannot run because it has no PTX. Once, because a library
// may try one piece of code after the other.
void ExplainMissingPtx(const DeviceInfo& device) {
  static std::atomic_flag said = ATOMIC_FLAG_INIT;
  if (said.test_and_set(std::memory_order_relaxed)) return;
  const int sm = 10 * device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                 device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  Log(LogLevel::kError,
      "the software GPU runs PTX for sm_%d or older, and the program loads code that has none: "
      "build "
      "it with PTX (nvcc -gencode arch=compute_%d,code=compute_%d; NVRTC "
      "--gpu-architecture=compute_%d). Libraries of machine code alone, such as cuBLAS, need a "
      "real "
      "GPU",
      sm, sm, sm, sm);
}

// Needs library.mutex. None: a later load could tell the library from a new one.
std::optional<SpareLibrary> MakeSpare(const Library& library) {
  const uint16_t device = library.home_device;
  const auto loaded =
      std::count_if(library.ids.begin(), library.ids.end(), [](LibraryId id) { return id != 0; });
  if (!library.without_variables || library.altered.load(std::memory_order_relaxed) ||
      loaded != 1 || library.ids[device] == 0 || !CanReload(library)) {
    return std::nullopt;
  }
  SpareLibrary spare;
  spare.image = library.preserved.empty() ? library.image : Joined(library.preserved);
  if (spare.image.size() > SpareLibraries::kMaxImageBytes) return std::nullopt;
  spare.device = device;
  spare.context = library.context_id;
  spare.options = library.options;
  spare.id = library.ids[device];
  spare.kernel_count = library.kernel_count;
  spare.instances = library.known;
  for (const auto& [name, kernel] : library.kernels) {
    KernelInstance* const instance = kernel->instances[device].load(std::memory_order_relaxed);
    if (instance != nullptr) spare.instances.emplace(name, instance);
  }
  return spare;
}

void Unload(const SpareLibrary& spare) {
  const wire::cuLibraryUnload args{spare.id, 0};
  std::string reply;
  session().CallControl(Op::cuLibraryUnload, spare.device, spare.context, &args, sizeof(args), {},
                        &reply);
}

// Needs library.mutex. Fills library.names.
CUresult AskForNames(Library& library) {
  if (!library.names.empty() || library.kernel_count == 0) return CUDA_SUCCESS;
  const uint16_t device = library.home_device;
  if (const CUresult loaded = EnsureLoaded(library, device); loaded != CUDA_SUCCESS) return loaded;
  const wire::cuLibraryEnumerateKernels args{library.ids[device], 0};
  std::string reply;
  const CUresult result = session().CallControl(
      Op::cuLibraryEnumerateKernels, device, library.context_id, &args, sizeof(args), {}, &reply);
  if (result != CUDA_SUCCESS) return result;
  std::string_view rest = reply;
  while (!rest.empty()) {
    const size_t end = rest.find('\0');
    if (end == std::string_view::npos) return Malformed(Op::cuLibraryEnumerateKernels);
    library.names.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  if (library.module) std::reverse(library.names.begin(), library.names.end());
  return CUDA_SUCCESS;
}

}  // namespace

CodeTables& code_tables() {
  static auto* const tables = new CodeTables;
  return *tables;
}

Library* FindLibrary(CUlibrary handle) {
  Library* library =
      code_tables().libraries.Find(HandleKind::kLibrary, reinterpret_cast<uint64_t>(handle));
  return library != nullptr && !library->module ? library : nullptr;
}

Library* FindModule(CUmodule handle) {
  return code_tables().libraries.Find(HandleKind::kModule, reinterpret_cast<uint64_t>(handle));
}

CUresult LoadInstance(Kernel& kernel, uint16_t device, KernelInstance** instance) {
  Library& library = *kernel.library;
  const std::lock_guard lock(library.mutex);
  *instance = kernel.instances[device].load(std::memory_order_relaxed);
  if (*instance != nullptr) return CUDA_SUCCESS;
  const CUresult result = AskForKernel(library, kernel.name, device, instance);
  if (result != CUDA_SUCCESS) return result;
  // Release: publishes the contents of the instance.
  kernel.instances[device].store(*instance, std::memory_order_release);
  return CUDA_SUCCESS;
}

uint16_t DeviceFor(const Kernel& kernel) {
  const Library& library = *kernel.library;
  return library.module ? library.home_device : CurrentDeviceOr(library.home_device);
}

namespace {

// Needs library.mutex.
void Begin(Library& library, uint32_t index, Context* context, uint16_t device) {
  library.index = index;
  library.module = context != nullptr;
  library.context = context;
  library.context_id = context != nullptr ? context->id.load(std::memory_order_acquire) : 0;
  library.home_device = device;
  library.failure = CUDA_SUCCESS;
  library.host_table = false;
  library.without_variables = false;
  library.altered.store(false, std::memory_order_relaxed);
}

}  // namespace

bool LazyLoading() {
  const char* wish = getenv("CUDA_MODULE_LOADING");
  return wish == nullptr || strcmp(wish, "EAGER") != 0;
}

CUresult MakeFailedLibrary(CUresult failure, uint16_t device, Library** library) {
  uint32_t index;
  Library* made = code_tables().libraries.Reserve(&index);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(made->mutex);
  Begin(*made, index, nullptr, device);
  made->failure = failure;
  made->kernel_count = 0;
  made->handle = code_tables().libraries.Publish(HandleKind::kLibrary, index);
  *library = made;
  return CUDA_SUCCESS;
}

CUresult LoadLibrary(const ImagePieces& named, Context* context, uint16_t device, bool preserved,
                     JitOptions& options, Library** library) {
  ImagePieces image = named;
  std::deque<std::string> chosen;
  const CUresult choice = ChooseCode(CodeChoiceOfProcess(), &image, &chosen);
  if (choice != CUDA_SUCCESS) return choice;
  const DeviceInfo& properties = session().devices()[device];
  if (properties.ptx_only) {
    UsePtxOfNvrtc(properties, &image, &chosen);
  } else if (context != nullptr && MachineCodeIn(image, properties) == MachineCode::kForeign) {
    // Libraries report this only when a kernel is needed, and so does the daemon's driver, which loads
    // modules as libraries (seen with driver 580).
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (!chosen.empty()) preserved = false;
  uint32_t index;
  Library* made = code_tables().libraries.Reserve(&index);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    const std::lock_guard lock(made->mutex);
    Begin(*made, index, context, device);
    made->options = options.plain();
    if (!AdoptSpare(*made, image, options)) {
      if (const CUresult result = Send(*made, image, device, &options); result != CUDA_SUCCESS) {
        if (result == CUDA_ERROR_NO_BINARY_FOR_GPU && properties.ptx_only)
          ExplainMissingPtx(properties);
        Forget(*made);
        code_tables().libraries.Recycle(index);
        return result;
      }
    }
    if (!made->module && preserved) {
      made->preserved = image;
    } else if (!made->module &&
               (BytesOf(image) <= kKeptImageBytes || session().devices().size() > 1)) {
      made->image = Joined(image);
    }
    made->handle = code_tables().libraries.Publish(HandleKind::kLibrary, index);
  }
  *library = made;
  return CUDA_SUCCESS;
}

CUresult UnloadLibrary(Library& library) {
  if (!code_tables().libraries.Retire(library.handle)) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = CUDA_SUCCESS;
  {
    const std::lock_guard lock(library.mutex);
    if (std::optional<SpareLibrary> spare = MakeSpare(library); spare.has_value()) {
      const std::optional<SpareLibrary> oldest = code_tables().spares.Keep(*std::move(spare));
      if (oldest.has_value()) Unload(*oldest);
      result = session().sticky_error();
      library.ids = {};
    }
    for (uint16_t device = 0; device < kMaxDevices; ++device) {
      if (library.ids[device] == 0) continue;
      if (const CUresult unloaded = UnloadOn(library, device); result == CUDA_SUCCESS)
        result = unloaded;
      library.ids[device] = 0;
    }
    Forget(library);
  }
  code_tables().libraries.Recycle(library.index);
  session().DrainOutput();
  return result;
}

CUresult GetKernel(Library& library, std::string_view name, Kernel** kernel) {
  if (name.empty()) return CUDA_ERROR_NOT_FOUND;
  const std::lock_guard lock(library.mutex);
  if (const auto known = library.kernels.find(name); known != library.kernels.end()) {
    *kernel = known->second;
    return CUDA_SUCCESS;
  }
  const uint16_t device =
      library.module ? library.home_device : CurrentDeviceOr(library.home_device);
  KernelInstance* instance;
  if (const CUresult result = AskForKernel(library, name, device, &instance);
      result != CUDA_SUCCESS)
    return result;
  Kernel* made = AddKernel(library, name);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made->instances[device].store(instance, std::memory_order_release);
  *kernel = made;
  return CUDA_SUCCESS;
}

CUresult EnumerateKernels(Library& library, std::vector<Kernel*>* kernels) {
  const std::lock_guard lock(library.mutex);
  if (const CUresult result = AskForNames(library); result != CUDA_SUCCESS) return result;
  kernels->resize(std::min(kernels->size(), library.names.size()));
  for (size_t i = 0; i < kernels->size(); ++i) {
    const auto known = library.kernels.find(library.names[i]);
    (*kernels)[i] =
        known != library.kernels.end() ? known->second : AddKernel(library, library.names[i]);
    if ((*kernels)[i] == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult GetGlobal(Library& library, Context& context, std::string_view name, Global* global) {
  if (name.empty()) return CUDA_ERROR_NOT_FOUND;
  const uint16_t device = context.device;
  const std::lock_guard lock(library.mutex);
  const std::pair<uint16_t, std::string> key(device, name);
  if (const auto known = library.globals.find(key); known != library.globals.end()) {
    *global = known->second;
    return CUDA_SUCCESS;
  }
  if (const CUresult loaded = EnsureLoaded(library, device); loaded != CUDA_SUCCESS) return loaded;
  if (const auto found = library.managed.find(name); found != library.managed.end()) {
    *global = found->second;
    return CUDA_SUCCESS;
  }
  const wire::cuLibraryGetGlobal args{library.ids[device], 0};
  const ConstBuffer payload{name.data(), name.size()};
  std::string reply;
  const CUresult result = session().CallControl(Op::cuLibraryGetGlobal, device, library.context_id,
                                                &args, sizeof(args), {&payload, 1}, &reply);
  if (result != CUDA_SUCCESS) return result;
  wire::cuLibraryGetGlobal_Reply found;
  if (!ReplyReader(reply).Struct(&found)) return Malformed(Op::cuLibraryGetGlobal);
  *global = {found.address, found.bytes};
  library.globals.emplace(key, *global);
  // It belongs to the library and not to the context's allocations.
  Allocation allocation;
  allocation.kind = MemoryKind::kGlobal;
  allocation.device = device;
  allocation.context_handle = reinterpret_cast<uint64_t>(HandleOf(context));
  allocation.address = allocation.gpu_address = found.address;
  allocation.bytes = found.bytes;
  pointers().Add(allocation);
  return CUDA_SUCCESS;
}

CUresult GetManaged(Library& library, std::string_view name, Global* global) {
  const std::lock_guard lock(library.mutex);
  const bool loaded =
      std::any_of(library.ids.begin(), library.ids.end(), [](LibraryId id) { return id != 0; });
  if (!loaded) {
    const CUresult result = EnsureLoaded(library, library.home_device);
    if (result != CUDA_SUCCESS) return result;
  }
  const auto found = library.managed.find(name);
  if (found == library.managed.end()) return CUDA_ERROR_NOT_FOUND;
  *global = found->second;
  return CUDA_SUCCESS;
}

CUresult SetKernelAttribute(Kernel& kernel, uint16_t device, CUfunction_attribute attribute,
                            int value) {
  KernelInstance* instance;
  if (const CUresult result = InstanceOn(kernel, device, &instance); result != CUDA_SUCCESS)
    return result;
  const auto current = [&](CUfunction_attribute which) {
    return instance->attributes[which].load(std::memory_order_relaxed);
  };
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int max =
          session().device(device).attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
      if (value < 0 || value > max - current(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES))
        return CUDA_ERROR_INVALID_VALUE;
      break;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      if (value < 0) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      value = value != 0;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < CU_CLUSTER_SCHEDULING_POLICY_DEFAULT ||
          value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (current(attribute) == value) return CUDA_SUCCESS;
  kernel.library->altered.store(true, std::memory_order_relaxed);
  const wire::cuKernelSetAttribute args{instance->id, static_cast<uint32_t>(attribute), value, 0};
  const CUresult result = session().Call(Op::cuKernelSetAttribute, device, 0, args);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(instance->mutex);
  instance->attributes[attribute].store(value, std::memory_order_relaxed);
  instance->occupancy.clear();
  return CUDA_SUCCESS;
}

void RetireModules(ContextId context) {
  bool in_use[kMaxDevices] = {};
  objects().contexts.ForEach([&](Context& other) {
    if (other.id.load(std::memory_order_acquire) != 0) in_use[other.device] = true;
  });
  // The daemon unloads the spare libraries of the context.
  const auto over = [&](const SpareLibrary& spare) {
    return spare.context == 0 ? !in_use[spare.device] : spare.context == context;
  };
  for (const SpareLibrary& spare : code_tables().spares.TakeAll(over)) {
    if (spare.context == 0) Unload(spare);
  }
  code_tables().libraries.ForEach([&](Library& library) {
    std::unique_lock lock(library.mutex);
    if (library.module) {
      if (library.context_id != context || !code_tables().libraries.Retire(library.handle)) return;
      Forget(library);
      lock.unlock();
      code_tables().libraries.Recycle(library.index);
      return;
    }
    if (!CanReload(library)) return;
    for (uint16_t device = 0; device < kMaxDevices; ++device) {
      if (in_use[device] || library.ids[device] == 0) continue;
      UnloadOn(library, device);
      DropInstance(library, device);
    }
  });
}

}  // namespace detshare::shim
