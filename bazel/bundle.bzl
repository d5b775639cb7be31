"""A relocatable tarball."""

def _bundle_impl(ctx):
    lines = []
    for target, destination in ctx.attr.files.items():
        files = target[DefaultInfo].files.to_list()
        for f in files:
            # A destination that ends in "/" is a folder.
            path = destination + f.basename if destination.endswith("/") else destination
            lines.append("%s\t%s" % (path, f.path))
        if len(files) != 1 and not destination.endswith("/"):
            fail("%s is %d files: give it a folder" % (target.label, len(files)))
    for name, to in ctx.attr.symlinks.items():
        lines.append("%s\t-> %s" % (name, to))
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
    attrs = {
        "files": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "Where each target's files go: a path, or a folder that ends in \"/\".",
        ),
        "symlinks": attr.string_dict(doc = "Further names, and what each points to."),
        "top": attr.string(mandatory = True, doc = "The folder that the tarball unpacks to, and its name."),
        "_pack": attr.label(default = "//bazel:pack.py", allow_single_file = True),
    },
    doc = "Makes <top>.tar.gz, the same bytes from the same files.",
)
