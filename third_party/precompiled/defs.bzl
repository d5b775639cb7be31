"""Precompiled headers: the parsed form of library headers that most sources include."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "".join(["#include <%s>\n" % h for h in ctx.attr.includes]))
    out = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    fragment = ctx.fragments.cpp
    arguments = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            use_pic = True,
            user_compile_flags = fragment.copts + fragment.cxxopts,
        ),
    )
    ctx.actions.run(
        executable = toolchain.compiler_executable,
        arguments = arguments + ["-x", "c++-header", header.path, "-o", out.path],
        inputs = depset([header], transitive = [toolchain.all_files]),
        outputs = [out],
        env = {"PATH": "/usr/bin:/bin"},
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % header.short_path,
    )
    return [
        DefaultInfo(files = depset([header, out])),
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = depset([header, out]),
        )),
    ]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "includes": attr.string_list(doc = "The headers, as between < and >."),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    doc = """Makes NAME.h, which includes some headers, and NAME.h.gch, its precompiled form.

g++ reads NAME.h.gch instead of NAME.h when a command line begins with `-include NAME.h` and its options fit; else it reads
NAME.h, which means the same.""",
)
