"""Files that are generated from a table."""

def table_file(name, kind, out, of = None, headers = []):
    """One file that the generate.py of a package makes from the package's table.

    The package that compiles the file declares it, and names the headers that the file includes.

    Args:
      name: the target's name.
      kind: which file to generate: a key of KINDS in generate.py.
      out: the generated file.
      of: the table's package, as "//proto/nvml"; this one if not given.
      headers: what the file includes besides headers of proto/, by full path.
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
