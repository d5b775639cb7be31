"""Files that a package generates from its table."""

def table_file(name, kind, out):
    """One file that the package's generate.py makes from the package's only *.table.

    Args:
      name: the target's name.
      kind: which file to generate: a key of KINDS in generate.py.
      out: the generated file.
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
