"""A repository with the sources of an installed Debian package, in the installed version."""

def _debian_source_impl(ctx):
    installed = ctx.execute([
        "dpkg-query",
        "-W",
        "-f=${source:Package} ${source:Version}",
        ctx.attr.binary_package,
    ])
    if installed.return_code != 0:
        fail("the package %s is not installed: run tools/setup" % ctx.attr.binary_package)
    package, version = installed.stdout.split(" ")

    # The sources are kept outside the output base where possible, because users delete that.
    home = ctx.os.environ.get("HOME", "")
    caches = [ctx.os.environ.get("DETSHARE_SOURCES"), home and home + "/.cache/detshare/sources", str(ctx.path("sources"))]
    for cache in [c for c in caches if c]:
        folder = "%s/%s_%s" % (cache, package, version.replace(":", "_"))
        fetched = ctx.execute([ctx.path(Label("//third_party/debian_source:fetch")), package, version, folder], timeout = 900)
        if fetched.return_code == 0:
            break
    if fetched.return_code != 0:
        fail("cannot download the source package %s:\n%s" % (package, fetched.stderr))

    dsc = [f for f in ctx.path(folder).readdir() if f.basename.endswith(".dsc")][0]

    # apt has checked the files against the signed index. The .dsc's own signature needs a keyring
    # that may not be installed.
    unpacked = ctx.execute(["dpkg-source", "--no-check", "-x", str(dsc), "source"])
    if unpacked.return_code != 0:
        fail("cannot unpack %s:\n%s" % (dsc, unpacked.stderr))

    # globs do not enter folders that have build files of their own.
    ctx.execute(["find", "source", "(", "-name", "BUILD", "-o", "-name", "BUILD.bazel", "-o", "-name", "WORKSPACE", ")", "-type", "f", "-delete"])
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

debian_source = repository_rule(
    implementation = _debian_source_impl,
    attrs = {
        "binary_package": attr.string(mandatory = True),
        "build_file": attr.label(mandatory = True, allow_single_file = True),
    },
    environ = ["DETSHARE_SOURCES"],
)
