"""Programs that are tested here and shipped in //:bundle."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")

def detshare_binary(name, srcs, deps = [], copts = [], linkopts = [], **kwargs):
    """Two links of one program: `name` and `name`_bundled.

    `name` is an ordinary cc_binary (shared libraries of the machine, every sanitizer). `name`_bundled runs on any x86-64
    Linux with glibc 2.35 or a newer one: all else is inside.

    Args:
      name: the ordinary program.
      srcs: main and what belongs to it; compiled once.
      deps: cc_library targets.
      copts: for srcs.
      linkopts: for both links.
      **kwargs: common attributes.
    """
    cc_library(
        name = name + "_main",
        srcs = srcs,
        copts = copts,
        linkstatic = True,
        alwayslink = True,
        deps = deps,
    )
    cc_binary(
        name = name,
        linkopts = linkopts,
        deps = [":%s_main" % name],
        **kwargs
    )
    cc_binary(
        name = name + "_bundled",
        linkopts = linkopts + [
            "-L$(BINDIR)/third_party/archives",
            "-static-libgcc",
            "-static-libstdc++",
            "-Wl,--gc-sections",
            "-Wl,-s",
        ],
        additional_linker_inputs = ["//third_party/archives"],
        tags = ["manual"],
        deps = [
            ":%s_main" % name,
            "//third_party/glibc:arc4random",
        ],
        **kwargs
    )
