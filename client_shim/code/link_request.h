// A link: its inputs as the program adds them, the request that the shim sends to the daemon, and
// the reply.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client_shim/base/handle_table.h"
#include "client_shim/code/jit_options.h"
#include "client_shim/transport/session.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"
#include "proto/wire/library.h"

namespace detshare::shim {

// A CUlinkState. Any thread may use it.
struct LinkState {
  struct Input {
    uint32_t type = 0;
    std::string name;
    std::string bytes;
  };
  uint64_t handle = 0;
  uint32_t index = 0;
  std::mutex mutex;  // guards the rest
  uint16_t device = 0;
  ContextId context = 0;
  std::vector<Input> inputs;
  JitOptions options;
  std::string image;  // after cuLinkComplete
  bool complete = false;
  CUresult failed = CUDA_SUCCESS;  // the result of every later step
};
HandleTable<LinkState>& links();

// The request to the daemon. It points into the state, which must not change: the caller holds its
// lock.
class LinkRequest {
 public:
  explicit LinkRequest(const LinkState& state);

  const wire::cuLinkComplete& args() const { return args_; }
  std::span<const ConstBuffer> payload() const { return payload_; }

 private:
  wire::cuLinkComplete args_{};
  std::vector<wire::LinkInput> headers_;
  std::vector<ConstBuffer> payload_;
};

// The parts of the daemon's reply. They point into `reply`. ParseLinkReply returns false if the
// reply is malformed.
struct LinkReply {
  std::string_view image, info, error;
};
bool ParseLinkReply(std::string_view reply, LinkReply* parts);

}  // namespace detshare::shim
