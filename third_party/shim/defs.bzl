"""Shared objects that are loaded into users' processes."""

load("//third_party/glibc:defs.bzl", "SINCE_2_17_DEPS", "SINCE_2_17_INPUTS", "SINCE_2_17_LINKOPTS")
load("@rules_cc//cc:defs.bzl", "cc_binary")

_OPTIONS = ["//command_line_option:" + o for o in ["copt", "linkopt", "platform_suffix"]]

def _sanitizes(option):
    return option.startswith("-fsanitize") or option.startswith("-fno-sanitize")

def _unsanitized_impl(settings, attr):
    # A sanitizer's runtime cannot be loaded into a process that was built without that sanitizer.
    copt, linkopt, platform_suffix = [settings[o] for o in _OPTIONS]
    if not [o for o in linkopt if _sanitizes(o)]:
        return settings
    return dict(zip(_OPTIONS, [
        [o for o in copt if not _sanitizes(o)],
        [o for o in linkopt if not _sanitizes(o)],
        "-unsanitized",  # one output folder for all sanitizers
    ]))

_unsanitized = transition(
    implementation = _unsanitized_impl,
    inputs = _OPTIONS,
    outputs = _OPTIONS,
)

def _shared_library_impl(ctx):
    linked = ctx.attr.linked[0][DefaultInfo].files.to_list()[0]
    outputs = []
    for name in [ctx.attr.soname] + ctx.attr.links:
        out = ctx.actions.declare_file(name)
        ctx.actions.symlink(output = out, target_file = linked)
        outputs.append(out)
    return [DefaultInfo(
        files = depset(outputs),
        runfiles = ctx.runfiles(files = outputs),
    )]

_shared_library = rule(
    implementation = _shared_library_impl,
    attrs = {
        "linked": attr.label(cfg = _unsanitized, mandatory = True),
        "links": attr.string_list(),
        "soname": attr.string(mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)

def shim_shared_library(name, deps, version_script, soname, links = [], srcs = [], loader_defines = False, **kwargs):
    """A shared object that needs only the C library and exports only the version script's symbols.

    A process can load it beside any other copy of gRPC, Protocol Buffers or Abseil. Every --config
    builds it without sanitizers, because the processes that load it have none.

    Args:
      name: the target. It builds the file `soname` in its package.
      deps: cc_library targets. The one that defines the exported functions says `alwayslink =
        True`. They depend on @system//:*, as all libraries do.
      version_script: the linker's list of exported symbols. Its `local: *` hides the others.
      soname: the name of the library and of its file.
      links: further names for the same file, such as "libcuda.so" for -lcuda.
      srcs: additional sources.
      loader_defines: whether the programs that load the library define functions that it calls. No linker checks those.
      **kwargs: common attributes.
    """
    cc_binary(
        name = "lib%s_linked.so" % name.replace(".", "_"),
        srcs = srcs,
        linkshared = True,
        linkopts = SINCE_2_17_LINKOPTS + [
            "-fuse-ld=bfd",  # gold and lld export weak symbols in spite of a version script
            "-L$(BINDIR)/third_party/archives",
            "-Wl,--version-script=$(location %s)" % version_script,
            "-Wl,-soname=%s" % soname,
            "-Wl,-Bsymbolic",
            "-Wl,-z,defs",
            "-Wl,-z,nodelete",  # gRPC's threads would crash if the library were unloaded
            "-Wl,--gc-sections",
            "-Wl,-s",
            "-static-libgcc",
            "-static-libstdc++",
        ] + (["-Wl,-z,undefs"] if loader_defines else []),
        additional_linker_inputs = SINCE_2_17_INPUTS + [
            version_script,
            "//third_party/archives",
        ],
        tags = ["manual"],
        deps = deps + SINCE_2_17_DEPS + ["//third_party/glibc:since_2_34"],
    )
    _shared_library(
        name = name,
        linked = ":lib%s_linked.so" % name.replace(".", "_"),
        links = links,
        soname = soname,
        **kwargs
    )
