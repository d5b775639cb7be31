// A link as it crosses to the daemon, and its answer.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "client_shim/objects.h"
#include "client_shim/session.h"
#include "proto/wire/library.h"

namespace detshare::shim {

// Points into the state, which must stay as it is (its lock is held).
class LinkRequest {
 public:
  explicit LinkRequest(const LinkState& state);

  const wire::cuLinkComplete& args() const { return args_; }
  std::span<const Piece> payload() const { return payload_; }

 private:
  wire::cuLinkComplete args_{};
  std::vector<wire::LinkInput> headers_;
  std::vector<Piece> payload_;
};

// What the daemon sent, within `answer`. False when that is malformed.
struct LinkAnswer {
  std::string_view image, info, error;
};
bool ParseLinkAnswer(std::string_view answer, LinkAnswer* parts);

}  // namespace detshare::shim
