"""C++ targets of the project: the ordinary rules, with precompiled headers and unity sources."""

load("//bazel:unity.bzl", "unity")
load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")

_GRPC = [
    "@system//:grpc++",
    "@system//:protobuf",
    "//third_party/shim:grpc",
]

def _precompiled(deps, precompiled):
    """Returns (deps, copts) that make the compiler read a header of //third_party/precompiled first."""
    if precompiled == "none":
        return [], []
    if precompiled == "auto":
        package = native.package_name()
        if package.startswith("tests") and not package.startswith("tests/policy"):
            precompiled = "test"
        else:
            precompiled = "grpc" if [d for d in deps if d in _GRPC] else "standard"
    off = "//third_party/precompiled:off"
    header = "third_party/precompiled/%s.h" % precompiled
    return (
        select({off: [], "//conditions:default": ["//third_party/precompiled:" + precompiled]}),
        select({off: [], "//conditions:default": ["-include", "$(BINDIR)/" + header]}),
    )

def cc_library(name, srcs = [], textual_hdrs = [], deps = [], copts = [], precompiled = "auto", **kwargs):
    """cc_library whose sources read a precompiled header first, and are compiled several at once.

    Args:
      name: as in cc_library, and so all others.
      srcs: its sources.
      textual_hdrs: as in cc_library.
      deps: its dependencies.
      copts: its options for the compiler.
      precompiled: which one: "standard", "grpc", "test", "none", or "auto" ("test", which holds Catch, below tests/, but not
        below tests/policy, whose sources are optimised; else "grpc" for a target that names gRPC or Protocol Buffers among
        its dependencies; else "standard").
      **kwargs: other attributes.
    """
    more_deps, more_copts = _precompiled(deps, precompiled if srcs else "none")
    unity_srcs, unity_hdrs = unity(name, srcs)
    _cc_library(
        name = name,
        srcs = unity_srcs,
        textual_hdrs = textual_hdrs + unity_hdrs,
        deps = deps + more_deps,
        copts = more_copts + copts,
        **kwargs
    )

def cc_binary(name, srcs = [], deps = [], copts = [], precompiled = "auto", **kwargs):
    """cc_binary in the same way."""
    more_deps, more_copts = _precompiled(deps, precompiled if srcs else "none")
    _cc_binary(name = name, srcs = srcs, deps = deps + more_deps, copts = more_copts + copts, **kwargs)

def cc_test(name, srcs = [], deps = [], copts = [], precompiled = "auto", **kwargs):
    """cc_test in the same way."""
    more_deps, more_copts = _precompiled(deps, precompiled)
    _cc_test(name = name, srcs = srcs, deps = deps + more_deps, copts = more_copts + copts, **kwargs)
