"""Files that are generated from driver_api.table."""

def driver_api_file(name, kind, out):
    """One generated file.

    Args:
      name: of the target.
      kind: what to generate; a key of KINDS in generate.py.
      out: the file.
    """
    native.genrule(
        name = name,
        srcs = ["driver_api.table"],
        outs = [out],
        cmd = "/usr/bin/python3 -B $(location generate.py) $(location driver_api.table) %s $@" % kind,
        tools = [
            "generate.py",
            "table.py",
        ],
        visibility = ["//visibility:public"],
    )
