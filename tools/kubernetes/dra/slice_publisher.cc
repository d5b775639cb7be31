#include "tools/kubernetes/dra/slice_publisher.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "tools/kubernetes/dra/claim.h"
#include "tools/kubernetes/dra/json_path.h"

namespace detshare::kubernetes {
namespace {

constexpr char kSlices[] = "/apis/resource.k8s.io/v1/resourceslices";
constexpr std::chrono::milliseconds kFirstPause(250), kLongestPause(30'000);

std::string Selector(const std::string& node) {
  return absl::StrCat("spec.driver=", kDriver, ",spec.nodeName=", node);
}

std::string PathOf(const Json& slice) {
  return absl::StrCat(kSlices, "/", Encode(Text(At(slice, "metadata", "name"))));
}

}  // namespace

SlicePublisher::SlicePublisher(const ApiServer& api, SliceOptions options)
    : api_(api), options_(std::move(options)) {
  thread_ = std::thread([this] { Run(); });
  const auto look_again = [this] {
    const MutexLock lock(&mutex_);
    pending_ = true;
    wake_.SignalAll();
  };
  ObjectWatch::Callbacks callbacks;
  callbacks.listed = [look_again](const std::vector<Json>&) { look_again(); };
  callbacks.changed = [this, look_again](const Json& slice, bool deleted) {
    {
      const MutexLock lock(&mutex_);
      if (!deleted && Text(At(slice, "metadata", "resourceVersion")) == stored_version_) return;
    }
    look_again();
  };
  // Reconcile() meets the same problems and tells them.
  callbacks.problem = [](const std::string&) {};
  watch_ =
      std::make_unique<ObjectWatch>(api_, kSlices, Selector(options_.node), std::move(callbacks));
}

SlicePublisher::~SlicePublisher() {
  watch_.reset();
  {
    const MutexLock lock(&mutex_);
    stopped_ = true;
    wake_.SignalAll();
  }
  thread_.join();
}

void SlicePublisher::Publish(const std::vector<Gpu>& gpus, bool reachable) {
  const MutexLock lock(&mutex_);
  if (known_ && gpus == gpus_ && reachable == reachable_) return;
  known_ = true;
  gpus_ = gpus;
  reachable_ = reachable;
  pending_ = true;
  wake_.SignalAll();
}

void SlicePublisher::Run() {
  int failures = 0;
  for (;;) {
    std::vector<Gpu> gpus;
    bool reachable = false;
    {
      const MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopped_ || (known_ && pending_);
      };
      const auto stopped = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_; };
      if (failures == 0) {
        wake_.Wait(&mutex_, ready);
      } else {
        wake_.WaitFor(&mutex_, Backoff(failures, kFirstPause, kLongestPause), stopped);
      }
      if (stopped_) return;
      pending_ = false;
      gpus = gpus_;
      reachable = reachable_;
    }
    const absl::Status done = Reconcile(gpus, reachable);
    failures = done.ok() ? 0 : failures + 1;
    // A conflict is in order: the slice has changed, and is read again.
    if (!done.ok() && !absl::IsAborted(done))
      notice_.Say(absl::StrCat("the GPUs are not published: ", std::string(done.message())));
  }
}

absl::Status SlicePublisher::Reconcile(const std::vector<Gpu>& gpus, bool reachable) {
  DETSHARE_ASSIGN_OR_RETURN(
      const Json list,
      api_.Get(absl::StrCat(kSlices, "?fieldSelector=", Encode(Selector(options_.node)))));
  const Json& items = At(list, "items");
  const Json* own = nullptr;
  for (const Json& slice : List(items)) {
    // One slice of the pool stays. Others are left over from a driver that ended in between.
    if (own == nullptr && At(slice, "spec", "pool", "name") == options_.node && !gpus.empty()) {
      own = &slice;
      continue;
    }
    const Json options = {{"preconditions", {{"uid", At(slice, "metadata", "uid")}}}};
    const absl::Status deleted = api_.Delete(PathOf(slice), options);
    if (!deleted.ok() && !absl::IsNotFound(deleted)) return deleted;
  }
  if (gpus.empty()) return absl::OkStatus();
  return own == nullptr ? Create(gpus, reachable) : Update(*own, gpus, reachable);
}

absl::StatusOr<Json> SlicePublisher::Owner() {
  DETSHARE_ASSIGN_OR_RETURN(const Json node,
                            api_.Get(absl::StrCat("/api/v1/nodes/", Encode(options_.node))));
  return Json::array({{{"apiVersion", "v1"},
                       {"kind", "Node"},
                       {"name", options_.node},
                       {"uid", At(node, "metadata", "uid")},
                       {"controller", true}}});
}

absl::Status SlicePublisher::Create(const std::vector<Gpu>& gpus, bool reachable) {
  DETSHARE_ASSIGN_OR_RETURN(Json owner, Owner());
  const Json slice = {{"apiVersion", "resource.k8s.io/v1"},
                      {"kind", "ResourceSlice"},
                      {"metadata",
                       {{"generateName", absl::StrCat(options_.node, "-", kDriver, "-")},
                        {"ownerReferences", std::move(owner)}}},
                      {"spec", SliceSpec(gpus, reachable, options_, 1)}};
  DETSHARE_ASSIGN_OR_RETURN(const Json stored, api_.Post(kSlices, slice));
  return Note(slice["spec"], stored);
}

absl::Status SlicePublisher::Update(Json slice, const std::vector<Gpu>& gpus, bool reachable) {
  const Json before = At(slice, "spec");
  const Json& generation = At(before, "pool", "generation");
  Json spec = SliceSpec(gpus, reachable, options_,
                        (generation.is_number_integer() ? generation.get<int64_t>() : 0) + 1);
  if (SameOffer(before, spec)) {
    const MutexLock lock(&mutex_);
    stored_version_ = Text(At(slice, "metadata", "resourceVersion"));
    return absl::OkStatus();
  }
  {
    // The server has dropped fields of what this driver sent, and nobody has changed it since.
    const MutexLock lock(&mutex_);
    if (SameOffer(sent_, spec) && stored_version_ == Text(At(slice, "metadata", "resourceVersion")))
      return absl::OkStatus();
  }
  KeepTaintTimes(before, &spec);
  slice["spec"] = spec;
  DETSHARE_ASSIGN_OR_RETURN(const Json stored, api_.Put(PathOf(slice), slice));
  return Note(spec, stored);
}

absl::Status SlicePublisher::Note(const Json& sent, const Json& stored) {
  {
    const MutexLock lock(&mutex_);
    stored_version_ = Text(At(stored, "metadata", "resourceVersion"));
    sent_ = sent;
  }
  bool tainted = false, taints = false, shared = sent["devices"].empty();
  for (const Json& device : sent["devices"]) tainted = tainted || device.contains("taints");
  const Json& devices = At(stored, "spec", "devices");
  for (const Json& device : List(devices)) {
    taints = taints || device.contains("taints");
    shared = shared || At(device, "allowMultipleAllocations") == true;
  }
  if (tainted && !taints) {
    std::fprintf(stderr,
                 "the API server does not store taints (feature DRADeviceTaints): GPUs that are "
                 "lost are left out of the slice\n");
    options_.taints = false;
    return absl::AbortedError("the slice is made again without taints");
  }
  if (!shared) {
    notice_.Say(
        "the API server does not share devices: each GPU goes to one claim at a time. Turn on the "
        "feature gate DRAConsumableCapacity of kube-apiserver, kube-scheduler and kubelet");
  } else {
    notice_.Say(absl::StrCat("published ", sent["devices"].size(), " of the node's GPUs"));
  }
  return absl::OkStatus();
}

}  // namespace detshare::kubernetes
