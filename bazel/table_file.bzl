"""Files that are generated from a table."""

def table_file(name, kind, out, of = None, headers = []):
    """One file that generate.py of a package makes of the package's table, which has the package's name.

    The package that compiles the file declares it, and names the headers that it brings with it.

    Args:
      name: of the target.
      kind: what to generate; a key of KINDS in generate.py.
      out: the file.
      of: the package of the table, as "//proto/nvml"; this one if not said.
      headers: what the file includes beside headers of proto/, by full path.
    """
    package = of or "//" + native.package_name()
    table = "%s:%s.table" % (package, package.split("/")[-1])
    generate = package + ":generate.py"
    native.genrule(
        name = name,
        srcs = [table],
        outs = [out],
        cmd = " ".join([
            "/usr/bin/python3 -B $(location %s) $(location %s) %s $@" % (generate, table, kind),
        ] + headers),
        tools = [
            generate,
            package + ":generator",
        ],
        visibility = ["//visibility:public"],
    )
