"""Position-independent archives, for programs that must run without Debian's shared libraries."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_OFF = "@//third_party/precompiled:off"
_DEFAULT = "//conditions:default"

# What makes the sources of a library read precompiled headers of the C++ standard library.
PRECOMPILED = select({
    _OFF: [],
    _DEFAULT: ["-include", "$(BINDIR)/third_party/precompiled/library.h"],
})
PRECOMPILED_DEPS = select({
    _OFF: [],
    _DEFAULT: ["@//third_party/precompiled:library"],
})

def _archive_of(target):
    for linker_input in target[CcInfo].linking_context.linker_inputs.to_list():
        if linker_input.owner == target.label:
            for library in linker_input.libraries:
                return library.pic_static_library or library.static_library
    fail("%s makes no archive" % target.label)

def _archive_folder_impl(ctx):
    built = {name: target for target, name in ctx.attr.built.items()}
    outputs = []
    for name, target in built.items():
        out = ctx.actions.declare_file("lib%s.a" % name)
        ctx.actions.symlink(output = out, target_file = _archive_of(target))
        outputs.append(out)
    for archive in ctx.files.prebuilt:
        name = archive.basename[len("lib"):-len(".a")]
        if name in built:
            continue
        out = ctx.actions.declare_file("lib%s.a" % name)
        if [p for p in ctx.attr.empty_prefixes if name.startswith(p)]:
            ctx.actions.write(out, "!<arch>\n")
        else:
            ctx.actions.symlink(output = out, target_file = archive)
        outputs.append(out)
    return [DefaultInfo(files = depset(outputs))]

archive_folder = rule(
    implementation = _archive_folder_impl,
    attrs = {
        "built": attr.label_keyed_string_dict(
            providers = [CcInfo],
            doc = "Libraries that the build compiles -> the name that -l finds each by.",
        ),
        "empty_prefixes": attr.string_list(
            doc = "Other archives whose name begins with one of these are made empty: a library of `built` has their contents.",
        ),
        "prebuilt": attr.label(allow_files = [".a"]),
    },
    doc = """Makes lib*.a files in its package's output folder.

With -L and that folder, the -l options of @system//:* link statically. Debian's archives of gRPC
and of the C libraries are position-independent and are used as they are. Its archives of Abseil and
Protocol Buffers are not, so the build compiles these.""",
)
