#include "tests/tools/kubernetes/dra/api_server_stand_in.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

namespace detshare::kubernetes {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace ssl = asio::ssl;
using asio::ip::tcp;
using Json = nlohmann::json;

// A certificate for 127.0.0.1 that is its own authority.
void MakeCertificate(const std::string& key_file, const std::string& certificate_file) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  REQUIRE(key != nullptr);
  X509* const certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 24 * 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* const name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("kubernetes"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  for (const auto& [kind, value] : {std::pair(NID_subject_alt_name, "IP:127.0.0.1"),
                                    std::pair(NID_basic_constraints, "critical,CA:TRUE")}) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  REQUIRE(X509_sign(certificate, key, EVP_sha256()) != 0);
  FILE* file = fopen(key_file.c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  fclose(file);
  file = fopen(certificate_file.c_str(), "w");
  PEM_write_X509(file, certificate);
  fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

std::string Decode(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out.push_back(static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16)));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

std::map<std::string, std::string> QueryOf(const std::string& text) {
  std::map<std::string, std::string> query;
  for (const std::string& part : Split(text, '&')) {
    const size_t equals = part.find('=');
    query[part.substr(0, equals)] = Decode(part.substr(equals + 1));
  }
  return query;
}

// Whether an object is one that a field selector, such as "spec.driver=x,spec.nodeName=y", selects.
bool Selected(const Json& object, const std::string& selector) {
  for (const std::string& part : Split(selector, ',')) {
    const size_t equals = part.find('=');
    const Json* value = &object;
    for (const std::string& key : Split(part.substr(0, equals), '.')) {
      if (!value->is_object() || !value->contains(key)) return false;
      value = &(*value)[key];
    }
    if (*value != part.substr(equals + 1)) return false;
  }
  return true;
}

Json Status(int code, const std::string& reason, const std::string& message) {
  return {{"kind", "Status"},   {"apiVersion", "v1"}, {"status", "Failure"},
          {"message", message}, {"reason", reason},   {"code", code}};
}

}  // namespace

ApiServerStandIn::ApiServerStandIn(std::string directory) : directory_(std::move(directory)) {
  MakeCertificate(directory_ + "/key.pem", ca_file());
  RotateToken();
  listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  REQUIRE(bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), bytes) == 0);
  REQUIRE(listen(listen_fd_, 64) == 0);
  getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &bytes);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

ApiServerStandIn::~ApiServerStandIn() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  shutdown(listen_fd_, SHUT_RDWR);
  acceptor_.join();
  close(listen_fd_);
  for (std::thread& connection : connections_) connection.join();
}

std::string ApiServerStandIn::url() const { return "https://127.0.0.1:" + std::to_string(port_); }

void ApiServerStandIn::RotateToken() {
  const std::lock_guard<std::mutex> lock(mutex_);
  token_ = "token-" + std::to_string(++next_uid_);
  std::ofstream(token_file() + ".new") << token_ << "\n";
  rename((token_file() + ".new").c_str(), token_file().c_str());
}

Json ApiServerStandIn::PutLocked(const std::string& collection, Json object) {
  Json& metadata = object["metadata"];
  std::string name = metadata.value("name", "");
  if (name.empty()) {
    name = metadata.value("generateName", "") + "x" + std::to_string(++next_uid_);
    metadata["name"] = name;
  }
  auto& objects = objects_[collection];
  const auto before = objects.find(name);
  const bool added = before == objects.end();
  if (!metadata.contains("uid")) {
    metadata["uid"] = added ? "uid-" + std::to_string(++next_uid_)
                            : before->second["metadata"]["uid"].get<std::string>();
  }
  metadata["resourceVersion"] = std::to_string(++version_);
  objects[name] = object;
  events_.push_back({version_, collection, added ? "ADDED" : "MODIFIED", object});
  changed_.notify_all();
  return object;
}

Json ApiServerStandIn::Put(const std::string& collection, Json object) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return PutLocked(collection, std::move(object));
}

void ApiServerStandIn::Remove(const std::string& collection, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Json object = objects_[collection][name];
  objects_[collection].erase(name);
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  events_.push_back({version_, collection, "DELETED", object});
  changed_.notify_all();
}

std::vector<Json> ApiServerStandIn::List(const std::string& collection) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Json> list;
  const auto found = objects_.find(collection);
  if (found == objects_.end()) return list;
  for (const auto& [name, object] : found->second) list.push_back(object);
  return list;
}

Json ApiServerStandIn::Await(const std::string& collection,
                             const std::function<bool(const Json&)>& wanted) const {
  std::unique_lock<std::mutex> lock(mutex_);
  Json result;
  changed_.wait_for(lock, std::chrono::seconds(60), [&] {
    const auto found = objects_.find(collection);
    if (found == objects_.end()) return false;
    for (const auto& [name, object] : found->second) {
      if (!wanted(object)) continue;
      result = object;
      return true;
    }
    return false;
  });
  return result;
}

void ApiServerStandIn::FailNext(int count, int status, int retry_after, const std::string& right) {
  const std::lock_guard<std::mutex> lock(mutex_);
  fail_count_ = count;
  fail_status_ = status;
  fail_retry_after_ = retry_after;
  fail_right_ = right;
}

void ApiServerStandIn::HangUpNext(int count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  hang_up_count_ = count;
}

void ApiServerStandIn::EndWatches(End how) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++ended_watches_;
  end_how_ = how;
  changed_.notify_all();
}

void ApiServerStandIn::Forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_.clear();
  forgotten_ = ++version_;
}

void ApiServerStandIn::DropTaints(bool drop) {
  const std::lock_guard<std::mutex> lock(mutex_);
  drop_taints_ = drop;
}

void ApiServerStandIn::DropSharing(bool drop) {
  const std::lock_guard<std::mutex> lock(mutex_);
  drop_sharing_ = drop;
}

void ApiServerStandIn::ConflictNext(int count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  conflict_count_ = count;
}

std::set<std::string> ApiServerStandIn::rights_used() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return rights_used_;
}

std::string ApiServerStandIn::problems() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return problems_;
}

int ApiServerStandIn::requests() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return requests_;
}

void ApiServerStandIn::Problem(const std::string& text) { problems_ += text + "\n"; }

void ApiServerStandIn::Accept() {
  for (;;) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (hang_up_count_ > 0) {
      --hang_up_count_;
      close(fd);
      continue;
    }
    connections_.emplace_back([this, fd] { Serve(fd); });
  }
}

void ApiServerStandIn::Serve(int fd) {
  asio::io_context io;
  ssl::context context(ssl::context::tls_server);
  context.use_certificate_chain_file(ca_file());
  context.use_private_key_file(directory_ + "/key.pem", ssl::context::pem);
  ssl::stream<tcp::socket> stream(tcp::socket(io, tcp::v4(), fd), context);
  boost::system::error_code error;
  stream.handshake(ssl::stream_base::server, error);
  if (error) return;
  boost::beast::flat_buffer buffer;
  http::request<http::string_body> request;
  http::read(stream, buffer, request, error);
  if (error) return;

  const std::string target(request.target());
  const size_t question = target.find('?');
  const std::map<std::string, std::string> query =
      QueryOf(question == std::string::npos ? "" : target.substr(question + 1));
  const std::string authorization(request[http::field::authorization]);
  const Reply reply = Handle(std::string(request.method_string()), target, request.body(),
                             std::string(request[http::field::content_type]), authorization);
  if (reply.status != 0) {
    http::response<http::string_body> response;
    response.result(static_cast<unsigned>(reply.status));
    response.set(http::field::content_type, "application/json");
    if (reply.retry_after >= 0)
      response.set(http::field::retry_after, std::to_string(reply.retry_after));
    response.body() = reply.body.dump();
    response.prepare_payload();
    http::write(stream, response, error);
    stream.shutdown(error);
    return;
  }
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
  asio::write(stream, asio::buffer(head), error);
  bool in_order = true;
  Watch(target.substr(0, question), query, [&](const std::string& line) {
    // A client that has gone is noticed at the next event.
    if (line == "\x04") {
      in_order = false;
      return false;
    }
    std::ostringstream chunk;
    chunk << std::hex << line.size() << "\r\n" << line << "\r\n";
    asio::write(stream, asio::buffer(chunk.str()), error);
    return !error;
  });
  if (in_order) asio::write(stream, asio::buffer(std::string("0\r\n\r\n")), error);
}

ApiServerStandIn::Reply ApiServerStandIn::Handle(const std::string& method,
                                                 const std::string& target, const std::string& body,
                                                 const std::string& content_type,
                                                 const std::string& authorization) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++requests_;
  if (authorization != "Bearer " + token_)
    return {401, Status(401, "Unauthorized", "Unauthorized")};
  const size_t question = target.find('?');
  const std::string path = target.substr(0, question);
  const auto query = QueryOf(question == std::string::npos ? "" : target.substr(question + 1));
  std::vector<std::string> parts = Split(path.substr(1), '/');
  std::string collection, name, subresource, resource;
  if (path.rfind("/api/v1/nodes/", 0) == 0 && parts.size() == 4) {
    collection = "/api/v1/nodes";
    name = Decode(parts[3]);
    resource = "nodes";
  } else if (path.rfind(kSlices, 0) == 0 && parts.size() <= 5) {
    collection = kSlices;
    if (parts.size() == 5) name = Decode(parts[4]);
    resource = "resourceslices";
  } else if (parts.size() >= 6 && parts.size() <= 8 && parts[2] == "v1" &&
             parts[3] == "namespaces" && parts[5] == "resourceclaims") {
    collection = ClaimsOf(parts[4]);
    if (parts.size() >= 7) name = Decode(parts[6]);
    if (parts.size() == 8) subresource = parts[7];
    resource = "resourceclaims" + (subresource.empty() ? "" : "/" + subresource);
  } else {
    Problem("unknown path " + method + " " + target);
    return {404, Status(404, "NotFound", "the server could not find the requested resource")};
  }
  const bool watch = query.count("watch") != 0;
  const std::string verb = method == "POST"     ? "create"
                           : method == "PUT"    ? "update"
                           : method == "PATCH"  ? "patch"
                           : method == "DELETE" ? "delete"
                           : !name.empty()      ? "get"
                           : watch              ? "watch"
                                                : "list";
  rights_used_.insert(verb + " " + resource);
  if (fail_count_ > 0 && (fail_right_.empty() || fail_right_ == verb + " " + resource)) {
    --fail_count_;
    return {fail_status_, Status(fail_status_, "Failed", "told to fail"), fail_retry_after_};
  }

  auto& objects = objects_[collection];
  const auto found = objects.find(name);
  if (!name.empty() && found == objects.end()) {
    return {404, Status(404, "NotFound", resource + " \"" + name + "\" not found")};
  }
  if (verb == "get") return {200, found->second};
  if (verb == "watch") {
    const uint64_t from = std::stoull("0" + query.at("resourceVersion"));
    if (from < forgotten_) return {410, Status(410, "Expired", "too old resource version")};
    return {0, Json()};
  }
  if (verb == "list") {
    Json items = Json::array();
    const std::string selector = query.count("fieldSelector") ? query.at("fieldSelector") : "";
    std::string rest;
    const size_t limit =
        query.count("limit") ? static_cast<size_t>(std::stoi(query.at("limit"))) : SIZE_MAX;
    for (const auto& [one, object] : objects) {
      if (query.count("continue") && one <= query.at("continue")) continue;
      if (!Selected(object, selector)) continue;
      if (items.size() == limit) {
        rest = items.back()["metadata"]["name"];
        break;
      }
      items.push_back(object);
    }
    Json metadata = {{"resourceVersion", std::to_string(version_)}};
    if (!rest.empty()) metadata["continue"] = rest;
    return {200, {{"kind", "List"}, {"metadata", metadata}, {"items", items}}};
  }
  const Json object = body.empty() ? Json::object() : Json::parse(body, nullptr, false);
  const std::string wanted_type =
      method == "PATCH" ? "application/apply-patch+yaml" : "application/json";
  if (!object.is_object() || (!body.empty() && content_type != wanted_type)) {
    Problem("a body that is no object, or of type " + content_type);
    return {400, Status(400, "BadRequest", "the body is no object")};
  }
  return Change(method, collection, name, subresource, object);
}

Json ApiServerStandIn::Stored(const std::string& collection, Json object) const {
  if (collection != kSlices || !object["spec"].contains("devices")) return object;
  for (Json& device : object["spec"]["devices"]) {
    if (drop_taints_) device.erase("taints");
    if (drop_sharing_) {
      device.erase("allowMultipleAllocations");
      for (auto& [name, capacity] : device["capacity"].items()) capacity.erase("requestPolicy");
    }
    if (!device.contains("taints")) continue;
    for (Json& taint : device["taints"]) {
      if (!taint.contains("timeAdded"))
        taint["timeAdded"] = "2026-01-01T00:00:" + std::to_string(10 + version_ % 50) + "Z";
    }
  }
  return object;
}

ApiServerStandIn::Reply ApiServerStandIn::Change(const std::string& method,
                                                 const std::string& collection,
                                                 const std::string& name,
                                                 const std::string& subresource,
                                                 const Json& object) {
  auto& objects = objects_[collection];
  if (method == "DELETE") {
    Json deleted = objects[name];
    if (object.contains("preconditions") &&
        object["preconditions"]["uid"] != deleted["metadata"]["uid"])
      return {409, Status(409, "Conflict", "the UID in the precondition does not match")};
    objects.erase(name);
    deleted["metadata"]["resourceVersion"] = std::to_string(++version_);
    events_.push_back({version_, collection, "DELETED", deleted});
    changed_.notify_all();
    return {200, Status(200, "", "")};
  }
  if (method == "PATCH" && subresource == "status") {
    Json changed = objects[name];
    changed["status"]["devices"] = object["status"]["devices"];
    return {200, PutLocked(collection, changed)};
  }
  if (collection != kSlices) {
    Problem("the driver may not change " + collection);
    return {403, Status(403, "Forbidden", "forbidden")};
  }
  const std::string problem = ProblemOfSlice(object["spec"]);
  if (!problem.empty()) {
    Problem("slice: " + problem);
    return {422, Status(422, "Invalid", "ResourceSlice is invalid: " + problem)};
  }
  if (method == "POST") {
    const Json& metadata = object["metadata"];
    if (metadata.contains("name") && objects.count(metadata["name"]) != 0)
      return {409, Status(409, "AlreadyExists", "it already exists")};
    const Json& owner = metadata["ownerReferences"][0];
    if (owner["kind"] != "Node" ||
        owner["uid"] !=
            objects_["/api/v1/nodes"][owner["name"].get<std::string>()]["metadata"]["uid"])
      Problem("the slice does not belong to its node: " + metadata.dump());
    return {201, PutLocked(collection, Stored(collection, object))};
  }
  if (conflict_count_ > 0) {
    --conflict_count_;
    PutLocked(collection, objects[name]);
  }
  const Json& before = objects[name];
  if (object["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"])
    return {409, Status(409, "Conflict", "the object has been modified")};
  for (const char* field : {"driver", "nodeName"}) {
    if (object["spec"][field] != before["spec"][field]) Problem("an immutable field changes");
  }
  if (object["spec"]["pool"]["generation"] <= before["spec"]["pool"]["generation"])
    Problem("the pool changes and keeps its generation");
  return {200, PutLocked(collection, Stored(collection, object))};
}

void ApiServerStandIn::Watch(const std::string& collection,
                             const std::map<std::string, std::string>& query,
                             const std::function<bool(const std::string& line)>& send) {
  uint64_t seen = std::stoull("0" + query.at("resourceVersion"));
  const std::string selector = query.count("fieldSelector") ? query.at("fieldSelector") : "";
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t ended = ended_watches_;
  const auto line = [](const std::string& type, const Json& object) {
    return Json{{"type", type}, {"object", object}}.dump() + "\n";
  };
  for (;;) {
    std::vector<std::string> lines;
    for (const Event& event : events_) {
      if (event.version <= seen || event.collection != collection) continue;
      if (Selected(event.object, selector)) lines.push_back(line(event.type, event.object));
    }
    seen = std::max(seen, version_);
    if (!lines.empty() && query.count("allowWatchBookmarks"))
      lines.push_back(line(
          "BOOKMARK",
          {{"kind", "ResourceSlice"}, {"metadata", {{"resourceVersion", std::to_string(seen)}}}}));
    lock.unlock();
    for (const std::string& one : lines) {
      // In two parts, as a network may deliver it.
      const size_t half = one.size() / 2;
      if (!send(one.substr(0, half)) || !send(one.substr(half))) return;
    }
    lock.lock();
    if (stopped_) return;
    if (ended_watches_ != ended) {
      const End how = end_how_;
      lock.unlock();
      if (how == End::kGone)
        send(line("ERROR", Status(410, "Expired", "too old resource version")));
      if (how == End::kHangUp) send("\x04");
      return;
    }
    changed_.wait(lock, [&] { return stopped_ || version_ != seen || ended_watches_ != ended; });
  }
}

}  // namespace detshare::kubernetes
