"""Unity sources: several sources of a library compiled as one, so that their headers are parsed once."""

# The most sources that are compiled as one: with more, a change of one source takes long to compile.
_MAX_SOURCES = 8

def _unity_source_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".cc")
    root = ctx.label.workspace_root  # the compiler looks for quoted headers here
    paths = [f.short_path if not root else f.path[len(root) + 1:] for f in ctx.files.srcs]
    ctx.actions.write(out, "".join(["#include \"%s\"\n" % path for path in paths]))
    return [DefaultInfo(files = depset([out]))]

unity_source = rule(
    implementation = _unity_source_impl,
    attrs = {"srcs": attr.label_list(allow_files = [".cc"])},
    doc = "Makes NAME.cc, which includes the sources.",
)

def unity(name, srcs):
    """Declares the unity sources of a library.

    Args:
      name: the library.
      srcs: its sources and private headers.

    Returns:
      (srcs, textual_hdrs) for cc_library.
    """
    sources = [s for s in srcs if s.endswith(".cc")]
    if len(sources) < 2:
        return srcs, []
    count = (len(sources) + _MAX_SOURCES - 1) // _MAX_SOURCES
    units = []
    for i in range(count):
        unit = "%s_unity_%d" % (name, i)
        unity_source(
            name = unit,
            srcs = sources[len(sources) * i // count:len(sources) * (i + 1) // count],
        )
        units.append(unit)
    off = "//bazel:separate_sources"
    return (
        select({off: srcs, "//conditions:default": [s for s in srcs if s not in sources] + units}),
        select({off: [], "//conditions:default": sources}),
    )
