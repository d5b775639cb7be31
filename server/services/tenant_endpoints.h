// Opens and closes tenant endpoints: sockets that lead to one tenant each.
//
// Containers of different people have the same users: root in each of them is root. So what is
// mounted into a container decides what it may do. A client that comes through an endpoint belongs
// to the endpoint's tenant, whatever its user is, and sees only the endpoint's devices. It can open
// sessions and ask what NVML asks; the services of operators are not available there. The files of
// its sessions lie in the endpoint's directory, so a container sees nothing of other endpoints.
//
//   <runtime directory>/endpoints/    0700: only root, and containers with a part of it mounted
//     .list                           the endpoints, for the daemon that replaces this one
//     <name>/                         mounted into a container as /run/detshare
//       detshared.sock                0666
//       sessions/<session>/
//     .closed-<number>/               a closed endpoint's directory, until it is removed
//
// A container may do with its endpoint's directory what it likes. The daemon accesses the directory
// by descriptors, follows no symbolic link there, and trusts nothing that it finds. An endpoint that
// is opened gets a new directory, whatever became of an earlier one of its name.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/mutex.h"
#include "proto/tenant_endpoint.grpc.pb.h"
#include "server/access/identity.h"
#include "server/access/owners.h"
#include "server/access/peer_table.h"
#include "server/access/tenant_endpoint.h"
#include "server/base/event_log.h"
#include "server/base/retry_timer.h"
#include "server/services/endpoint_host.h"

namespace detshare {

// Any thread may call it.
class TenantEndpoints {
 public:
  static constexpr size_t kMaxEndpoints = 512;
  // How many this process may open. Each keeps two descriptors: together at most a quarter of those
  // that the process may have now. Endpoints of an earlier daemon are opened again in any case.
  static size_t Limit();

  // Opens again the endpoints that an earlier daemon had, in the same directories, because
  // containers have them mounted. The host and the owners, which it keeps true, outlive this object.
  static absl::StatusOr<std::unique_ptr<TenantEndpoints>> Create(
      const std::string& runtime_directory, EndpointHost& host, Owners& owners);
  ~TenantEndpoints();  // the directories stay
  TenantEndpoints(const TenantEndpoints&) = delete;
  TenantEndpoints& operator=(const TenantEndpoints&) = delete;

  struct Opened {
    std::string directory;  // relative to the runtime directory
    std::shared_ptr<const TenantEndpoint> endpoint;
  };
  struct Closed {
    proto::EndpointUse use;
    std::shared_ptr<const TenantEndpoint> endpoint;
  };

  // Implement the service's calls (proto/tenant_endpoint.proto).
  absl::StatusOr<Opened> Open(const proto::TenantEndpoint& wanted);
  absl::StatusOr<Opened> Change(const proto::TenantEndpoint& wanted);
  absl::StatusOr<std::shared_ptr<const TenantEndpoint>> SetOwner(
      const proto::EndpointOwner& wanted);
  absl::StatusOr<Closed> Close(const std::string& name);
  proto::EndpointList List() const;

  // Saves the list of endpoints for the next daemon, if that has failed before. The owner calls it when
  // save_fd() is readable.
  void SaveAgain();
  int save_fd() const { return save_timer_.fd(); }
  // Accepts no more connections and opens no more endpoints.
  void StopAccepting();

 private:
  struct OpenEndpoint {
    std::shared_ptr<TenantEndpoint> endpoint;
    int listen_fd = -1;  // the host owns it
    proto::TenantSetting setting;
    std::string allocator;
    proto::Owner owner;
  };

  TenantEndpoints(std::string directory, EndpointHost& host, Owners& owners);
  absl::Status Make(const proto::TenantEndpoint& wanted, bool in_place)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the endpoint's directory with a listening socket in it, and returns the socket.
  absl::StatusOr<int> MakeSocket(TenantEndpoint& endpoint, bool in_place) const;
  // FailedPrecondition if another allocator has one of the devices.
  absl::Status CheckAllocator(const std::string& allocator,
                              const std::vector<std::string>& device_ids) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Closed> CloseLocked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the directory of the endpoint aside, if there is one, so that the next endpoint of the name
  // gets nothing of this one.
  absl::Status Discard(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes what Discard() has moved. It may take long where a container has made much, so nobody
  // waits for the mutex meanwhile. What cannot be removed stays until the next daemon begins.
  void RemoveDiscarded();
  void Restore();
  void Save() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Saves the list once more for what the endpoints' sessions have used; not without endpoints.
  void SaveUse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string ListFile() const { return directory_ + "/.list"; }

  const std::string directory_;
  EndpointHost& host_;
  Owners& owners_;

  mutable Mutex mutex_;
  std::map<std::string, OpenEndpoint> endpoints_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool unsaved_ ABSL_GUARDED_BY(mutex_) = false;  // the list could not be written
  RetryTimer save_timer_;
  std::vector<std::string> discarded_ ABSL_GUARDED_BY(mutex_);  // paths
};

// The gRPC service that opens, closes and lists endpoints for operators.
class TenantEndpointService final : public proto::TenantEndpoints::CallbackService {
 public:
  TenantEndpointService(TenantEndpoints& endpoints, EventLog& events, PeerTable& peers,
                        const Identity& identity)
      : endpoints_(endpoints), events_(events), peers_(peers), identity_(identity) {}

  grpc::ServerUnaryReactor* OpenEndpoint(grpc::CallbackServerContext* context,
                                         const proto::TenantEndpoint* wanted,
                                         proto::OpenedEndpoint* opened) override;
  grpc::ServerUnaryReactor* ChangeEndpoint(grpc::CallbackServerContext* context,
                                           const proto::TenantEndpoint* wanted,
                                           proto::OpenedEndpoint* opened) override;
  grpc::ServerUnaryReactor* SetEndpointOwner(grpc::CallbackServerContext* context,
                                             const proto::EndpointOwner* wanted,
                                             proto::EndpointOwner* in_force) override;
  grpc::ServerUnaryReactor* CloseEndpoint(grpc::CallbackServerContext* context,
                                          const proto::CloseEndpointRequest* request,
                                          proto::CloseEndpointReply* reply) override;
  grpc::ServerUnaryReactor* GetEndpoints(grpc::CallbackServerContext* context,
                                         const proto::GetEndpointsRequest* request,
                                         proto::EndpointList* list) override;

 private:
  // Returns the caller, if it may administer.
  absl::StatusOr<Peer> MayAdminister(grpc::CallbackServerContext* context) const;
  // Tells the log and the events what `peer` did with the endpoint.
  void Note(const Peer& peer, const TenantEndpoint& endpoint, const std::string& what);

  TenantEndpoints& endpoints_;
  EventLog& events_;
  PeerTable& peers_;
  const Identity& identity_;
};

}  // namespace detshare
