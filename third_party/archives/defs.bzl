"""Position-independent archives, for programs that must run without Debian's shared libraries."""

load("@//bazel:unity.bzl", "unity_source")

def unity_library(name, units, **kwargs):
    """A cc_library whose sources are compiled together, in a few translation units.

    Most of the time that such a library takes is that of its headers, which each unit reads once.

    Args:
      name: the library.
      units: a list of lists of sources. The sources of one list are one unit.
      **kwargs: attributes of cc_library.
    """
    names = ["%s_unit_%d" % (name, i) for i in range(len(units))]
    for unit, sources in zip(names, units):
        unity_source(name = unit, srcs = sources)
    native.cc_library(
        name = name,
        srcs = names,
        textual_hdrs = [source for sources in units for source in sources],
        linkstatic = True,
        **kwargs
    )

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
