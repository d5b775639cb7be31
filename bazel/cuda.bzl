"""CUDA programs, built with plain nvcc, as a user builds them."""

load("@cuda//:cuda_home.bzl", "CUDA_HOME")

def _cuda_program_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name)
    arguments = ctx.actions.args()

    # nvcc names temporary files by its process id, which is the same in two sandboxes that share
    # /tmp. Bazel replaces a TMPDIR in an action's environment, so env sets it.
    arguments.add("TMPDIR=" + out.dirname)
    arguments.add(CUDA_HOME + "/bin/nvcc")
    arguments.add("-o", out)
    arguments.add_all([flag.replace("$(BINDIR)", ctx.bin_dir.path) for flag in ctx.attr.flags])
    arguments.add_all(ctx.files.srcs)
    arguments.add_all(ctx.files.links)
    ctx.actions.run(
        executable = "/usr/bin/env",
        arguments = [arguments],
        inputs = ctx.files.srcs + ctx.files.hdrs + ctx.files.links + ctx.files.additional_linker_inputs + ctx.files._toolkit,
        outputs = [out],
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
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
        "additional_linker_inputs": attr.label_list(allow_files = True),
        "data": attr.label_list(allow_files = True),
        "flags": attr.string_list(),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "links": attr.label_list(allow_files = True),
        "srcs": attr.label_list(allow_files = [".cu", ".cc", ".cpp", ".c", ".ptx"], mandatory = True),
        # Changes when the toolkit does, so that programs are built again. nvcc runs from its own
        # folder, outside the sandbox.
        "_toolkit": attr.label(default = "@cuda//:stamp", allow_files = True),
    },
)

def cuda_program(name, src = None, flags = [], srcs = [], hdrs = [], links = [], **kwargs):
    """An executable `name` that nvcc builds.

    It contains the static CUDA runtime and loads libcuda.so.1 when it runs. No sanitizer and no
    --copt applies to it: it stands for a user's program.

    Args:
      name: the program.
      src: its only source file; or use srcs.
      flags: nvcc's options, with $(BINDIR) expanded, such as -std=c++17, -gencode=..., -Xfatbin=..., -rdc=true, -lcublas.
      srcs: its source files.
      hdrs: headers that the sources include, by full path.
      links: files that are passed to the linker, such as //client_shim:libcuda for a program linked
        with -lcuda.
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
