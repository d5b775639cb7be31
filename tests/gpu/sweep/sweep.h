// Random calls of the driver API that print their arguments, results and outputs, so that two runs
// of one seed can be compared line by line. What differs between two runs on one machine
// (addresses, ids, times, free memory) is not printed.
#pragma once

// The sweep calls deprecated functions, too.
#define CUDA_ENABLE_DEPRECATED
#include <cuda.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

// Calls a function of the driver and prints a line. Arguments are numbers, handles, strings, Named
// values and Outs.
#define CALL(function, ...) ::sweep::Call(#function, function, ##__VA_ARGS__)

namespace sweep {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr int kPattern = 0xa5;

// Every round of a family begins with a number that its seed, family and index give. A call that
// fails in one of two runs therefore changes at most the rest of its round.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next();
  std::uint64_t Below(std::uint64_t end) { return Next() % end; }
  bool Chance(int percent) { return static_cast<int>(Below(100)) < percent; }
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Below(values.size())];
  }
  // One of `odd` in `percent` of all cases.
  template <typename T>
  T Mostly(std::initializer_list<T> good, std::initializer_list<T> odd, int percent = 12) {
    const bool is_odd = Chance(percent);
    const std::uint64_t number = Next();
    return is_odd ? odd.begin()[number % odd.size()] : good.begin()[number % good.size()];
  }

 private:
  std::uint64_t state_;
};

extern Random numbers;

// The rounds that the process does. The others are left out.
struct RoundRange {
  int first = 1;
  int last = INT_MAX;
};
// The exit code of a process whose context is lost, natively or not.
constexpr int kContextLost = 3;

void BeginFamily(const char* name, std::uint64_t seed, RoundRange rounds);
// Begins the next round of the family. Returns false after the last of `count` rounds. Ends the
// process with kContextLost if the work of the round before has left an error that stays.
bool NextRound(int count);
// Prints a line that is no call: what the calls before it left behind.
void Note(const std::string& text);
std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string ErrorName(CUresult result);
std::uint64_t Digest(const void* bytes, std::size_t size);

// A value and how a line shows it.
template <typename T>
struct Named {
  T value;
  std::string text;
};

template <typename T>
Named<T> As(T value, std::string text) {
  return {value, std::move(text)};
}

// Memory that a line can name. `base` is 0 where it could not be made.
struct Region {
  std::string name;
  CUdeviceptr base;
  std::size_t size;
};

void AddRegion(const Region& region);
void RemoveRegion(const std::string& name);
// Names a handle in lines, or takes its name back (null).
void NameHandle(const void* handle, const char* name);
Named<CUdeviceptr> At(const Region& region, std::int64_t offset);

// How values look in a line. All bytes of the pattern: `untouched`.
std::string Show(unsigned long long address);
std::string Show(const void* handle);
std::string Show(const char* text);
std::string Show(float value);
std::string Show(double value);
std::string Show(const CUDA_ARRAY_DESCRIPTOR& value);
std::string Show(const CUDA_ARRAY3D_DESCRIPTOR& value);
std::string Show(const CUDA_RESOURCE_DESC& value);
std::string Show(const CUDA_TEXTURE_DESC& value);
std::string Show(const CUDA_RESOURCE_VIEW_DESC& value);
std::string Show(const CUDA_ARRAY_SPARSE_PROPERTIES& value);
std::string Show(const CUDA_ARRAY_MEMORY_REQUIREMENTS& value);
std::string Show(const CUDA_MEMCPY2D& value);
std::string Show(const CUDA_MEMCPY3D& value);
std::string Show(const CUDA_MEMCPY3D_PEER& value);
std::string Show(const CUmemLocation& value);
std::string Show(const CUmemAccessDesc& value);
std::string Show(const CUmemPoolProps& value);
std::string Show(const CUmemAllocationProp& value);
std::string Show(const CUDA_KERNEL_NODE_PARAMS& value);
std::string Show(const CUDA_MEMSET_NODE_PARAMS& value);
std::string Show(const CUDA_HOST_NODE_PARAMS& value);
std::string Show(const CUDA_MEM_ALLOC_NODE_PARAMS& value);
std::string Show(const CUDA_BATCH_MEM_OP_NODE_PARAMS& value);
std::string Show(const CUgraphExecUpdateResultInfo& value);
std::string Show(const CUgraphEdgeData& value);
std::string Show(const CUdevprop& value);
std::string Show(const CUexecAffinityParam& value);
std::string Show(const CUdevResource& value);

template <typename T>
bool IsUntouched(const T& value) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
  for (std::size_t i = 0; i < sizeof value; ++i)
    if (bytes[i] != kPattern) return false;
  return true;
}

template <typename T,
          typename = std::enable_if_t<std::is_integral<T>::value || std::is_enum<T>::value>>
std::string Show(T value) {
  if (sizeof(T) >= 4 && IsUntouched(value)) return "untouched";
  const auto number = static_cast<long long>(value);
  if (std::is_signed<T>::value) return Format("%lld", number);
  return Format(number >= 0 && number < 65536 ? "%lld" : "0x%llx", number);
}

template <typename T>
void FillPattern(T* value) {
  std::memset(static_cast<void*>(value), kPattern, sizeof *value);
}

// Outputs begin with the pattern, because it matters what a failed call leaves there.
enum class Shown { kValue, kHidden };

template <typename T>
struct Out {
  explicit Out(const char* name, Shown shown = Shown::kValue) : name(name), shown(shown) {
    FillPattern(&value);
  }
  // A null pointer instead, once in a while.
  Out& MaybeNull() {
    null = numbers.Chance(4);
    return *this;
  }
  // The output if there is one: natively failed calls may leave anything.
  T Or(T other) const { return null || IsUntouched(value) ? other : value; }

  T value;
  const char* name;
  Shown shown;
  bool null = false;
};

template <typename T>
std::string ArgumentText(const Named<T>& argument) {
  return argument.text;
}
template <typename T>
std::string ArgumentText(const Out<T>& argument) {
  return argument.null ? "null" : std::string("&") + argument.name;
}
template <typename T>
std::string ArgumentText(const T& argument) {
  return Show(argument);
}
inline std::string ArgumentText(std::nullptr_t) { return "null"; }

template <typename T>
std::string OutputText(const T&) {
  return {};
}
template <typename T>
std::string OutputText(const Out<T>& out) {
  if (out.null) return {};
  std::string text = std::string(" ") + out.name + "=";
  if (IsUntouched(out.value)) return text + "untouched";
  return text + (out.shown == Shown::kHidden ? "set" : Show(out.value));
}

template <typename T>
T Pass(const Named<T>& argument) {
  return argument.value;
}
template <typename T>
T* Pass(Out<T>& argument) {
  return argument.null ? nullptr : &argument.value;
}
template <typename T>
T Pass(const T& argument) {
  return argument;
}

inline const char* Pass(const char* argument) { return argument; }

// Print the two parts of a line. The first part of a call that crashes remains.
void BeginCall(const char* name, const std::string& arguments);
void EndCall(CUresult result, const std::string& outputs);
// Calls now or, if UseHostFunctions() was called, half of the time in a host function of a stream
// that has no other work. Returns after the call.
void Perform(const std::function<void()>& call);
void UseHostFunctions();

template <typename... P, typename... A>
CUresult Call(const char* name, CUresult (*function)(P...), A&&... arguments) {
  std::string text;
  for (const std::string& argument :
       std::initializer_list<std::string>{ArgumentText(arguments)...}) {
    if (!text.empty()) text += ", ";
    text += argument;
  }
  BeginCall(name, text);
  CUresult result;
  Perform([&] { result = function((P)(Pass(arguments))...); });
  std::string outputs;
  for (const std::string& output : std::initializer_list<std::string>{OutputText(arguments)...})
    outputs += output;
  EndCall(result, outputs);
  return result;
}

// A pointer to a structure that the line shows.
template <typename T>
Named<T*> Ref(T& value) {
  return {&value, "{" + Show(value) + "}"};
}
template <typename T>
Named<T*> RefOrNull(T& value) {
  return numbers.Chance(3) ? Named<T*>{nullptr, "null"} : Ref(value);
}

// What all families use. A fixture that cannot be made is null, and a line says so.
struct Fixtures {
  CUdevice device = 0;
  CUcontext context = nullptr;
  Region device_memory{"dev", 0, 256 * kKiB};
  Region second{"second", 0, 64 * kKiB};
  Region pinned{"pinned", 0, 256 * kKiB};
  Region managed{"managed", 0, 256 * kKiB};
  Region registered{"registered", 0, 256 * kKiB};
  Region pooled{"pooled", 0, 64 * kKiB};
  Region mapped{"mapped", 0, 2 * kMiB};
  Region host{"host", 0, 4 * kMiB};
  CUstream stream = nullptr;
  CUstream blocking = nullptr;
  CUevent event = nullptr;
  CUevent untimed = nullptr;
  CUmodule module = nullptr;
  CUfunction nothing = nullptr;
  CUfunction store = nullptr;
  CUfunction many = nullptr;
  CUfunction with_shared = nullptr;
};

extern Fixtures fix;
extern const char kPtx[];

void MakeFixtures();

// Pools of values.
Named<CUdeviceptr> AnyPointer();
// A place inside of a region.
Named<CUdeviceptr> Somewhere(const Region& region);
Named<CUstream> AnyStream();
Named<CUevent> AnyEvent();
// Sizes around `normal`, and absurd ones.
std::size_t AnySize(std::size_t normal);
// Mostly flags below `known`, which is a mask; sometimes others.
unsigned AnyFlags(unsigned known);
int AnyDevice();
Named<CUfunction> AnyFunction();
CUmemLocation AnyLocation();
// Numbers without a meaning.
std::uint64_t AnyNumber();
// Waits until all work is done; prints an error.
void Settle();

// Families.
void Devices();
void Contexts();
void WithoutContext();
void Memory();
void Managed();
void Pointers();
void Copies();
void Copies2D();
void Copies3D();
void CopyBatches();
void Memsets();
void Arrays();
void Textures();
void Streams();
void StreamMemory();
void Events();
void Captures();
void Functions();
void Launches();
void LaunchAttributes();
void OldLaunches();
void Occupancy();
void Libraries();
void Linking();
void Entries();
void Errors();
void Graphs();
void GraphNodes();
void GraphUpdates();
void GraphMemory();
void UserObjects();
void Pools();
void VirtualMemory();
void Sharing();
void TensorMaps();
void Resources();

}  // namespace sweep
