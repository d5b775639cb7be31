"""Bundles: programs and libraries that run from any folder, packed or unpacked."""

def _layout(ctx):
    """Returns {path in the bundle: File}."""
    layout = {}
    for target, destination in ctx.attr.files.items():
        files = target[DefaultInfo].files.to_list()
        if len(files) != 1 and not destination.endswith("/"):
            fail("%s is %d files: give it a folder" % (target.label, len(files)))
        for f in files:
            # A destination that ends in "/" is a folder.
            path = destination + f.basename if destination.endswith("/") else destination
            if path in layout:
                fail("two files for %s: %s and %s" % (path, layout[path].path, f.path))
            layout[path] = f
    return layout

_LAYOUT_ATTRS = {
    "files": attr.label_keyed_string_dict(
        allow_files = True,
        doc = "Target -> its place in the bundle: a file's path, or a folder that ends in \"/\".",
    ),
}

def _bundle_impl(ctx):
    layout = _layout(ctx)
    lines = ["%s\t%s" % (path, f.path) for path, f in layout.items()]
    manifest = ctx.actions.declare_file(ctx.label.name + ".manifest")
    ctx.actions.write(manifest, "\n".join(lines) + "\n")
    out = ctx.actions.declare_file(ctx.attr.top + ".tar.gz")
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = [ctx.file._pack.path, ctx.attr.top, manifest.path, out.path],
        inputs = ctx.files.files + [manifest, ctx.file._pack],
        outputs = [out],
        mnemonic = "Bundle",
        progress_message = "Packing %s" % out.short_path,
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles(files = [out]))]

bundle = rule(
    implementation = _bundle_impl,
    attrs = dict(_LAYOUT_ATTRS, **{
        "top": attr.string(mandatory = True, doc = "The folder that the tarball unpacks to; also the tarball's name."),
        "_pack": attr.label(default = "//bazel:pack.py", allow_single_file = True),
    }),
    doc = "Makes <top>.tar.gz. The same files give the same bytes.",
)

def _bundle_folder_impl(ctx):
    outputs = []
    for path, f in _layout(ctx).items():
        out = ctx.actions.declare_file("%s/%s" % (ctx.label.name, path))

        # A copy, not a symbolic link: programs resolve their own path and look for libraries beside
        # it.
        ctx.actions.run_shell(
            command = "cp -f \"$1\" \"$2\"",
            arguments = [f.path, out.path],
            inputs = [f],
            outputs = [out],
            mnemonic = "CopyFile",
        )
        outputs.append(out)
    return [DefaultInfo(files = depset(outputs), runfiles = ctx.runfiles(files = outputs))]

bundle_folder = rule(
    implementation = _bundle_folder_impl,
    attrs = _LAYOUT_ATTRS,
    doc = "Makes the bundle as an unpacked folder with the target's name.",
)
