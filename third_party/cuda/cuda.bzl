"""The machine's CUDA Toolkit as @cuda. $CUDA_HOME is its folder (/usr/local/cuda)."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/crt/*"]),
    includes = ["include"],
)

# stubs/libcuda.so lists the symbols that the real driver exports.
exports_files(["stubs/libcuda.so", "include/cuda.h", "include/cudaTypedefs.h"])

# Changes when the toolkit does.
filegroup(
    name = "stamp",
    srcs = ["include/cuda_runtime_api.h"],
)
"""

def _cuda_repository_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for part in ["include/cuda.h", "bin/nvcc", "lib64/stubs/libcuda.so"]:
        if not ctx.path(home + "/" + part).exists:
            fail("no CUDA Toolkit: %s/%s is missing; set CUDA_HOME to the toolkit's folder" % (home, part))
    ctx.symlink(home + "/include", "include")
    ctx.symlink(home + "/lib64/stubs", "stubs")
    ctx.file("BUILD.bazel", _BUILD)
    ctx.file("cuda_home.bzl", "CUDA_HOME = %s\n" % repr(str(ctx.path(home).realpath)))

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = ["CUDA_HOME"],
    local = True,
    doc = "The CUDA Toolkit.",
)
