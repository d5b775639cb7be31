"""Programs that tests run and //:bundle ships."""

load("//bazel:cc.bzl", "cc_binary", "cc_library")
load("//third_party/glibc:defs.bzl", "SINCE_2_17_DEPS", "SINCE_2_17_INPUTS", "SINCE_2_17_LINKOPTS")

def detshare_binary(name, srcs, deps = [], copts = [], linkopts = [], any_image = False, **kwargs):
    """Links one program twice: as `name` and as `name`_bundled.

    `name` is an ordinary cc_binary: it uses the machine's shared libraries and can be built with
    every sanitizer. `name`_bundled contains all its libraries but glibc. It runs on any x86-64 Linux
    with glibc 2.34 or newer, or with `any_image` 2.17.

    Args:
      name: the ordinary program.
      srcs: main() and its own sources; compiled once.
      deps: cc_library targets.
      copts: compiler options for srcs.
      linkopts: linker options of both programs.
      any_image: whether the program runs in users' images. Then it may use only functions of glibc 2.17 and those of
        //third_party/glibc:since_2_17.
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
    glibc_options = []
    glibc_deps = ["//third_party/glibc:since_2_34"]
    glibc_inputs = []
    if any_image:
        glibc_options = SINCE_2_17_LINKOPTS
        glibc_deps += SINCE_2_17_DEPS + ["//third_party/glibc:start_2_17"]
        glibc_inputs = SINCE_2_17_INPUTS
    cc_binary(
        name = name + "_bundled",
        linkopts = linkopts + glibc_options + [
            "-L$(BINDIR)/third_party/archives",
            "-static-libgcc",
            "-static-libstdc++",
            "-Wl,--gc-sections",
            "-Wl,-s",
        ],
        additional_linker_inputs = ["//third_party/archives"] + glibc_inputs,
        tags = ["manual"],
        deps = [":%s_main" % name] + glibc_deps,
        **kwargs
    )
