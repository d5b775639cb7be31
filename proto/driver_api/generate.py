#!/usr/bin/python3
"""Writes one of the files that are generated from driver_api.table.

usage: generate.py TABLE KIND OUTPUT [HEADER...]      (KIND: one of the keys of KINDS below)

HEADER: what the file includes beside headers of proto/. It declares what the generated code calls.
"""

import sys
import textwrap

import table as table_module

BANNER = "// Generated from driver_api.table by generate.py: do not edit.\n"


def c_string(text):
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"')


def parameters(row):
    return row.parameters() or "void"


def types(row):
    return ", ".join(a.type for a in row.args) or "void"


def includes(headers):
    return "".join('#include "%s"\n' % header for header in headers)


def exported(table):
    return [r for r in table.rows if not r.hidden]


def crossing(table):
    return sorted((r for r in table.rows if r.crosses), key=lambda r: r.op)


# ---- op numbers


def ops_h(table):
    rows = crossing(table)
    out = [BANNER + """#pragma once

#include <cstdint>

namespace detshare {

// The operations that cross from client to daemon. Numbers never change and are never reused. 0 is
// no operation.
enum class Op : uint16_t {"""]
    out += ["  %s = %d,  // %s" % (r.symbol, r.op, r.transport) for r in rows]
    out.append("""};

// The entry point's name, or nullptr for a number that is no operation.
inline const char* OpName(uint16_t op) {
  switch (op) {""")
    out += ['    case %d: return "%s";' % (r.op, r.symbol) for r in rows]
    out.append("""  }
  return nullptr;
}

}  // namespace detshare
""")
    return "\n".join(out)


# ---- all rows as data


def bool_text(value):
    return "true" if value else "false"


def table_h(table):
    out = [BANNER + """#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/driver_api/row.h"

namespace detshare {

// All rows in the table's order: by family, with the variants of a function side by side.
inline constexpr Row kRows[] = {"""]
    for r in table.rows:
        out.append("    {%s, %s, %s, %s, %s, %d, %d, Transport::k%s, Support::k%s, %s, %s, %s, %s}," % (
            c_string(r.symbol), c_string(r.api), c_string(r.family.name), c_string(r.family.title), c_string(r.note),
            r.op, r.version, r.transport.capitalize(), r.support.capitalize(), bool_text(r.variant),
            bool_text(r.before_init), bool_text(r.in_host_function), bool_text(not r.hidden)))
    by_api = sorted(table.rows, key=lambda r: (r.api.encode(), bool(r.variant), r.version))
    out.append("""};
inline constexpr size_t kRowCount = %d;
inline constexpr size_t kExportedRowCount = %d;

// Indices of rows, sorted by the name for cuGetProcAddress. Within one name, the ordinary variants
// come first. Each group is sorted by version.
inline constexpr uint16_t kRowsByApi[] = {""" % (len(table.rows), len(exported(table))))
    for start in range(0, len(by_api), 16):
        out.append("    " + " ".join("%d," % r.index for r in by_api[start:start + 16]))
    out.append("""};

}  // namespace detshare
""")
    return "\n".join(out)


# ---- the shim


def shim_api_h(table):
    out = [BANNER + """#pragma once

#include <cstddef>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// The address of the entry point of row `row` of kRows, exported or not.
void* EntryPoint(size_t row);

}  // namespace detshare::shim

// The handwritten functions: one for each supported row without `via`. Before a call, the generated
// entry point has checked that required pointers are not null, that the driver is initialised
// unless the row says before_init, and that no host function runs unless the row says
// in_host_function.
namespace detshare::shim::api {
"""]
    family = None
    for r in table.rows:
        if not r.implemented:
            continue
        if r.family is not family:
            family = r.family
            out.append("\n// ---- %s" % family.title)
        out.append("CUresult %s(%s);" % (r.symbol, r.parameters()))
    out.append("\n}  // namespace detshare::shim::api\n")
    return "\n".join(out)


def entry_point(row, base):
    """Returns the exported function of `row`.

    `base` is the row whose implementation it calls; None when the row is not supported.
    """
    if row.hidden:
        return "CUresult %s() { return shim::Unsupported(%d); }" % (row.symbol, row.index)
    if base is None:
        return "EXPORT CUresult CUDAAPI %s(%s) { return shim::Unsupported(%d); }" % (row.symbol, types(row), row.index)
    out = ["EXPORT CUresult CUDAAPI %s(%s) {" % (row.symbol, parameters(row))]
    leave = "return shim::Leave<%d>" % row.index
    out.append("  if (const CUresult entered = shim::Enter<%d>(); entered != CUDA_SUCCESS) [[unlikely]] %s(entered);" %
               (row.index, leave))
    nulls = ["%s == nullptr" % a.name for a in row.args if a.must_not_be_null]
    if nulls:
        out.append("  if (%s) [[unlikely]] %s(CUDA_ERROR_INVALID_VALUE);" % (" || ".join(nulls), leave))
    if not row.in_host_function:
        out.append("  if (shim::InHostFunction()) [[unlikely]] %s(CUDA_ERROR_NOT_PERMITTED);" % leave)
    passed = []
    returned = []
    if row.variant == "ptds":
        out.append("  const shim::PerThreadDefaultScope per_thread_default;")
    for arg in row.args:
        if row.variant == "ptsz" and arg.is_stream:
            passed.append("shim::PerThreadStream(%s)" % arg.name)
        elif row.variant == "ptsz" and "stream" in arg.sizes:
            out.append("  auto mapped_%s = *%s;" % (arg.name, arg.name))
            field = "mapped_%s.%s" % (arg.name, arg.sizes["stream"])
            out.append("  %s = shim::PerThreadStream(%s);" % (field, field))
            passed.append("&mapped_%s" % arg.name)
            if arg.direction == "inout":
                # Copies back what the call wrote, but keeps the caller's stream.
                returned.append("  %s = %s->%s;" % (field, arg.name, arg.sizes["stream"]))
                returned.append("  *%s = mapped_%s;" % (arg.name, arg.name))
        else:
            passed.append(arg.name)
    call = "shim::api::%s(%s)" % (base.symbol, ", ".join(passed))
    if returned:
        out.append("  const CUresult result = %s;" % call)
        out.extend(returned)
        call = "result"
    out.append("  %s(%s);" % (leave, call))
    out.append("}")
    return "\n".join(out)


def shim_exports_cc(table, *headers):
    """`headers`: declare what every entry point does before and after its call."""
    out = [BANNER + includes(headers) + """#include "proto/driver_api/shim_api.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace shim = detshare::shim;

// ---- found only by cuGetProcAddress
namespace hidden {
"""]
    for r in table.rows:
        if r.hidden:
            out.append(entry_point(r, None))
    out.append("\n}  // namespace hidden\n\n// ---- exported\n")
    for r in exported(table):
        base = None if r.support == "none" else table.by_symbol[r.via] if r.via else r
        out.append(entry_point(r, base))
    out.append("""
namespace detshare::shim {

void* EntryPoint(size_t row) {
  static void* const kEntryPoints[] = {""")
    for r in table.rows:
        out.append("      reinterpret_cast<void*>(&%s::%s)," % ("hidden" if r.hidden else "", r.symbol))
    out.append("""  };
  return kEntryPoints[row];
}

}  // namespace detshare::shim
""")
    return "\n".join(out)


# ---- the server


def server_dispatch_h(table):
    out = [BANNER + """#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/driver_api/row.h"

namespace detshare {

class Session;
class Reply;

// The bytes after the argument struct. A private copy of the daemon, like the struct. The client may
// have sent any bytes, so the daemon checks them.
using Payload = std::span<const uint8_t>;

enum class Dispatched : uint8_t {
  kHandled,
  kUnknownOp,    // no operation has this number
  kWrongTransport,  // a ring operation in a control call over gRPC
  kWrongLength,  // `args` is not as long as the operation's struct
};

// `transport`: kRing for a record of the ring, kControl for a call over gRPC. Checks the op, its transport and the length of `args`, copies the struct and calls the handler.
// Any result but kHandled means that the client broke the protocol and no handler was called.
Dispatched Dispatch(Transport transport, uint16_t op, std::span<const uint8_t> args, Payload payload, Session& session,
                    Reply& reply);

// Whether the operation is a control call. False for a number that is no operation.
bool IsControlCall(uint16_t op);

"""]
    out.append("namespace wire {")
    out.extend("struct %s;" % r.symbol for r in table.rows if r.crosses)
    out.append("""}  // namespace wire

// The handwritten handlers: one for each operation that crosses from client to daemon.
namespace handlers {
""")
    family = None
    for r in table.rows:
        if not r.crosses:
            continue
        if r.family is not family:
            family = r.family
            out.append("\n// ---- %s" % family.title)
        out.append("void %s(Session& session, const wire::%s& args, Payload payload, Reply& reply);" %
                   (r.symbol, r.symbol))
    out.append("\n}  // namespace handlers\n}  // namespace detshare\n")
    return "\n".join(out)


def server_dispatch_cc(table):
    out = [BANNER + """#include "proto/driver_api/server_dispatch.h"

#include <cstring>
#include <type_traits>

#include "proto/wire/all.h"

namespace detshare {
namespace {

template <typename Args>
Dispatched Call(void (*handler)(Session&, const Args&, Payload, Reply&), std::span<const uint8_t> bytes, Payload payload,
                Session& session, Reply& reply) {
  static_assert(std::is_trivially_copyable_v<Args> && std::has_unique_object_representations_v<Args>,
                "a wire struct has no hidden padding");
  static_assert(sizeof(Args) % 8 == 0, "a wire struct fills whole 8-byte words");
  if (bytes.size() != sizeof(Args)) return Dispatched::kWrongLength;
  Args args;
  std::memcpy(&args, bytes.data(), sizeof(args));
  handler(session, args, payload, reply);
  return Dispatched::kHandled;
}

// Control calls may also come through the ring.
constexpr bool MayCome(Transport transport, Transport row) {
  return transport == row || (row == Transport::kControl && transport == Transport::kRing);
}

}  // namespace

Dispatched Dispatch(Transport transport, uint16_t op, std::span<const uint8_t> args, Payload payload, Session& session,
                    Reply& reply) {
  switch (op) {"""]
    for r in crossing(table):
        out.append("""    case %d:
      if (!MayCome(transport, Transport::k%s)) return Dispatched::kWrongTransport;
      return Call(&handlers::%s, args, payload, session, reply);""" % (r.op, r.transport.capitalize(), r.symbol))
    out.append("""  }
  return Dispatched::kUnknownOp;
}

bool IsControlCall(uint16_t op) {
  switch (op) {""")
    out += ["    case %d:" % r.op for r in crossing(table) if r.transport == "control"]
    out.append("""      return true;
  }
  return false;
}

}  // namespace detshare
""")
    return "\n".join(out)


# ---- checks by the compiler


def prototype_check_cc(table):
    """Returns a file that compiles only when all prototypes and versions agree with the toolkit's headers."""
    out = [BANNER + """#include <type_traits>

#include "proto/driver_api/cuda_unrenamed.h"
// clang-format off
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>
// clang-format on
"""]
    for r in exported(table):
        out.append('static_assert(std::is_same_v<decltype(::%s), CUresult CUDAAPI(%s)>, "cuda.h");' %
                   (r.symbol, r.parameters()))
        suffix = "_" + r.variant if r.variant else ""
        out.append('static_assert(std::is_same_v<PFN_%s_v%d%s, decltype(&::%s)>, "cudaTypedefs.h");' %
                   (r.api, r.version, suffix, r.symbol))
    return "\n".join(out) + "\n"


# ---- for the tests of the generated code


def recording_api_cc(table, *headers):
    """Returns implementations of all supported rows that record their call. `headers` declare Record()."""
    out = [BANNER + """#include "proto/driver_api/shim_api.h"
""" + includes(headers) + """
namespace detshare::shim::api {
"""]
    for r in table.rows:
        if r.implemented:
            out.append("CUresult %s(%s) { return Record(%s); }" %
                       (r.symbol, parameters(r), ", ".join([c_string(r.symbol)] + [a.name for a in r.args])))
    out.append("\n}  // namespace detshare::shim::api\n")
    return "\n".join(out)


def recording_handlers_cc(table, *headers):
    """Returns handlers of all operations that record their call. `headers` declare RecordHandler()."""
    out = [BANNER + """#include "proto/driver_api/server_dispatch.h"
#include "proto/wire/all.h"
""" + includes(headers) + """
namespace detshare::handlers {
"""]
    for r in crossing(table):
        out.append("void %s(Session&, const wire::%s&, Payload payload, Reply&) { RecordHandler(%s, payload.size()); }" %
                   (r.symbol, r.symbol, c_string(r.symbol)))
    out.append("""
}  // namespace detshare::handlers

namespace detshare {

const std::vector<CrossingRow> kCrossingRows = {""")
    for r in crossing(table):
        out.append("    {%s, %d, sizeof(wire::%s)}," % (c_string(r.symbol), r.op, r.symbol))
    out.append("""};

}  // namespace detshare
""")
    return "\n".join(out)


# ---- the page for people


def cuda_version(number):
    return "%d.%d" % (number // 1000, number % 1000 // 10)


WHAT_WAS_RUN = """
## Frameworks and libraries that were run

On NVIDIA H200 GPUs, driver 580.159.04, on 2026-11-21, natively and through DetShare with equal results
([frameworks.md](frameworks.md) says what, and what differs):

| | version |
|---|---|
| PyTorch, torchvision, transformers | 2.11.0+cu130, 0.26.0, 5.17.0 |
| Triton (with `torch.compile` and by itself) | 3.6.0 |
| JAX | 0.11.2 |
| CuPy | 14.2.0 |
| numba, numba-cuda | 0.68.0, 0.30.4 |
| cuda-bindings, cuda-core | 13.3.1, 1.2.0 |
| nvidia-ml-py | 13.610.43 |
| cuBLAS and cuBLASLt, cuDNN | 13.1.0, 9.19.0 |
| cuFFT, cuRAND, cuSOLVER, cuSPARSE | 12.0.0, 10.4.0, 12.0.4, 12.6.3 |
| NVRTC, nvJitLink | 13.0.88 |
| NCCL, two GPUs, in threads and in processes | 2.28.9, also over shared host memory (`NCCL_P2P_DISABLE=1`) |

## Public suites that were run

On an NVIDIA H100, driver 580.159.04, on 2026-11-27, natively and through DetShare with `isolation = "tenant"`, eight programs
at once in eight tenants. A program counts as equal if its exit status and its output are those of the native run. Times, rates and
what two native runs print differently do not count. Programs of cuda-samples that need graphics, MPI or NvSci were left out.

| | cuda-samples (c94ff366, 2025-09-05) | HeCBench (f27000a51, 2026-05-19) |
|---|--:|--:|
| programs | 141 | 529 |
| not built: needs files or libraries that were not there | 14 | 44 |
| fails natively as well: needs input files, two GPUs and so on | 17 | 70 |
| takes longer than the limit natively (10 to 15 s) | 2 | 202 |
| **compared** | **108** | **213** |
| equal | 106 | 211 |
| differs | 2 | 2 |

| program | what differs |
|---|---|
| `deviceQueryDrv` | "Supports MultiDevice Co-op Kernel Launch: No". Such launches are refused, and the attribute says so. |
| `graphMemoryFootprint` | Its graphs take more memory: natively the graphs of one stream share memory. |
| `groupnorm` | The program has a race: threads rewrite shared memory that others still read. Preemption shows it; the native runs had no bad sums. |
| `warpsort` | It took more than 60 s once, beside seven programs that used the GPU all the time. Alone it takes 1.6 s, natively 2.2 s, and is equal. |

On the software GPU ran, on 2026-11-30 (CUDA 13.0, code as PTX, not compared with a native run):

| suite | programs | result |
|---|--:|---|
| hashcat 6.2.6 of Debian, modes 0, 900, 1400, 1700 and 3200, with its self-tests | 5 | all find their password |
| PolyBench/GPU, matrices of 96 x 96 | 20 | 16 equal to the CPU; three differ, and their sources have a race or a wrong grid; one prints no comparison |
| Rodinia (9 programs, and 10 others) | 19 | 18 end without an error; `lud` calls `getopt_long` without arguments and crashes on the host |
| cuda-api-wrappers, examples | 45 | 40 end without an error; five need libraries of which there were only stubs |
| nvbandwidth 0.8, also with two devices | 1 | all test cases that apply |
| Altis, with managed memory, cooperative launches, dynamic parallelism and graphs | 22 | 17 end without an error; the others need cuBLAS or input files, or take minutes |
| code samples of NVIDIA's blog | 21 | 17 end without an error; the others need machine code of cuBLAS or cuRAND, or take minutes |
| BabelStream, cuda_memtest | 2 | pass, but for kernels on `malloc` memory, which are not offered |
| pycuda, `test_driver.py` | 33 | 19 pass, 12 do not apply, 2 do not find a file of the toolkit |

## Programs of older toolkits that were run

Programs that were built with CUDA 11 or 12 run unchanged. The test programs (`tests/programs`) were built with these
toolkits, and run through DetShare on the software GPU on 2026-11-26. A program counts as equal if all of its own checks hold and
it prints what the tests expect of it when CUDA 13.0 has built it. Where the arguments of a function have changed since, the
program calls the form that its own toolkit has. Programs that need functions of a later toolkit were left out: 23 of 117 for
CUDA 11.8 (24 for `compute_75`), and 13 for CUDA 12.4. Two more need two devices.

| toolkit (host compiler g++ 11) | code | CUDA runtime | programs | equal | other |
|---|---|---|--:|--:|--:|
| 11.8.89 | PTX 7.8 for `compute_80` | 11.8.89, static | 92 | 86 | 6 |
| 11.8.89 | PTX 7.8 for `compute_75` | 11.8.89, static | 91 | 85 | 6 |
| 11.8.89 | PTX 7.8 for `compute_80` | 11.8.89, shared | 6 | 6 | 0 |
| 11.8.89 | PTX 7.8 for `compute_80` | 11.2.152, static | 85 | 80 | 5 |
| 12.4.131 | PTX 8.4 for `compute_80` | 12.4.127, static | 102 | 99 | 3 |
| 12.4.131 | PTX 8.4 for `compute_75` | 12.4.127, static | 102 | 99 | 3 |

The programs include relocatable code (`-rdc=true`), managed variables, cooperative launches, textures, graphs, and programs that
are linked with `-lcuda`. The toolkit explains each result in the last column:

| program | toolkit | what differs |
|---|---|---|
| `error_handling` | all | The older runtime itself has other errors: `cudaErrorInvalidConfiguration` for a wrong shape of a launch, `cudaErrorInvalidDeviceFunction` for the attributes of no kernel. |
| `async_copies`, `async_copies_sm90` | 11.8 | `producer_acquire` of its `cuda::pipeline` does not wait until all threads have released a stage of a pipeline whose threads all produce and consume, so the program has a race. |
| `stream_memory_ops` | 11.8 | It calls the first version of `cuStreamWaitValue32`, which the device does not offer (`CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1` is 0). |
| `device_queries` | runtime 11.2 | It compares the runtime's version with that of its headers, which are of 11.8. |
| `graph_programmatic` | 12.4 | It asks for edges in the form that has no edge data, and gets `cudaErrorLossyQuery`. |
| `cufft_transforms` | 11.8 | A part of this cuFFT has machine code alone, which the software GPU does not run. |
| `nvrtc_machine_code` | 11.8, 12.4 | This NVRTC does not keep its results in the driver's compile cache, so the software GPU does not see the PTX ([software_gpu.md](software_gpu.md)). |

Texture references of CUDA 11 are not offered. `tests/programs/old_signatures` calls the older forms of functions
that have changed since, from `cuStreamBeginCapture` of 10.0 to `cuMemcpyBatchAsync` of 12.8. A unit test compares what
`cuGetProcAddress` gives for each name and version with the answers of driver 580. The toolkits 12.0 and 12.8 were not run.
"""


def docs_md(table):
    rows = exported(table)
    out = ["""<!-- Generated from proto/driver_api/driver_api.table: bazel run //proto/driver_api:update_docs -->
# Which CUDA driver functions work

DetShare's `libcuda.so.1` replaces that of CUDA 13.0 and exports the same %d functions. An unsupported function returns
`CUDA_ERROR_NOT_SUPPORTED`, and with `DETSHARE_LOG=warning` the library prints its name once. `detsharectl api` prints this
table. `detsharectl api --unsupported` prints those that are not supported in full, with the reasons.

*Since* is the CUDA version that introduced this form of the function, as `cuGetProcAddress` counts versions. *Transport* says
where a call is executed: in the client itself (`local`), or in the daemon, which gets it through shared memory (`ring`) or as
a control call (`control`).
""" % len(rows)]
    out.append("| Family | Functions | Full | Partial | None |")
    out.append("|---|--:|--:|--:|--:|")
    for family in table.families:
        mine = [r for r in rows if r.family is family]
        out.append("| [%s](#%s) | %d | %s |" % (family.title, anchor(family.title), len(mine), counts(mine)))
    out.append("| **All** | **%d** | %s |" % (len(rows), counts(rows)))
    for family in table.families:
        out.append("\n## %s\n" % family.title)
        out.append("| Function | Since | Transport | Support | Note |")
        out.append("|---|---|---|---|---|")
        for r in rows:
            if r.family is family:
                note = " ".join(x for x in (r.note, "As `%s`." % r.via if r.via else "") if x)
                out.append("| `%s` | %s | %s | %s |%s |" %
                           (r.symbol, cuda_version(r.version), "" if r.transport == "none" else r.transport, r.support,
                            " " + note if note else ""))
    out.append(WHAT_WAS_RUN)
    permitted = sorted({r.api for r in rows if r.in_host_function and r.implemented})
    out.append("""
## What host functions may call

A host function or stream callback may call these functions, as natively. All others return `CUDA_ERROR_NOT_PERMITTED`
there. So do these with the default stream, because a host function has no current context:
%s.
""" % textwrap.fill(", ".join("`%s`" % name for name in permitted), 120))
    only = sorted({r.api for r in table.rows if r.hidden})
    out.append("""
## Known to `cuGetProcAddress` only

These graphics functions are not in the driver's link library; programs get them by name. `cuGetProcAddress` finds them, but
they are not supported:
%s.
""" % ", ".join("`%s`" % name for name in only))
    return "\n".join(out)


def counts(rows):
    return " | ".join(str(sum(r.support == s for r in rows)) for s in table_module.SUPPORT)


def anchor(title):
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


KINDS = {
    "ops.h": ops_h,
    "table.h": table_h,
    "shim_api.h": shim_api_h,
    "shim_exports.cc": shim_exports_cc,
    "server_dispatch.h": server_dispatch_h,
    "server_dispatch.cc": server_dispatch_cc,
    "prototype_check.cc": prototype_check_cc,
    "recording_api.cc": recording_api_cc,
    "recording_handlers.cc": recording_handlers_cc,
    "docs.md": docs_md,
}


def main(argv):
    if len(argv) < 4 or argv[2] not in KINDS:
        sys.stderr.write(__doc__ + "kinds: %s\n" % " ".join(KINDS))
        return 2
    try:
        text = KINDS[argv[2]](table_module.load(argv[1]), *argv[4:])
    except table_module.TableError as error:
        sys.stderr.write("%s\n" % error)
        return 1
    with open(argv[3], "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
