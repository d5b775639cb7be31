"""Object files of tests. clang compiles them without optimisation in half of the time that g++ takes.

Both compilers use the headers and the library of g++, so their object files fit together.
"""

_CLANG = "/usr/bin/clang++-14"

_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}

def _options(ctx):
    """The compiler's options for headers and sources: those of the build, of which g++ alone knows some."""
    fragment = ctx.fragments.cpp

    # As Bazel does for g++: some headers of Abseil declare other things without NDEBUG.
    mode = {"dbg": ["-g"], "opt": ["-DNDEBUG"]}.get(ctx.var["COMPILATION_MODE"], [])
    return (["-O0", "-fPIC", "-Wno-unknown-warning-option", "-Wno-unused-command-line-argument", "-iquote", "."] +
            mode + fragment.copts + fragment.cxxopts)

def _quick_header_impl(ctx):
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "".join(["#include <%s>\n" % h for h in ctx.attr.includes]))
    out = ctx.actions.declare_file(ctx.label.name + ".h.pch")
    ctx.actions.run(
        executable = _CLANG,
        arguments = _options(ctx) + ["-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp", "-x", "c++-header"] +
                    [header.path, "-o", out.path],
        inputs = [header],
        outputs = [out],
        env = _ENVIRONMENT,
        # The precompiled form names the header by its full path.
        execution_requirements = {"no-sandbox": "1"},
        mnemonic = "QuickPrecompile",
        progress_message = "Precompiling %s" % header.short_path,
    )
    return [DefaultInfo(files = depset([header, out]))]

quick_header = rule(
    implementation = _quick_header_impl,
    attrs = {"includes": attr.string_list(doc = "The headers, as between < and >.")},
    fragments = ["cpp"],
    doc = "Makes NAME.h, which includes some headers, and NAME.h.pch, its precompiled form for quick_objects.",
)

def _quick_objects_impl(ctx):
    context = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    options = ctx.actions.args()
    options.add_all(_options(ctx))
    options.add_all(depset(transitive = [context.defines, context.local_defines]), format_each = "-D%s")
    options.add_all(context.quote_includes, before_each = "-iquote")
    options.add_all(context.includes, before_each = "-I")
    options.add_all(context.system_includes, before_each = "-isystem")
    options.add_all(ctx.attr.copts)
    options.add_all([h for h in ctx.files.header if h.extension == "h"], before_each = "-include")
    headers = depset(
        [f for f in ctx.files.srcs if f.extension == "h"] + ctx.files.hdrs,
        transitive = [context.headers],
    )
    header_list = ctx.actions.declare_file(ctx.label.name + ".headers")
    ctx.actions.write(header_list, ctx.actions.args().add_all(headers).set_param_file_format("multiline"))
    objects = []
    for source in [f for f in ctx.files.srcs if f.extension == "cc"]:
        out = ctx.actions.declare_file("_objs/%s/%s.pic.o" % (ctx.label.name, source.basename[:-len(".cc")]))
        unread = ctx.actions.declare_file(out.basename + ".unread", sibling = out)
        ctx.actions.run(
            executable = "/bin/bash",
            arguments = [ctx.file._script.path, unread.path, header_list.path, out.path, _CLANG, options, "-c", source.path],
            inputs = depset([ctx.file._script, source, header_list] + ctx.files.header, transitive = [headers]),
            outputs = [out, unread],
            unused_inputs_list = unread,
            env = _ENVIRONMENT,
            mnemonic = "QuickCompile",
            progress_message = "Compiling %s" % source.short_path,
        )
        objects.append(out)
    return [DefaultInfo(files = depset(objects))]

quick_objects = rule(
    implementation = _quick_objects_impl,
    attrs = {
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = True, doc = "More headers that the sources include."),
        "header": attr.label(allow_files = True, doc = "A quick_header that the sources read first."),
        "srcs": attr.label_list(allow_files = [".cc", ".h"]),
        "_script": attr.label(allow_single_file = True, default = "//bazel:quick_compile.sh"),
    },
    fragments = ["cpp"],
    doc = "Compiles each source. The object files can be `srcs` of cc_library, cc_binary and cc_test.",
)
