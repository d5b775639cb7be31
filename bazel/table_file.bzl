"""Files that are generated from the table of a package."""

def table_file(name, kind, out):
    """One file that the package's generate.py makes of its only *.table.

    Args:
      name: of the target.
      kind: what to generate; a key of KINDS in generate.py.
      out: the file.
    """
    [table] = native.glob(["*.table"])
    native.genrule(
        name = name,
        srcs = [table],
        outs = [out],
        cmd = "/usr/bin/python3 -B $(location generate.py) $(location %s) %s $@" % (table, kind),
        tools = native.glob(["*.py"]),
        visibility = ["//visibility:public"],
    )
