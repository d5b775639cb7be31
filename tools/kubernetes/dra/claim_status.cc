#include "tools/kubernetes/dra/claim_status.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tools/kubernetes/dra/claim.h"
#include "tools/kubernetes/dra/object_watch.h"
#include "tools/kubernetes/notice.h"

namespace detshare::kubernetes {
namespace {

constexpr std::chrono::milliseconds kFirstWait(500), kLongestWait(60'000);
constexpr size_t kLongestMessage = 1024;

Json Condition(const char* type, bool is_true, const char* reason, const std::string& message,
               const std::string& time) {
  return {{"type", type},
          {"status", is_true ? "True" : "False"},
          {"reason", reason},
          {"message", message.substr(0, kLongestMessage)},
          {"lastTransitionTime", time}};
}

}  // namespace

Json StatusOf(const record::PreparedClaim& claim, const std::string& pool,
              const std::string& problem, const std::string& time) {
  Json devices = Json::array();
  for (const record::AllocatedDevice& allocated : claim.devices()) {
    Json device = {
        {"driver", kDriver},
        {"pool", pool},
        {"device", allocated.device()},
        {"conditions",
         {Condition("Ready", true, "Prepared", absl::StrCat("endpoint ", claim.endpoint().name()),
                    time),
          problem.empty()
              ? Condition("ParametersInForce", true, "Applied", "", time)
              : Condition("ParametersInForce", false, "Refused",
                          absl::StrCat("the earlier parameters stay in force: ", problem), time)}}};
    if (!allocated.share_id().empty()) device["shareID"] = allocated.share_id();
    devices.push_back(std::move(device));
  }
  return {{"apiVersion", "resource.k8s.io/v1"},
          {"kind", "ResourceClaim"},
          // With its uid, so that no other claim of this name is changed.
          {"metadata",
           {{"name", claim.name()}, {"namespace", claim.namespace_()}, {"uid", claim.uid()}}},
          {"status", {{"devices", std::move(devices)}}}};
}

ClaimStatus::ClaimStatus(const ApiServer& api, std::string pool)
    : api_(api), pool_(std::move(pool)) {
  thread_ = std::thread([this] { Run(); });
}

ClaimStatus::~ClaimStatus() {
  {
    const MutexLock lock(&mutex_);
    stopped_ = true;
    wake_.SignalAll();
  }
  thread_.join();
}

void ClaimStatus::Report(const record::PreparedClaim& claim, const std::string& problem) {
  const MutexLock lock(&mutex_);
  waiting_[claim.uid()] = {claim, problem};
  wake_.SignalAll();
}

void ClaimStatus::Run() {
  Notice notice;
  int failures = 0;
  for (;;) {
    Entry entry;
    {
      const MutexLock lock(&mutex_);
      const auto stopped = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_; };
      if (failures != 0)
        wake_.WaitFor(&mutex_, Backoff(failures, kFirstWait, kLongestWait), stopped);
      wake_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopped_ || !waiting_.empty();
      });
      if (stopped_) return;
      entry = waiting_.begin()->second;
      waiting_.erase(waiting_.begin());
    }
    const record::PreparedClaim& claim = entry.claim;
    const std::string time =
        absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
    const absl::Status written =
        api_.Apply(absl::StrCat("/apis/resource.k8s.io/v1/namespaces/", Encode(claim.namespace_()),
                                "/resourceclaims/", Encode(claim.name()),
                                "/status?fieldManager=", kDriver, "&force=true"),
                   StatusOf(claim, pool_, entry.problem, time))
            .status();
    failures = absl::IsUnavailable(written) || absl::IsUnauthenticated(written) ? failures + 1 : 0;
    if (failures != 0) {
      const MutexLock lock(&mutex_);
      waiting_.emplace(claim.uid(), std::move(entry));  // unless there is a later one
    } else if (!written.ok() && !absl::IsNotFound(written) && !absl::IsAborted(written)) {
      notice.Say(
          absl::StrCat("the status of claims is not written: ", std::string(written.message())));
    }
  }
}

}  // namespace detshare::kubernetes
