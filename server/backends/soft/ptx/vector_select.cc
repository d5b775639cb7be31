// Must follow all other headers.
#include "server/backends/soft/ptx/vector_lanes.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {

ExecFn Select(VectorOp op, Type t, VectorFlags f, Compare compare) {
  if (const ExecFn fn = SelectMove(op, t); fn != nullptr) return fn;
  if (const ExecFn fn = SelectCompare(op, t, f, compare); fn != nullptr) return fn;
  if (const ExecFn fn = SelectConvert(op, t); fn != nullptr) return fn;
  if (t == Type::kF32 || t == Type::kF64) return SelectFloat(op, t, f);
  if (const ExecFn fn = SelectHalf(op, t); fn != nullptr) return fn;
  if (const ExecFn fn = SelectInteger(op, t, f); fn != nullptr) return fn;
  return SelectBits(op, t, f);
}

}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
