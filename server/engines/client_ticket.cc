#include "server/engines/client_ticket.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "server/base/logging.h"
#include "server/engines/engine_list.h"

namespace detshare {
namespace {

constexpr size_t kKeyBytes = 32;

// No two processes have the same.
struct Process {
  uint64_t start_time = 0;
  int64_t pid = 0;
  uint64_t uid = 0;
};

}  // namespace

TicketKey TicketKey::Random() {
  std::string bytes(kKeyBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), kKeyBytes) != 1) {
    LogError("the kernel gives no random bytes");
    abort();
  }
  return TicketKey(std::move(bytes));
}

std::optional<TicketKey> TicketKey::FromBytes(std::string_view bytes) {
  if (bytes.size() != kKeyBytes) return std::nullopt;
  return TicketKey(std::string(bytes));
}

std::string TicketKey::TicketFor(pid_t pid, uid_t uid) const {
  Process process;
  if (pid != 0) {
    const std::optional<uint64_t> start_time = StartTimeOf(pid);
    if (!start_time.has_value()) return "";
    process.start_time = *start_time;
  }
  process.pid = pid;
  process.uid = uid;
  std::string ticket(EVP_MAX_MD_SIZE, '\0');
  unsigned int length = 0;
  HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
       reinterpret_cast<const unsigned char*>(&process), sizeof(process),
       reinterpret_cast<unsigned char*>(ticket.data()), &length);
  ticket.resize(length);
  return ticket;
}

bool TicketKey::Accepts(std::string_view ticket, pid_t pid, uid_t uid) const {
  const std::string right = TicketFor(pid, uid);
  return !right.empty() && ticket.size() == right.size() &&
         CRYPTO_memcmp(ticket.data(), right.data(), right.size()) == 0;
}

}  // namespace detshare
