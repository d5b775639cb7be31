#include "server/backends/soft/ptx/unit.h"

namespace detshare::soft::ptx {

void RaiseFault(Context& c, const Instr& in, FaultKind kind, uint64_t address, uint32_t lane) {
  Fault& fault = c.unit->fault;
  if (fault.kind == FaultKind::kNone) {
    const PreparedLaunch& launch = *c.unit->launch;
    const auto& dims = launch.config.block;
    const uint32_t thread = c.warp->index * kLanes + lane;
    fault.kind = kind;
    fault.address = address;
    fault.kernel = launch.info->name;
    fault.block = c.block->id;
    fault.thread = {thread % dims[0], thread / dims[0] % dims[1], thread / dims[0] / dims[1]};
    fault.line = in.line;
  }
  EndTurn(c);
}

}  // namespace detshare::soft::ptx
