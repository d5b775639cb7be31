"""C++ targets of the project: the ordinary rules, with precompiled headers and unity sources.

In the ordinary configuration, clang compiles the sources below tests/ (quick_objects.bzl), but not those below tests/policy,
which simulate policies and are optimised.
"""

load("//bazel:quick_objects.bzl", "quick_objects")
load("//bazel:unity.bzl", "unity")
load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")

_GRPC = [
    "@system//:grpc++",
    "@system//:protobuf",
    "//third_party/shim:grpc",
]

_OFF = "//third_party/precompiled:off"

def _precompiled(deps, precompiled):
    """Returns (deps, copts) that make the compiler read a header of //third_party/precompiled first."""
    if precompiled == "none":
        return [], []
    if precompiled == "auto":
        precompiled = "grpc" if [d for d in deps if d in _GRPC] else "standard"
    header = "third_party/precompiled/%s.h" % precompiled
    return (
        select({_OFF: [], "//conditions:default": ["//third_party/precompiled:" + precompiled]}),
        select({_OFF: [], "//conditions:default": ["-include", "$(BINDIR)/" + header]}),
    )

def _is_test():
    package = native.package_name()
    return package.startswith("tests") and not package.startswith("tests/policy")

def _quick(name, srcs, hdrs, deps, copts, precompiled, testonly):
    """Returns the `srcs` with which a rule links the sources of a test, whoever compiles them."""
    native.filegroup(name = name + "_sources", srcs = srcs)
    quick_objects(
        name = name + "_objects",
        testonly = testonly,
        srcs = [":%s_sources" % name],
        hdrs = hdrs,
        copts = copts,
        header = None if precompiled == "none" else "//third_party/precompiled:test",
        tags = ["manual"],
        deps = deps,
    )
    return select({_OFF: [":%s_sources" % name], "//conditions:default": [":%s_objects" % name]})

def _compiled(name, srcs, hdrs, deps, copts, precompiled, testonly):
    """Returns (srcs, deps, copts) for the rule that compiles or links the sources."""
    if not srcs:
        return srcs, deps, copts
    if _is_test():
        return _quick(name, srcs, hdrs, deps, copts, precompiled, testonly), deps, copts
    more_deps, more_copts = _precompiled(deps, precompiled)
    return srcs, deps + more_deps, more_copts + copts

def cc_library(name, srcs = [], textual_hdrs = [], deps = [], copts = [], precompiled = "auto", **kwargs):
    """cc_library whose sources read a precompiled header first, and are compiled several at once.

    Args:
      name: as in cc_library, and so all others.
      srcs: its sources.
      textual_hdrs: as in cc_library.
      deps: its dependencies.
      copts: its options for the compiler.
      precompiled: which one: "standard", "grpc", "none", or "auto" ("grpc" for a target that names gRPC or Protocol Buffers
        among its dependencies; else "standard"). Tests that clang compiles read "test", which holds Catch, unless it is
        "none".
      **kwargs: other attributes.
    """
    unity_srcs, unity_hdrs = unity(name, srcs)
    textual_hdrs = textual_hdrs + unity_hdrs
    hdrs = kwargs.get("hdrs", []) + textual_hdrs
    srcs, deps, copts = _compiled(name, unity_srcs, hdrs, deps, copts, precompiled, kwargs.get("testonly", False))
    _cc_library(name = name, srcs = srcs, textual_hdrs = textual_hdrs, deps = deps, copts = copts, **kwargs)

def cc_binary(name, srcs = [], deps = [], copts = [], precompiled = "auto", **kwargs):
    """cc_binary in the same way."""
    srcs, deps, copts = _compiled(name, srcs, [], deps, copts, precompiled, kwargs.get("testonly", False))
    _cc_binary(name = name, srcs = srcs, deps = deps, copts = copts, **kwargs)

def cc_test(name, srcs = [], deps = [], copts = [], precompiled = "auto", **kwargs):
    """cc_test in the same way."""
    srcs, deps, copts = _compiled(name, srcs, [], deps, copts, precompiled, testonly = True)
    _cc_test(name = name, srcs = srcs, deps = deps, copts = copts, **kwargs)
