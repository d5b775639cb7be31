"""Programs that tests run and //:bundle ships."""

load("//bazel:cc.bzl", "cc_binary", "cc_library")

def detshare_binary(name, srcs, deps = [], copts = [], linkopts = [], **kwargs):
    """Links one program twice: as `name` and as `name`_bundled.

    `name` is an ordinary cc_binary: it uses the machine's shared libraries and can be built with
    every sanitizer. `name`_bundled runs on any x86-64 Linux with glibc 2.35 or newer: it contains
    all its other libraries.

    Args:
      name: the ordinary program.
      srcs: main() and its own sources; compiled once.
      deps: cc_library targets.
      copts: compiler options for srcs.
      linkopts: linker options of both programs.
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
