// A device for tests of the server. It does every operation when it is submitted, on memory of this
// process. Its kernels do what the test says.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_graph.h"
#include "coroutine_runtime/status_cuda.h"

namespace detshare {

class InstantDevice;

class InstantSpace final : public AddressSpace {
 public:
  InstantSpace(InstantDevice& device, DeviceAddress base, uint64_t size)
      : device_(device), base_(base), size_(size) {}
  ~InstantSpace() override;

  // HeldBytes() returns it. The test sets it before other threads use the space.
  uint64_t held = 0;
  uint64_t HeldBytes() const override { return held; }

  DeviceAddress base() const override { return base_; }
  uint64_t size() const override { return size_; }
  absl::Status Map(DeviceAddress address, uint64_t bytes) override;
  absl::Status Unmap(DeviceAddress address, uint64_t bytes) override;
  absl::Status MapPhysical(DeviceAddress address, uint64_t bytes,
                           std::shared_ptr<PhysicalMemory> memory) override;
  absl::Status UnmapPhysical(DeviceAddress address, uint64_t bytes) override;
  absl::Status SetAccess(DeviceAddress address, uint64_t bytes, MemoryAccess access) override;
  absl::StatusOr<PhysicalRange> Behind(DeviceAddress address) const override;
  absl::Status RegisterHost(void* memory, uint64_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    host_[reinterpret_cast<uint64_t>(memory)] = bytes;
    return absl::OkStatus();
  }
  absl::Status UnregisterHost(void* memory) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return host_.erase(reinterpret_cast<uint64_t>(memory)) != 0
               ? absl::OkStatus()
               : absl::NotFoundError("not registered");
  }
  bool Contains(DeviceAddress address, uint64_t bytes, bool write = false) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (write && read_only_.contains(address)) return false;
    for (const auto* ranges : {&mapped_, &host_, &permitted_}) {
      auto after = ranges->upper_bound(address);
      if (after == ranges->begin()) continue;
      --after;
      if (address - after->first <= after->second &&
          bytes <= after->second - (address - after->first))
        return true;
    }
    return false;
  }
  absl::Status fault() const override {
    if (!faulted_.load(std::memory_order_acquire)) return absl::OkStatus();
    return CudaError(kCudaErrorIllegalAddress, "the test's kernel faulted");
  }
  bool Busy() const override;
  void Abandon() override { abandoned_.store(true); }

  void Fault() { faulted_.store(true, std::memory_order_release); }
  bool stopped() const { return abandoned_.load() || faulted_.load(); }

 private:
  InstantDevice& device_;
  const DeviceAddress base_;
  const uint64_t size_;
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> mapped_, host_, permitted_;       // by begin: bytes
  std::map<uint64_t, std::shared_ptr<PhysicalMemory>> backing_;  // of mapped_
  std::map<uint64_t, std::pair<uint64_t, std::shared_ptr<PhysicalMemory>>> physical_;
  std::set<uint64_t> read_only_;  // begin
  std::atomic<bool> faulted_{false}, abandoned_{false};
};

class InstantMemory final : public PhysicalMemory {
 public:
  // `used` counts the bytes of the memory. It may be null.
  explicit InstantMemory(uint64_t bytes, std::atomic<uint64_t>* used = nullptr)
      : fd(memfd_create("instant", MFD_CLOEXEC)), bytes_(bytes), used_(used) {
    if (used_ != nullptr) used_->fetch_add(bytes_);
    if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) std::abort();
  }
  ~InstantMemory() override {
    if (used_ != nullptr) used_->fetch_sub(bytes_);
    close(fd);
  }
  uint64_t bytes() const override { return bytes_; }
  const int fd;

 private:
  const uint64_t bytes_;
  std::atomic<uint64_t>* const used_;
};

class InstantKernel final : public Kernel {
 public:
  using Body = std::function<void(InstantSpace& space, const LaunchShape& shape,
                                  const std::byte* parameters)>;
  InstantKernel(std::string name, uint32_t parameter_bytes, Body body) : body_(std::move(body)) {
    info_.name = std::move(name);
    info_.parameter_bytes = parameter_bytes;
    for (uint32_t offset = 0; offset < parameter_bytes; offset += 8)
      info_.parameters.push_back({offset, 8});
  }
  const KernelInfo& info() const override { return info_; }
  absl::Status SetAttribute(int attribute, int value) override {
    info_.attributes[attribute % 24] = value;
    return absl::OkStatus();
  }
  absl::StatusOr<int> MaxActiveBlocks(const OccupancyQuery& query) override {
    return 2048 / query.block_size;
  }
  absl::StatusOr<uint64_t> AvailableDynamicShared(int, int) override { return 1024; }
  absl::StatusOr<int> MaxPotentialClusterSize(const LaunchShape&) override { return 8; }
  absl::StatusOr<int> MaxActiveClusters(const LaunchShape&) override { return 16; }
  void Run(InstantSpace& space, const LaunchShape& shape, const std::byte* parameters) {
    body_(space, shape, parameters);
  }

 private:
  KernelInfo info_;
  Body body_;
};

// Does its nodes in their order. Conditional nodes do nothing.
class InstantGraph final : public Graph {
 public:
  explicit InstantGraph(const GraphDescription& description) : description(description) {}
  absl::Status Replace(GraphPlace place, const GraphNode& now) override {
    description.graphs[place.graph].nodes[place.node] = now;
    return absl::OkStatus();
  }

  GraphDescription description;
};

class InstantQueue final : public Queue {
 public:
  absl::Status Launch(AddressSpace& space, Kernel& kernel, const LaunchShape& shape,
                      absl::Span<const std::byte> parameters) override {
    auto& instant = static_cast<InstantSpace&>(space);
    if (!instant.stopped())
      static_cast<InstantKernel&>(kernel).Run(instant, shape, parameters.data());
    return absl::OkStatus();
  }
  absl::Status Copy(AddressSpace& space, const CopyRequest& r) override {
    if (static_cast<InstantSpace&>(space).stopped()) return absl::OkStatus();
    // Arrays of this device have no texels (instant_images.h).
    if (r.destination_array.array != nullptr || r.source_array.array != nullptr)
      return absl::OkStatus();
    if (r.width == 0) return absl::OkStatus();  // addresses may be null
    for (uint64_t z = 0; z < r.depth; ++z) {
      for (uint64_t y = 0; y < r.height; ++y) {
        std::memmove(
            reinterpret_cast<void*>(r.destination + z * r.destination_slice +
                                    y * r.destination_pitch),
            reinterpret_cast<const void*>(r.source + z * r.source_slice + y * r.source_pitch),
            r.width);
      }
    }
    return absl::OkStatus();
  }
  absl::Status Fill(AddressSpace& space, const FillRequest& r) override {
    if (static_cast<InstantSpace&>(space).stopped()) return absl::OkStatus();
    for (uint64_t y = 0; y < r.height; ++y) {
      for (uint64_t x = 0; x < r.width; ++x) {
        std::memcpy(reinterpret_cast<char*>(r.address + y * r.pitch) + x * r.element_bytes,
                    &r.value, r.element_bytes);
      }
    }
    return absl::OkStatus();
  }
  absl::Status WriteFence(AddressSpace& space, std::atomic<uint64_t>* fence,
                          uint64_t value) override {
    if (space.fault().ok()) fence->store(value, std::memory_order_release);
    return absl::OkStatus();
  }
  absl::Status WaitFence(AddressSpace&, const std::atomic<uint64_t>*, uint64_t) override {
    return absl::OkStatus();
  }
  // Does the writes. All waits are over.
  absl::Status MemoryOps(AddressSpace& space, absl::Span<const MemoryOp> operations) override {
    if (static_cast<InstantSpace&>(space).stopped()) return absl::OkStatus();
    for (const MemoryOp& operation : operations) {
      if (operation.is_write())
        std::memcpy(reinterpret_cast<void*>(operation.address), &operation.value,
                    operation.bytes());
    }
    return absl::OkStatus();
  }
  absl::Status Record(Marker&) override { return absl::OkStatus(); }
  absl::Status Wait(Marker&) override { return absl::OkStatus(); }
  absl::Status LaunchGraph(AddressSpace& space, Graph& graph,
                           absl::Span<const uint64_t> values) override {
    for (const GraphNode& node : static_cast<InstantGraph&>(graph).description.root().nodes) {
      const uint64_t value = TakesValue(node) ? values.front() : 0;
      if (TakesValue(node)) values.remove_prefix(1);
      if (!node.enabled) continue;
      if (const auto* kernel = std::get_if<KernelStep>(&node.step)) {
        (void)Launch(space, *kernel->kernel, kernel->shape, kernel->parameters);
      } else if (const auto* copy = std::get_if<CopyRequest>(&node.step)) {
        (void)Copy(space, *copy);
      } else if (const auto* fill = std::get_if<FillRequest>(&node.step)) {
        (void)Fill(space, *fill);
      } else if (const auto* signal = std::get_if<SignalStep>(&node.step)) {
        (void)WriteFence(space, signal->fence, value);
      }
    }
    return absl::OkStatus();
  }
};

class InstantPartition final : public Partition {
 public:
  int first_sm() const override { return 0; }
  int sm_count() const override { return 4; }
  absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(int) override {
    return std::make_unique<InstantQueue>();
  }
};

// Lasts until it is ended.
class InstantHold final : public GroupHold {
 public:
  explicit InstantHold(std::atomic<bool>& held) : held_(held) {}
  absl::Status HoldFor(int64_t) override {
    held_ = true;
    return absl::OkStatus();
  }
  void End() override { held_ = false; }

 private:
  std::atomic<bool>& held_;
};

// Makes a library of any image that begins with "code". Each library has the kernels that the test
// registered, and the global "counter".
class InstantDevice final : public Device {
 public:
  struct KernelRecipe {
    std::string name;
    uint32_t parameter_bytes = 0;
    InstantKernel::Body body;
  };

  InstantDevice() {
    properties_.name = "instant";
    properties_.uuid[0] = 0xAB;
    properties_.total_memory = 1 << 30;
    properties_.memory_granularity = 2 << 20;
    properties_.driver_version = 13000;
    properties_.sm_count = 4;
    properties_.limits = {1024, 1 << 20};
    properties_.attributes[1] = 1024;
  }

  DeviceProperties& mutable_properties() { return properties_; }
  const DeviceProperties& properties() const override { return properties_; }
  Partition& whole() override { return whole_; }
  // Gives the device an urgent time-slice group. Called before anything uses the device.
  void EnablePreemption() { properties_.preemption.available = true; }
  Partition* urgent() override { return properties_.preemption.available ? &urgent_ : nullptr; }
  absl::StatusOr<std::unique_ptr<GroupHold>> CreateHold() override {
    if (!properties_.preemption.available) return nullptr;
    return std::make_unique<InstantHold>(held);
  }
  absl::StatusOr<std::unique_ptr<Partition>> CreatePartition(int, int) override {
    for (; holds_partitions.load(); std::this_thread::yield()) asked_for_partition = true;
    if (!makes_partitions.load()) return absl::ResourceExhaustedError("full");
    return std::make_unique<InstantPartition>();
  }
  absl::StatusOr<std::unique_ptr<Marker>> CreateMarker(bool) override {
    if (!makes_markers.load()) return absl::ResourceExhaustedError("full");
    return std::make_unique<Marker>();
  }
  absl::StatusOr<bool> Reached(Marker&) override { return true; }
  absl::StatusOr<float> ElapsedMilliseconds(Marker&, Marker&) override { return 1.5f; }
  absl::StatusOr<std::unique_ptr<AddressSpace>> CreateAddressSpace(DeviceAddress base,
                                                                   uint64_t size) override {
    spaces.fetch_add(1);
    return std::make_unique<InstantSpace>(*this, base, size);
  }
  absl::StatusOr<std::shared_ptr<PhysicalMemory>> CreatePhysicalMemory(uint64_t bytes) override {
    if (bytes > properties_.total_memory || used.load() + bytes > properties_.total_memory)
      return absl::ResourceExhaustedError("full");
    return std::make_shared<InstantMemory>(bytes, &used);
  }
  std::atomic<uint64_t> managed_bytes{100};  // of the second managed variable
  absl::StatusOr<std::unique_ptr<Library>> LoadLibrary(AddressSpace& space,
                                                       absl::Span<const std::byte> image,
                                                       absl::Span<const JitOptionValue>,
                                                       CompileLogs& logs,
                                                       const PlaceManaged& place) override {
    if (image.size() < 4 || std::memcmp(image.data(), "code", 4) != 0) {
      logs.error = "this is no code";
      return CudaError(kCudaErrorInvalidPtx, "this is no code");
    }
    // Code that contains " managed" has two managed variables.
    const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
    if (text.find(" managed") != std::string_view::npos) {
      const ManagedVariable variables[] = {{"first", 3, 1}, {"second", managed_bytes, 8}};
      const absl::StatusOr<ManagedPlaces> places = place(variables);
      if (!places.ok()) return places.status();
      if (places->initialize) places->initialize(0, "abc");
    }
    logs.info = "compiled";
    libraries.fetch_add(1);
    if (space.output() != nullptr) space.output()->Print("loaded\n");
    return std::make_unique<InstantLibrary>(*this, space);
  }
  absl::StatusOr<std::string> Link(absl::Span<const LinkInputImage> inputs,
                                   absl::Span<const JitOptionValue>, CompileLogs&) override {
    std::string image = "code";
    for (const LinkInputImage& input : inputs) image += input.name + "=" + input.bytes + ";";
    return image;
  }
  absl::StatusOr<std::unique_ptr<Graph>> InstantiateGraph(AddressSpace&, Partition&,
                                                          const GraphDescription& description,
                                                          GraphPlace*) override {
    return std::make_unique<InstantGraph>(description);
  }
  absl::StatusOr<uint64_t> CreateGraphCondition(AddressSpace&, uint32_t, bool, uint64_t) override {
    return ++conditions;
  }
  Memory memory() const override {
    return {properties_.total_memory - used.load(), properties_.total_memory};
  }
  std::map<int, int> PeerAttributes(const Device&) const override { return {{2, 1}}; }
  absl::StatusOr<Limit> SetLimit(AddressSpace&, int, uint64_t value) override {
    return Limit{value, std::min<uint64_t>(value, largest_limit)};
  }
  std::atomic<uint64_t> largest_limit{UINT64_MAX};  // that sessions get
  absl::Status health() const override {
    return lost.load() ? CudaError(kCudaErrorIllegalAddress, "lost by the test") : absl::OkStatus();
  }

  ImageDevice* images() override { return image_device.load(); }
  TensorMapEncoder* tensor_maps() override { return tensor_map_encoder.load(); }

  // Optional parts. A test sets them before the first session.
  std::atomic<ImageDevice*> image_device{nullptr};
  std::atomic<TensorMapEncoder*> tensor_map_encoder{nullptr};
  std::vector<KernelRecipe> recipes;  // set before the first library is loaded
  std::atomic<uint64_t> used{0};
  std::atomic<int> spaces{0}, libraries{0};  // how many exist
  std::atomic<uint64_t> conditions{0};
  std::atomic<bool> makes_partitions{true}, makes_markers{true};
  // While the first is true, a thread that makes a partition sets the second, and waits.
  std::atomic<bool> holds_partitions{false}, asked_for_partition{false};
  std::atomic<uint64_t> unusable{0};  // bytes that memory() reports as free and no space gets
  std::atomic<bool> lost{false};
  std::atomic<bool> held{false};  // a hold that was made last is not ended
  std::atomic<bool> busy{false};  // the result for all spaces; their work is always complete

 private:
  class InstantLibrary final : public Library {
   public:
    InstantLibrary(InstantDevice& device, AddressSpace& space) : device_(device), space_(space) {
      for (const KernelRecipe& recipe : device.recipes) {
        kernels_.push_back(
            std::make_unique<InstantKernel>(recipe.name, recipe.parameter_bytes, recipe.body));
      }
      (void)space.RegisterHost(&counter_, sizeof(counter_));
    }
    ~InstantLibrary() override {
      (void)space_.UnregisterHost(&counter_);
      device_.libraries.fetch_sub(1);
    }
    std::vector<std::string> KernelNames() const override {
      std::vector<std::string> names;
      for (const auto& kernel : kernels_) names.push_back(kernel->info().name);
      return names;
    }
    absl::StatusOr<Kernel*> GetKernel(std::string_view name) override {
      for (const auto& kernel : kernels_) {
        if (kernel->info().name == name) return kernel.get();
      }
      return absl::NotFoundError("no such kernel");
    }
    absl::StatusOr<Global> GetGlobal(std::string_view name) override {
      if (name != "counter") return absl::NotFoundError("no such global");
      return Global{reinterpret_cast<DeviceAddress>(&counter_), sizeof(counter_)};
    }

   private:
    InstantDevice& device_;
    AddressSpace& space_;
    std::vector<std::unique_ptr<InstantKernel>> kernels_;
    uint64_t counter_ = 0;
  };

  DeviceProperties properties_;
  InstantPartition whole_, urgent_;
};

inline InstantSpace::~InstantSpace() {
  for (const auto& [begin, bytes] : mapped_) {
    munmap(reinterpret_cast<void*>(begin), bytes);
    device_.used.fetch_sub(bytes);
  }
  for (const auto& [begin, placed] : physical_)
    munmap(reinterpret_cast<void*>(begin), placed.first);
  device_.spaces.fetch_sub(1);
}

inline bool InstantSpace::Busy() const { return device_.busy.load(); }

inline absl::Status InstantSpace::Map(DeviceAddress address, uint64_t bytes) {
  if (device_.used.load() + device_.unusable.load() + bytes > device_.properties().total_memory)
    return absl::ResourceExhaustedError("full");
  if (address < base_ || bytes > size_ || address - base_ > size_ - bytes)
    return absl::OutOfRangeError("outside");
  const auto backing = std::make_shared<InstantMemory>(bytes);
  void* memory = mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, backing->fd, 0);
  if (memory != reinterpret_cast<void*>(address)) return absl::InternalError("cannot map there");
  const std::lock_guard<std::mutex> lock(mutex_);
  mapped_[address] = bytes;
  backing_[address] = backing;
  device_.used.fetch_add(bytes);
  return absl::OkStatus();
}

inline absl::Status InstantSpace::Unmap(DeviceAddress address, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = mapped_.find(address);
  if (found == mapped_.end() || found->second != bytes) return absl::NotFoundError("not mapped");
  munmap(reinterpret_cast<void*>(address), bytes);
  mapped_.erase(found);
  backing_.erase(address);
  device_.used.fetch_sub(bytes);
  return absl::OkStatus();
}

inline absl::Status InstantSpace::MapPhysical(DeviceAddress address, uint64_t bytes,
                                              std::shared_ptr<PhysicalMemory> memory) {
  if (address < base_ || bytes > size_ || address - base_ > size_ - bytes)
    return absl::OutOfRangeError("outside");
  void* at = mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED_NOREPLACE, static_cast<InstantMemory&>(*memory).fd, 0);
  if (at != reinterpret_cast<void*>(address)) return absl::InternalError("cannot map there");
  const std::lock_guard<std::mutex> lock(mutex_);
  physical_[address] = {bytes, std::move(memory)};
  return absl::OkStatus();
}

inline absl::Status InstantSpace::UnmapPhysical(DeviceAddress address, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = physical_.find(address);
  if (found == physical_.end() || found->second.first != bytes)
    return absl::NotFoundError("not mapped");
  munmap(reinterpret_cast<void*>(address), bytes);
  physical_.erase(found);
  permitted_.erase(address);
  return absl::OkStatus();
}

inline absl::Status InstantSpace::SetAccess(DeviceAddress address, uint64_t bytes,
                                            MemoryAccess access) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (access == MemoryAccess::kNone) {
    permitted_.erase(address);
  } else {
    permitted_[address] = bytes;
  }
  read_only_.erase(address);
  if (access == MemoryAccess::kRead) read_only_.insert(address);
  return absl::OkStatus();
}

inline absl::StatusOr<PhysicalRange> InstantSpace::Behind(DeviceAddress address) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto after = physical_.upper_bound(address);
  if (after != physical_.begin() &&
      address - std::prev(after)->first < std::prev(after)->second.first) {
    --after;
    return PhysicalRange{after->second.second, after->first};
  }
  auto mapped = mapped_.upper_bound(address);
  if (mapped == mapped_.begin() || address - std::prev(mapped)->first >= std::prev(mapped)->second)
    return absl::NotFoundError("not physical memory");
  --mapped;
  return PhysicalRange{backing_.at(mapped->first), mapped->first};
}

}  // namespace detshare
