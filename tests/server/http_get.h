// Makes an HTTP request at a unix socket.
#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/server/daemon_fixture.h"

namespace detshare {

inline std::string HttpGet(const std::string& socket, const std::string& target) {
  const int fd = ConnectTo(socket);
  REQUIRE(fd >= 0);
  const std::string request = "GET " + target + " HTTP/1.1\r\nConnection: close\r\n\r\n";
  REQUIRE(write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size()));
  std::string response;
  char buffer[65536];
  for (ssize_t got; (got = read(fd, buffer, sizeof(buffer))) > 0;)
    response.append(buffer, static_cast<size_t>(got));
  close(fd);
  return response;
}

inline std::string BodyOf(const std::string& response) {
  return response.substr(response.find("\r\n\r\n") + 4);
}

}  // namespace detshare
