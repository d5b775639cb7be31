// The doors of the daemon: sockets of their own that lead to one tenant each.
//
// Containers of different people have the same users: root in each of them is root. So what a
// container may do is decided by what is mounted into it. Whoever comes through a door is its
// tenant, whatever user it is, and sees its devices only. It can open sessions and ask what NVML is
// asked; the services of operators are not there. Files of its sessions lie in the door's
// directory: who has one door mounted sees nothing of another's.
//
//   <runtime directory>/doors/          0700: only root goes through it, and whoever has a part of
//   it mounted
//     list                              what doors there are, for the daemon that comes after this
//     one <name>/                           to be mounted as /run/detshare
//       detshared.sock                  0666
//       sessions/<session>/
//
// A container may do with its door's directory what it likes. The daemon goes into it by
// descriptors, follows no symbolic link there, and trusts nothing that it finds.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/door.grpc.pb.h"
#include "server/access/acceptor.h"
#include "server/services/control_service.h"
#include "server/access/door.h"
#include "server/access/identity.h"
#include "server/sessions/session_manager.h"
#include "server/services/settings.h"
#include "server/telemetry/telemetry.h"
#include "server/services/telemetry_service.h"

namespace detshare {

// Any thread.
class Doors {
 public:
  static constexpr size_t kMostDoors = 512;

  // All that is given outlives this. Opens the doors that an earlier daemon had, in the directories
  // that they had then: containers have them mounted. `strict`: there are none, since this daemon
  // serves one user and ends when it is idle.
  static absl::StatusOr<std::unique_ptr<Doors>> Create(SessionManager& manager, Settings& settings,
                                                       Telemetry& telemetry, PeerTable& peers,
                                                       const Identity& identity, bool strict);
  ~Doors();  // directories stay
  Doors(const Doors&) = delete;
  Doors& operator=(const Doors&) = delete;

  // As the service's calls (proto/door.proto). Open() answers the door's directory, below the
  // runtime directory.
  absl::StatusOr<std::string> Open(const proto::Door& wanted);
  absl::Status Close(const std::string& name);
  proto::DoorList List() const;

  // No connection is accepted any more, and no door opened.
  void StopAccepting();
  // Ends the calls that are there; after StopAccepting().
  void Shutdown();

 private:
  struct OpenDoor {
    std::shared_ptr<Door> door;
    std::unique_ptr<Acceptor> acceptor;
    int listen_fd = -1;
    proto::TenantSetting setting;

    OpenDoor() = default;
    ~OpenDoor();
    OpenDoor(OpenDoor&&) = delete;
  };

  Doors(SessionManager& manager, Settings& settings, Telemetry& telemetry, PeerTable& peers,
        const Identity& identity, bool strict);
  // With mutex_ held.
  absl::Status Make(const proto::Door& wanted, bool in_place);
  absl::Status CloseLocked(const std::string& name);
  void Restore();
  void Save();

  SessionManager& manager_;
  Settings& settings_;
  PeerTable& peers_;
  const std::string directory_;
  const bool strict_;
  // Services and server of their own: what the daemon's socket offers besides is not there.
  ControlService control_;
  TelemetryService telemetry_;
  std::unique_ptr<grpc::Server> grpc_;

  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<OpenDoor>> doors_;  // guarded by mutex_
  bool stopped_ = false;                                    // guarded by mutex_
};

// The service, for those who may steer.
class DoorService final : public proto::Doors::CallbackService {
 public:
  DoorService(Doors& doors, const PeerTable& peers, const Identity& identity)
      : doors_(doors), peers_(peers), identity_(identity) {}

  grpc::ServerUnaryReactor* OpenDoor(grpc::CallbackServerContext* context,
                                     const proto::Door* wanted, proto::OpenedDoor* opened) override;
  grpc::ServerUnaryReactor* CloseDoor(grpc::CallbackServerContext* context,
                                      const proto::CloseDoorRequest* request,
                                      proto::CloseDoorReply* reply) override;
  grpc::ServerUnaryReactor* GetDoors(grpc::CallbackServerContext* context,
                                     const proto::GetDoorsRequest* request,
                                     proto::DoorList* list) override;

 private:
  // Whether the caller may, and who it is, for the log.
  absl::Status MaySteer(grpc::CallbackServerContext* context, std::string* who) const;

  Doors& doors_;
  const PeerTable& peers_;
  const Identity& identity_;
};

}  // namespace detshare
