#include "policy/config/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cctype>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace detshare {
namespace {

absl::Status Wrong(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text.substr(0, 100), "\" ", why));
}

bool IsNumeric(const std::string& host, bool ipv6) {
  in6_addr address{};
  return inet_pton(ipv6 ? AF_INET6 : AF_INET, host.c_str(), &address) == 1;
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text) {
  ListenAddress address;
  if (!text.empty() && text[0] == '/') {
    if (text.size() >= sizeof(sockaddr_un::sun_path))
      return Wrong(text, "is too long for a socket's path: at most 107 characters");
    address.path = std::string(text);
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return Wrong(text, "has no port");
  absl::string_view host = text.substr(0, colon);
  const absl::string_view port = text.substr(colon + 1);
  const bool digits =
      !port.empty() && port.size() <= 5 &&
      std::all_of(port.begin(), port.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  uint32_t number = 0;
  if (!digits || !absl::SimpleAtoi(port, &number) || number > 65535)
    return Wrong(text, "has no port of 0 to 65535");
  address.port = static_cast<uint16_t>(number);
  address.ipv6 = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (address.ipv6) host = host.substr(1, host.size() - 2);
  address.host = host == "localhost" ? "127.0.0.1" : std::string(host);
  if (!IsNumeric(address.host, address.ipv6)) return Wrong(text, "has no numeric address");
  return address;
}

bool IsExposed(const ListenAddress& address) {
  if (!address.path.empty()) return false;
  if (address.ipv6) {
    in6_addr host{};
    return inet_pton(AF_INET6, address.host.c_str(), &host) != 1 || !IN6_IS_ADDR_LOOPBACK(&host);
  }
  in_addr host{};
  return inet_pton(AF_INET, address.host.c_str(), &host) != 1 || ntohl(host.s_addr) >> 24 != 127;
}

}  // namespace detshare
