"""Shared objects that live inside other people's processes."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

def _without_sanitizers(options):
    return [o for o in options if not o.startswith("-fsanitize") and not o.startswith("-fno-sanitize")]

def _unsanitized_impl(settings, attr):
    # A sanitizer's runtime cannot be loaded into a process that was built without it.
    return {
        option: _without_sanitizers(settings[option])
        for option in ["//command_line_option:copt", "//command_line_option:linkopt"]
    }

_unsanitized = transition(
    implementation = _unsanitized_impl,
    inputs = ["//command_line_option:copt", "//command_line_option:linkopt"],
    outputs = ["//command_line_option:copt", "//command_line_option:linkopt"],
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

def shim_shared_library(name, deps, version_script, soname, links = [], srcs = [], **kwargs):
    """A self-contained shared object: needs only the C library, and shows only what the version script names.

    It can be loaded beside any other copy of gRPC, Protocol Buffers or Abseil. It is built without sanitizers under every
    --config, since it goes into processes that have none.

    Args:
      name: the target; builds the file `soname` in its package.
      deps: cc_library targets. The one that defines the exported functions says `alwayslink = True`. They depend on
        @system//:* as everything else does.
      version_script: the linker's list of exported symbols (its `local: *` hides the others).
      soname: the library's name, and the file's.
      links: further names for the same file, as "libcuda.so" for -lcuda.
      srcs: sources of its own, if any.
      **kwargs: common attributes.
    """
    cc_binary(
        name = "lib%s_linked.so" % name.replace(".", "_"),
        srcs = srcs,
        linkshared = True,
        linkopts = [
            "-fuse-ld=bfd",  # gold and lld leak weak symbols through a version script
            "-L$(BINDIR)/third_party/archives",
            "-Wl,--version-script=$(location %s)" % version_script,
            "-Wl,-soname=%s" % soname,
            "-Wl,-Bsymbolic",
            "-Wl,-z,defs",
            "-Wl,-z,nodelete",  # gRPC's threads do not survive being unloaded
            "-Wl,--gc-sections",
            "-Wl,-s",
            "-static-libgcc",
            "-static-libstdc++",
            "-Wl,--as-needed",
        ],
        additional_linker_inputs = [
            version_script,
            "//third_party/archives",
        ],
        tags = ["manual"],
        deps = deps,
    )
    _shared_library(
        name = name,
        linked = ":lib%s_linked.so" % name.replace(".", "_"),
        links = links,
        soname = soname,
        **kwargs
    )
