// The REST client and the watch against a server that fails in every way.
#include "tools/kubernetes/dra/api_server.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "tests/tools/kubernetes/dra/api_server_stand_in.h"
#include "tools/kubernetes/dra/object_watch.h"

namespace detshare::kubernetes {
namespace {

struct Server {
  Server() {
    char pattern[] = "/tmp/ds-api-XXXXXX";
    directory = mkdtemp(pattern);
    stand_in = std::make_unique<ApiServerStandIn>(directory);
    access = *ParseServer(stand_in->url());
    access.token_file = stand_in->token_file();
    access.ca_file = stand_in->ca_file();
  }
  ~Server() {
    CHECK(stand_in->problems() == "");
    stand_in.reset();
    std::filesystem::remove_all(directory);
  }
  Json Claim(const std::string& name, const std::string& value = "") {
    return {{"metadata", {{"name", name}, {"namespace", "ml"}, {"annotations", {{"v", value}}}}}};
  }

  std::string directory;
  std::unique_ptr<ApiServerStandIn> stand_in;
  ApiAccess access;
  const std::string claims = ApiServerStandIn::ClaimsOf("ml");
};

TEST_CASE("Errors of the API server keep their kind and their message") {
  Server server;
  const ApiServer api(server.access);
  server.stand_in->Put(server.claims, server.Claim("a"));
  const auto found = api.Get(server.claims + "/a");
  REQUIRE(found.ok());
  CHECK((*found)["metadata"]["name"] == "a");
  CHECK(absl::IsNotFound(api.Get(server.claims + "/b").status()));
  const std::pair<int, absl::StatusCode> codes[] = {
      {400, absl::StatusCode::kInvalidArgument}, {403, absl::StatusCode::kPermissionDenied},
      {409, absl::StatusCode::kAborted},         {410, absl::StatusCode::kOutOfRange},
      {422, absl::StatusCode::kInvalidArgument}, {429, absl::StatusCode::kUnavailable},
      {500, absl::StatusCode::kUnavailable}};
  for (const auto& [code, status] : codes) {
    server.stand_in->FailNext(1, code);
    const auto reply = api.Get(server.claims + "/a");
    CHECK(reply.status().code() == status);
    CHECK(reply.status().message() == "HTTP status " + std::to_string(code) + ": told to fail");
  }
}

TEST_CASE("A request that the server puts off is sent again") {
  Server server;
  const ApiServer api(server.access);
  server.stand_in->Put(server.claims, server.Claim("a"));
  server.stand_in->FailNext(2, 429, 0);
  CHECK(api.Get(server.claims + "/a").ok());
  server.stand_in->FailNext(1, 503, 0);
  CHECK(api.Get(server.claims + "/a").ok());
  // But not for ever.
  server.stand_in->FailNext(1, 429, 3600);
  CHECK(api.Get(server.claims + "/a").ok());  // it waits for five seconds at most
}

TEST_CASE("The token is read again for every request, and the certificate must fit") {
  Server server;
  const ApiServer api(server.access);
  server.stand_in->Put(server.claims, server.Claim("a"));
  REQUIRE(api.Get(server.claims + "/a").ok());
  server.stand_in->RotateToken();
  CHECK(api.Get(server.claims + "/a").ok());
  std::ofstream(server.access.token_file) << "old";
  CHECK(absl::IsUnauthenticated(api.Get(server.claims + "/a").status()));
  std::ofstream(server.access.token_file) << "two\nlines";
  CHECK(absl::IsUnavailable(api.Get(server.claims + "/a").status()));
  server.stand_in->RotateToken();

  ApiAccess other = server.access;
  other.host = "localhost";  // the certificate is for 127.0.0.1
  const auto reply = ApiServer(other).Get(server.claims + "/a");
  CHECK(absl::IsUnavailable(reply.status()));
  CHECK(std::string(reply.status().message()).find("localhost is not trusted") == 0);
  other = server.access;
  other.ca_file = "/usr/share/none.crt";
  CHECK(absl::IsUnavailable(ApiServer(other).Get(server.claims + "/a").status()));
  other = server.access;
  other.port = "1";
  CHECK(absl::IsUnavailable(ApiServer(other).Get(server.claims + "/a").status()));
}

TEST_CASE("The URL of an API server has a scheme, a host and a port") {
  const auto access = ParseServer("https://[fd00::1]:6443");
  REQUIRE(access.ok());
  CHECK(access->host == "fd00::1");
  CHECK(access->port == "6443");
  for (const char* wrong : {"", "https://", "https://host", "ftp://host:1", "https://host:0",
                            "https://host:70000", "https://:443", "http://a/b:80"}) {
    INFO(wrong);
    CHECK_FALSE(ParseServer(wrong).ok());
  }
  CHECK(Encode("a/b c=d,é") == "a%2Fb%20c%3Dd%2C%C3%A9");
}

// What a watch has told, by name: the value, or "deleted".
struct Told {
  std::mutex mutex;
  std::map<std::string, std::string> values;
  int lists = 0;
  std::string problem;

  ObjectWatch::Callbacks callbacks() {
    ObjectWatch::Callbacks callbacks;
    callbacks.listed = [this](const std::vector<Json>& objects) {
      const std::lock_guard<std::mutex> lock(mutex);
      ++lists;
      values.clear();
      for (const Json& object : objects)
        values[object["metadata"]["name"]] = object["metadata"]["annotations"]["v"];
    };
    callbacks.changed = [this](const Json& object, bool deleted) {
      const std::lock_guard<std::mutex> lock(mutex);
      values[object["metadata"]["name"]] =
          deleted ? "deleted" : object["metadata"]["annotations"]["v"].get<std::string>();
    };
    callbacks.problem = [this](const std::string& text) {
      const std::lock_guard<std::mutex> lock(mutex);
      problem = text;
    };
    return callbacks;
  }
  bool Await(const std::string& name, const std::string& value) {
    for (int i = 0; i < 3000; ++i) {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto found = values.find(name);
        if (found != values.end() ? found->second == value : value.empty()) return true;
      }
      usleep(20'000);
    }
    return false;
  }
};

TEST_CASE("A watch tells what there is, and every change") {
  Server server;
  const ApiServer api(server.access);
  server.stand_in->Put(server.claims, server.Claim("a", "1"));
  server.stand_in->Put(server.claims, server.Claim("b", "1"));
  Told told;
  {
    const ObjectWatch watch(api, server.claims, "metadata.name=a", told.callbacks());
    CHECK(told.Await("a", "1"));
    server.stand_in->Put(server.claims, server.Claim("b", "2"));
    server.stand_in->Put(server.claims, server.Claim("a", "2"));
    CHECK(told.Await("a", "2"));
    server.stand_in->Remove(server.claims, "a");
    CHECK(told.Await("a", "deleted"));
    CHECK(told.values.count("b") == 0);
  }
  const int requests = server.stand_in->requests();
  server.stand_in->Put(server.claims, server.Claim("a", "3"));
  CHECK(server.stand_in->requests() == requests);  // it has ended
}

TEST_CASE("A watch goes on after it was ended, lost its history, or lost the server") {
  Server server;
  const ApiServer api(server.access);
  server.stand_in->Put(server.claims, server.Claim("a", "1"));
  Told told;
  const ObjectWatch watch(api, server.claims, "metadata.name=a", told.callbacks());
  CHECK(told.Await("a", "1"));
  int value = 1;
  for (const ApiServerStandIn::End how :
       {ApiServerStandIn::End::kInOrder, ApiServerStandIn::End::kGone,
        ApiServerStandIn::End::kHangUp}) {
    server.stand_in->EndWatches(how);
    server.stand_in->Put(server.claims, server.Claim("a", std::to_string(++value)));
    CHECK(told.Await("a", std::to_string(value)));
  }
  // The history ends before the watch asks for it, and the server fails meanwhile.
  server.stand_in->FailNext(3, 500);
  server.stand_in->EndWatches(ApiServerStandIn::End::kInOrder);
  server.stand_in->Put(server.claims, server.Claim("a", "lost"));
  server.stand_in->Forget();
  CHECK(told.Await("a", "lost"));
  server.stand_in->RotateToken();
  server.stand_in->HangUpNext(2);
  server.stand_in->EndWatches(ApiServerStandIn::End::kHangUp);
  server.stand_in->Remove(server.claims, "a");
  // Whether it sees the event or a list without the claim, it does not keep the old value.
  CHECK([&] {
    for (int i = 0; i < 3000; ++i) {
      {
        const std::lock_guard<std::mutex> lock(told.mutex);
        const auto found = told.values.find("a");
        if (found == told.values.end() || found->second == "deleted") return true;
      }
      usleep(20'000);
    }
    return false;
  }());
  CHECK(told.lists >= 3);
}

TEST_CASE("Pauses double up to the longest, and a random part is left out") {
  using std::chrono::milliseconds;
  for (int failures = 1; failures < 20; ++failures) {
    const milliseconds pause = Backoff(failures, milliseconds(100), milliseconds(3000));
    const int64_t whole = std::min<int64_t>(100ll << std::min(failures - 1, 10), 3000);
    CHECK(pause.count() >= whole / 2);
    CHECK(pause.count() <= whole);
  }
}

}  // namespace
}  // namespace detshare::kubernetes
