"""CUDA programs, built by plain nvcc as a user would."""

load("@cuda//:cuda_home.bzl", "CUDA_HOME")

def _cuda_program_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name)
    arguments = ctx.actions.args()
    arguments.add("-o", out)
    arguments.add_all(ctx.attr.flags)
    arguments.add_all(ctx.files.srcs)
    arguments.add_all(ctx.files.links)
    ctx.actions.run(
        executable = CUDA_HOME + "/bin/nvcc",
        arguments = [arguments],
        inputs = ctx.files.srcs + ctx.files.hdrs + ctx.files.links + ctx.files._toolkit,
        outputs = [out],
        # nvcc names its temporary files by its process number, which two sandboxes can have in common: not in /tmp.
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": out.dirname},
        mnemonic = "Nvcc",
        progress_message = "Building the CUDA program %s" % ctx.label.name,
    )
    return [DefaultInfo(
        executable = out,
        files = depset([out]),
        runfiles = ctx.runfiles(files = [out] + ctx.files.data),
    )]

_cuda_program = rule(
    implementation = _cuda_program_impl,
    executable = True,
    attrs = {
        "data": attr.label_list(allow_files = True),
        "flags": attr.string_list(),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "links": attr.label_list(allow_files = True),
        "srcs": attr.label_list(allow_files = [".cu", ".cc", ".cpp", ".c"], mandatory = True),
        # Says when the toolkit has changed; nvcc itself is run where it lies.
        "_toolkit": attr.label(default = "@cuda//:stamp", allow_files = True),
    },
)

def cuda_program(name, src = None, flags = [], srcs = [], hdrs = [], links = [], **kwargs):
    """An executable `name` from nvcc, which links its own static CUDA runtime and finds libcuda.so.1 when it runs.

    The program stays outside every sanitizer and every --copt: it is a stranger's.

    Args:
      name: the program.
      src: its only source file, or use srcs.
      flags: for nvcc, as -std=c++17, -gencode=..., -Xfatbin=..., -rdc=true, -lcublas.
      srcs: its source files.
      hdrs: headers that they include, by full path.
      links: files that are linked as they are (as //client_shim:libcuda for a program linked with -lcuda).
      **kwargs: common attributes and data.
    """
    _cuda_program(
        name = name,
        srcs = ([src] if src else []) + srcs,
        flags = ["-I."] + flags,
        hdrs = hdrs,
        links = links,
        **kwargs
    )
