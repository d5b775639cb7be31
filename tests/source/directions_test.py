#!/usr/bin/python3
"""Fails when a file includes one that its folder may not use (bazel/directions.bzl), and names the edge."""

import os
import re
import sys

from source_tree import files, root

RULES = {}
with open(os.path.join(root(), "bazel/directions.bzl")) as rules:
    exec(rules.read(), RULES)  # its Starlark is Python, too
USES, rule_of = RULES["USES"], RULES["rule_of"]

# In sources, and in what generators write.
INCLUDE = re.compile(r'#include "([^"]+/[^"]+)"')
# A folder must not include these headers of the world outside.
FOREIGN = {
    "coroutine_runtime": re.compile(r'#include [<"](grpc|google/protobuf|cuda|nvml)'),
    "policy": re.compile(r'#include [<"](grpc|google/protobuf|cuda|nvml)'),
}


def forbidden(path, line):
    """Returns why `path` may not have this line, or None."""
    user = rule_of(os.path.dirname(path))
    if user is None:
        return None
    foreign = FOREIGN.get(path.split("/")[0])
    if foreign and foreign.search(line):
        return "%s/ knows neither gRPC nor CUDA" % path.split("/")[0]
    include = INCLUDE.search(line)
    if not include:
        return None
    top = include.group(1).split("/")[0]
    used = rule_of(os.path.dirname(include.group(1)))
    if used is None:
        return "%s/ may not use tests/" % user if top == "tests" else None
    if used == user or used in USES[user]:
        return None
    return "%s/ may not use %s/" % (user, used)


def main():
    count, errors = 0, []
    for path in files((".cc", ".h", ".inc", ".py")):
        with open(os.path.join(root(), path), encoding="utf-8") as source:
            for number, line in enumerate(source, 1):
                if "#include" in line:
                    count += 1
                    reason = forbidden(path, line)
                    if reason:
                        errors.append("%s:%d: %s: %s" % (path, number, line.strip(), reason))
    print("%d includes looked at" % count)
    if count < 1000:
        errors.append("too few includes: are the sources there?")
    for error in errors:
        print("FAILED: " + error)
    if errors:
        print("Move the declaration to a folder that both may use, or the file; the rules are in bazel/directions.bzl.")
    return 1 if errors else 0


sys.exit(main())
