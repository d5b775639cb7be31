#include "client_shim/code/link_request.h"

#include <cstring>

#include "proto/wire/library.h"

namespace detshare::shim {

HandleTable<LinkState>& links() {
  static auto* const table = new HandleTable<LinkState>;
  return *table;
}

LinkRequest::LinkRequest(const LinkState& state) {
  args_.input_count = static_cast<uint32_t>(state.inputs.size());
  args_.jit_option_count = static_cast<uint32_t>(state.options.plain().size());
  args_.info_log_bytes = state.options.info_log_bytes();
  args_.error_log_bytes = state.options.error_log_bytes();
  headers_.reserve(state.inputs.size());  // the payload has its addresses
  for (const LinkState::Input& input : state.inputs) {
    const wire::LinkInput& header = headers_.emplace_back(
        wire::LinkInput{input.type, static_cast<uint32_t>(input.name.size()), input.bytes.size()});
    payload_.push_back({&header, sizeof(header)});
    payload_.push_back({input.name.data(), input.name.size()});
    payload_.push_back({input.bytes.data(), input.bytes.size()});
  }
  payload_.push_back(
      {state.options.plain().data(), state.options.plain().size() * sizeof(wire::JitOption)});
}

bool ParseLinkReply(std::string_view reply, LinkReply* parts) {
  wire::cuLinkComplete_Reply fixed;
  if (reply.size() < sizeof(fixed)) return false;
  memcpy(&fixed, reply.data(), sizeof(fixed));
  reply.remove_prefix(sizeof(fixed));
  const auto take = [&](uint64_t bytes, std::string_view* part) {
    if (bytes > reply.size()) return false;
    *part = reply.substr(0, bytes);
    reply.remove_prefix(bytes);
    return true;
  };
  return take(fixed.image_bytes, &parts->image) && take(fixed.info_log_bytes, &parts->info) &&
         take(fixed.error_log_bytes, &parts->error);
}

}  // namespace detshare::shim
