// An API server as the driver sees it: the real REST interface over TLS, with the real server's
// checks of tokens, versions and ResourceSlices, and with faults that a test asks for.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace detshare::kubernetes {

class ApiServerStandIn {
 public:
  using Json = nlohmann::json;

  // Makes a certificate and a token in `directory`, and listens at a free port of this host.
  explicit ApiServerStandIn(std::string directory);
  ~ApiServerStandIn();

  std::string url() const;
  std::string token_file() const { return directory_ + "/token"; }
  std::string ca_file() const { return directory_ + "/ca.crt"; }
  // Replaces the token, as Kubernetes does while a pod runs. The old one is no longer accepted.
  void RotateToken();

  // Collections, such as kSlices, with objects by name. Changes are told to watches.
  static constexpr char kSlices[] = "/apis/resource.k8s.io/v1/resourceslices";
  static std::string ClaimsOf(const std::string& ns) {
    return "/apis/resource.k8s.io/v1/namespaces/" + ns + "/resourceclaims";
  }
  Json Put(const std::string& collection, Json object);
  void Remove(const std::string& collection, const std::string& name);
  std::vector<Json> List(const std::string& collection) const;
  // Waits until an object of the collection is as wanted, and returns it; null after a minute.
  Json Await(const std::string& collection, const std::function<bool(const Json&)>& wanted) const;

  // The next requests get this status instead of a reply; with a pause in seconds unless it is
  // negative. With a right, such as "get resourceclaims", only requests that need it.
  void FailNext(int count, int status, int retry_after = -1, const std::string& right = "");
  // Closes the next connections without a reply.
  void HangUpNext(int count);
  // Ends all watches: in order, with the event that their history is gone, or without a word.
  enum class End { kInOrder, kGone, kHangUp };
  void EndWatches(End how);
  // Forgets all events, so that a watch from before gets 410.
  void Forget();
  // Stores no taints or no shared devices, as a server without these features.
  void DropTaints(bool drop);
  void DropSharing(bool drop);
  // Another client changes each slice right before the next update of it.
  void ConflictNext(int count);

  // "get resourceclaims", ...: what the driver has done, for the check of its rights.
  std::set<std::string> rights_used() const;
  // What the real server would have refused or the stand-in does not know; one line each.
  std::string problems() const;
  int requests() const;

 private:
  class Connection;
  struct Event {
    uint64_t version;
    std::string collection, type;
    Json object;
  };
  struct Reply {
    int status;
    Json body;
    int retry_after = -1;
  };

  void Accept();
  void Serve(int fd);
  Reply Handle(const std::string& method, const std::string& target, const std::string& body,
               const std::string& content_type, const std::string& authorization);
  Reply Change(const std::string& method, const std::string& collection, const std::string& name,
               const std::string& subresource, const Json& object);
  void Watch(const std::string& collection, const std::map<std::string, std::string>& query,
             const std::function<bool(const std::string& line)>& send);
  Json PutLocked(const std::string& collection, Json object);
  Json Stored(const std::string& collection, Json object) const;
  void Problem(const std::string& text);

  const std::string directory_;
  int listen_fd_ = -1;
  int port_ = 0;
  std::thread acceptor_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool stopped_ = false;
  std::vector<std::thread> connections_;
  std::string token_;
  std::map<std::string, std::map<std::string, Json>> objects_;  // by collection and name
  std::vector<Event> events_;
  uint64_t version_ = 100, forgotten_ = 100;
  int next_uid_ = 1;
  int fail_count_ = 0, fail_status_ = 0, fail_retry_after_ = -1, hang_up_count_ = 0;
  std::string fail_right_;
  int conflict_count_ = 0;
  uint64_t ended_watches_ = 0;
  End end_how_ = End::kInOrder;
  bool drop_taints_ = false, drop_sharing_ = false;
  std::set<std::string> rights_used_;
  std::string problems_;
  int requests_ = 0;
};

// Why the real server would refuse this spec of a ResourceSlice; "": it takes it.
std::string ProblemOfSlice(const nlohmann::json& spec);

}  // namespace detshare::kubernetes
