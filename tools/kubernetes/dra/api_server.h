// The REST interface of Kubernetes' API server.
//
// Every request has a connection of its own, and reads the token and the certificate authority anew,
// because Kubernetes replaces both files while a pod runs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace detshare::kubernetes {

using Json = nlohmann::json;

struct ApiAccess {
  std::string scheme;  // "https", or "http" for a local proxy or a test
  std::string host, port;
  std::string token_file;  // "": no token is sent
  std::string ca_file;     // of the server's certificate; only for https
};

// Where a pod finds the API server, and its service account's files. NotFound outside of pods.
absl::StatusOr<ApiAccess> AccessOfPod();
// "https://HOST:PORT" or "http://HOST:PORT". InvalidArgument for other text.
absl::StatusOr<ApiAccess> ParseServer(const std::string& url);

// Percent-encodes a part of a path or a query.
std::string Encode(absl::string_view text);

// Any thread may call it.
class ApiServer {
 public:
  explicit ApiServer(ApiAccess access);

  // Returns the object that the server replied. Errors carry the server's message:
  //   400, 422 InvalidArgument   401 Unauthenticated   403 PermissionDenied   404 NotFound
  //   409 AlreadyExists if the object is there, Aborted if it has changed     410 OutOfRange
  //   429, 5xx, and no reply: Unavailable
  // A request that the server puts off (429, 503 with Retry-After) is sent again for some seconds.
  absl::StatusOr<Json> Get(const std::string& path) const;
  absl::StatusOr<Json> Post(const std::string& path, const Json& object) const;
  absl::StatusOr<Json> Put(const std::string& path, const Json& object) const;
  // Server-side apply.
  absl::StatusOr<Json> Apply(const std::string& path, const Json& object) const;
  absl::Status Delete(const std::string& path, const Json& options) const;

  const ApiAccess& access() const { return access_; }

 private:
  absl::StatusOr<Json> Call(absl::string_view method, const std::string& path, const Json& object,
                            const char* content_type) const;

  const ApiAccess access_;
};

class ApiConnection;

// A watch that has been requested. One thread calls Next(), any thread Stop().
class WatchStream {
 public:
  WatchStream();
  ~WatchStream();
  WatchStream(const WatchStream&) = delete;
  WatchStream& operator=(const WatchStream&) = delete;

  // Sends the request. Errors as those of ApiServer.
  absl::Status Open(const ApiAccess& access, const std::string& path);
  // Waits for the next event, {"type": ..., "object": ...}. OutOfRange when the server has ended the
  // watch in order; Unavailable when the connection is lost, or silent for `silence`; Cancelled after
  // Stop().
  absl::StatusOr<Json> Next(std::chrono::seconds silence);
  void Stop();

 private:
  const std::unique_ptr<ApiConnection> connection_;
};

}  // namespace detshare::kubernetes
