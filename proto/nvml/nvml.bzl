"""Files that are generated from nvml.table."""

def nvml_file(name, kind, out):
    """One generated file.

    Args:
      name: of the target.
      kind: what to generate; a key of KINDS in generate.py.
      out: the file.
    """
    native.genrule(
        name = name,
        srcs = ["nvml.table"],
        outs = [out],
        cmd = "/usr/bin/python3 -B $(location generate.py) $(location nvml.table) %s $@" % kind,
        tools = ["generate.py"],
        visibility = ["//visibility:public"],
    )
