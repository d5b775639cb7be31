#!/usr/bin/python3
"""Writes one of the files that are generated from nvml.table.

usage: generate.py TABLE KIND OUTPUT [HEADER...]      (KIND: one of the keys of KINDS below)

HEADER: what the file includes beside headers of proto/. It declares what the generated code calls.
"""

import re
import sys

BANNER = "// Generated from nvml.table by generate.py: do not edit.\n"
C_TYPES = {"u32": "unsigned int", "i32": "int", "u64": "unsigned long long"}
KINDS_OF_RESULT = ("text", "text80", "list", "versioned", "words")


class Row:
    def __init__(self, family, name, source, flags=(), arguments=(), results=()):
        self.family, self.name, self.source, self.flags = family, name, source, flags
        self.device = "device" in arguments
        self.peer = "peer" in arguments
        self.numbers = [a for a in arguments if a not in ("device", "peer")]
        self.results = results  # (kind or C type, name)

    @property
    def wrapped(self):
        return "wrapped" in self.flags or "special" in self.flags

    @property
    def kind(self):
        """The kind of its result: `plain` for numbers and structs."""
        kind = self.results[0][0]
        return kind if kind in KINDS_OF_RESULT else "plain"

    @property
    def number_count(self):
        return len(self.numbers) + (self.kind == "versioned")


class Family:
    def __init__(self, title):
        self.title, self.note, self.rows = title, "", []


def fail(path, line, message):
    sys.exit("%s:%d: %s" % (path, line, message))


def parse_host(path, line, family, name, source, signature):
    flags = source.split()[1:]
    if not set(flags) <= {"fixed", "wrapped", "special"} or "->" not in signature:
        fail(path, line, "not a host row")
    left, right = (part.strip() for part in signature.split("->"))
    arguments = [a.strip() for a in left.split(",")] if left else []
    results = []
    for result in right.split(","):
        kind, result_name = result.split()
        results.append((C_TYPES.get(kind, kind), result_name))
    if len(results) > 1 and any(kind in KINDS_OF_RESULT for kind, _ in results):
        fail(path, line, "one result of this kind only")
    return Row(family, name, "host", flags, arguments, results)


def parse(path):
    families, names = [], set()
    for number, text in enumerate(open(path), 1):
        text = text.rstrip("\n")
        if not text.strip() or text.startswith("#"):
            continue
        opened = re.fullmatch(r'family "(.+)"', text)
        if opened:
            families.append(Family(opened.group(1)))
            continue
        if text.startswith("  note: ") and families:
            families[-1].note = text[len("  note: "):]
            continue
        fields = [field.strip() for field in text.split("|")]
        if not families or len(fields) < 2 or not re.fullmatch(r"nvml\w+", fields[0]):
            fail(path, number, "not a row")
        if fields[0] in names:
            fail(path, number, "a second row for " + fields[0])
        names.add(fields[0])
        if fields[1].split()[0] == "host" and len(fields) == 3:
            row = parse_host(path, number, families[-1], fields[0], fields[1], fields[2])
        elif fields[1] in ("tenant", "none") and len(fields) == 2:
            row = Row(families[-1], fields[0], fields[1])
        else:
            fail(path, number, "a row is tenant, host or none")
        families[-1].rows.append(row)
    return families


def rows_of(families):
    return [row for family in families for row in family.rows]


def host_rows(families):
    return sorted((r for r in rows_of(families) if r.source == "host"), key=lambda r: r.name)


def includes(headers):
    return "".join('#include "%s"\n' % header for header in headers)


def pointer(c_type, name):
    return "%s* %s" % (c_type, name)


def parameters(row):
    out = ["nvmlDevice_t device"] * row.device + ["nvmlDevice_t peer"] * row.peer
    out += ["unsigned int " + n for n in row.numbers]
    name = row.results[0][1]
    if row.kind == "plain":
        out += [pointer(*result) for result in row.results]
    elif row.kind == "text":
        out += [pointer("char", name), "unsigned int length"]
    elif row.kind == "text80":
        out += [pointer("char", name)]
    elif row.kind == "list":
        out += [pointer("unsigned int", "count"), pointer("unsigned int", name)]
    else:
        out += [pointer("void", name)]
    return out


# ---- the shim


def exports_cc(families, *headers):
    out = [BANNER + "\n" + includes(headers) + """#include "proto/nvml/nvml_types.h"

namespace detshare::nvml {

// ---- functions that the host's NVML executes
"""]
    for row in host_rows(families):
        if row.wrapped:
            continue
        subject = "Subject(%s)" % ", ".join(["device"] * row.device + ["peer"] * row.peer)
        start = '"%s", Age::%s, %s' % (row.name, "kFixed" if "fixed" in row.flags else "kLive", subject)
        if row.kind != "versioned":
            start += ", {%s}" % ", ".join(row.numbers)
        name = row.results[0][1]
        call = {
            "plain": lambda: "AskPlain(%s, {%s})" % (start, ", ".join("Out(%s)" % n for _, n in row.results)),
            "text": lambda: "AskText(%s, %s, length)" % (start, name),
            "text80": lambda: "AskText(%s, %s, 80)" % (start, name),
            "list": lambda: "AskList(%s, count, %s)" % (start, name),
            "versioned": lambda: "AskVersioned(%s, %s)" % (start, name),
        }[row.kind]()
        out.append("DETSHARE_EXPORT nvmlReturn_t %s(%s) {\n  return %s;\n}\n" % (
            row.name, ", ".join(parameters(row)), call))
    out.append("// ---- unsupported functions, with any arguments\n")
    for row in rows_of(families):
        if row.source == "none":
            out.append('DETSHARE_EXPORT nvmlReturn_t %s() { return Unsupported("%s"); }' % (row.name, row.name))
    out.append("\n}  // namespace detshare::nvml\n")
    return "\n".join(out)


# ---- the daemon


def host_functions_h(families):
    out = [BANNER + """#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace detshare::nvml {

// A function of the host's NVML that the daemon calls for a client.
struct HostFunction {
  std::string_view name;
  bool device;    // takes a device
  bool peer;      // takes a second device
  bool fixed;     // its result never changes
  int arguments;  // the number of its 32-bit arguments
};

// Sorted by name.
inline constexpr HostFunction kHostFunctions[] = {"""]
    for row in host_rows(families):
        out.append('    {"%s", %s, %s, %s, %d},' % (row.name, str(row.device).lower(), str(row.peer).lower(),
                                                   str("fixed" in row.flags).lower(), row.number_count))
    out.append("""};

// The function of this name, or nullptr.
inline const HostFunction* FindHostFunction(std::string_view name) {
  const HostFunction* const end = std::end(kHostFunctions);
  const HostFunction* const found = std::lower_bound(
      std::begin(kHostFunctions), end, name,
      [](const HostFunction& function, std::string_view wanted) { return function.name < wanted; });
  return found != end && found->name == name ? found : nullptr;
}

}  // namespace detshare::nvml
""")
    return "\n".join(out)


def host_calls_cc(families, *headers):
    out = [BANNER + "\n" + includes(headers) + """
namespace detshare::cuda {
namespace {
"""]
    rows = host_rows(families)
    for row in rows:
        if "special" in row.flags:
            continue
        types = [p.rsplit(" ", 1)[0] for p in parameters(row)]
        given = ["device"] * row.device + ["peer"] * row.peer
        given += ["arguments[%d]" % i for i in range(len(row.numbers))]
        out.append("HostResult Call_%s([[maybe_unused]] const HostNvml& nvml, [[maybe_unused]] nvmlDevice_t device,\n"
                   "    [[maybe_unused]] nvmlDevice_t peer, [[maybe_unused]] const uint32_t* arguments) {" % row.name)
        out.append('  const auto function = nvml.Find<nvmlReturn_t (*)(%s)>("%s");' % (", ".join(types), row.name))
        out.append("  if (function == nullptr) return {NVML_ERROR_FUNCTION_NOT_FOUND, {}};")
        if row.kind == "plain":
            for c_type, name in row.results:
                out.append("  %s %s{};" % (c_type, name))
            names = [n for _, n in row.results]
            out.append("  const nvmlReturn_t result = function(%s);" % ", ".join(given + ["&" + n for n in names]))
            out.append("  return Packed(result, %s);" % ", ".join(names))
        else:
            helper = {"text": "CallForText", "text80": "CallForText80", "list": "CallForList",
                      "versioned": "CallVersioned"}[row.kind]
            lambda_parameters = {"text": "char* text, unsigned int length", "text80": "char* text",
                                 "list": "unsigned int* count, unsigned int* list", "versioned": "void* data"}[row.kind]
            names = [p.rsplit(" ", 1)[1] for p in lambda_parameters.split(", ")]
            extra = ", arguments[%d]" % len(row.numbers) if row.kind == "versioned" else ""
            out.append("  return %s([&](%s) { return function(%s); }%s);" % (
                helper, lambda_parameters, ", ".join(given + names), extra))
        out.append("}\n")
    out.append("}  // namespace\n")
    out.append("const HostCall kHostCalls[] = {")
    for row in rows:
        out.append("    %s%s," % ("Special_" if "special" in row.flags else "Call_", row.name))
    out.append("};\n\n}  // namespace detshare::cuda\n")
    return "\n".join(out)


# ---- all rows as data, for tests


def table_h(families):
    out = [BANNER + """#pragma once

namespace detshare::nvml {

enum class Source { kTenant, kHost, kNone };
struct Row {
  const char* name;
  Source source;
};

inline constexpr Row kRows[] = {"""]
    out += ['    {"%s", Source::k%s},' % (r.name, r.source.capitalize()) for r in rows_of(families)]
    out.append("};\n\n}  // namespace detshare::nvml\n")
    return "\n".join(out)


# ---- the page


def docs_md(families):
    out = ["""<!-- Generated from proto/nvml/nvml.table: bazel run //proto/nvml:update_docs -->
# Which NVML functions work

DetShare's `libnvidia-ml.so.1` replaces that of driver 580 and exports the same %d functions. A program sees the devices that
the daemon grants it. The table says where results come from:

- *tenant*: from the daemon's figures about the tenant
- *host*: from the host's NVML, about the card; on the software GPU, from the software GPU
- *none*: the function is not supported and returns `NVML_ERROR_NOT_SUPPORTED`

| Family | Functions | tenant | host | none |
|---|--:|--:|--:|--:|""" % len(rows_of(families))]
    for family in families:
        count = lambda source: sum(r.source == source for r in family.rows)
        out.append("| %s | %d | %d | %d | %d |" % (family.title, len(family.rows), count("tenant"), count("host"),
                                                 count("none")))
    for family in families:
        out.append("\n## %s\n" % family.title)
        if family.note:
            out.append(family.note + "\n")
        for source in ("tenant", "host", "none"):
            names = ["`%s`" % r.name for r in family.rows if r.source == source]
            if names:
                out.append("*%s*: %s\n" % (source, ", ".join(names)))
    return "\n".join(out).rstrip() + "\n"


KINDS = {
    "exports.cc": exports_cc,
    "host_functions.h": host_functions_h,
    "host_calls.cc": host_calls_cc,
    "table.h": table_h,
    "docs.md": docs_md,
}


def main():
    path, kind, output, *headers = sys.argv[1:]
    with open(output, "w") as file:
        file.write(KINDS[kind](parse(path), *headers))


if __name__ == "__main__":
    main()
