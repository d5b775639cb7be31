"""The libraries of Debian packages, as @system//:NAME.

The compiler finds the headers on its own path, and the linker finds the libraries by -l. An
ordinary program links the shared libraries. Shims and bundled programs put a folder with archives
only (//third_party/archives) first on the library path.
"""

_LIB_DIR = "/usr/lib/x86_64-linux-gnu"

# Debian's archives that third_party/archives offers instead of shared libraries.
_ARCHIVES = [
    "address_sorting",
    "asmjit",
    "cares",
    "crypto",
    "gpr",
    "grpc++_unsecure",
    "grpc_unsecure",
    "lz4",
    "protobuf",
    "ssl",
    "upb",
    "z",
    "zstd",
]

_CC_LIBRARY = """
cc_library(
    name = "{name}",
    linkopts = {linkopts},
    deps = {deps},
)
"""

def _cc_library(name, libs = [], linkopts = [], deps = []):
    if libs:
        # A group, because the archives refer to each other in both directions.
        linkopts = ["-Wl,--start-group"] + ["-l" + lib for lib in libs] + ["-Wl,--end-group"] + linkopts
    return _CC_LIBRARY.format(name = name, linkopts = repr(linkopts), deps = repr(deps))

def _system_repository_impl(ctx):
    for header in ["grpcpp/grpcpp.h", "google/protobuf/message.h", "absl/status/status.h", "asmjit/asmjit.h", "catch2/catch.hpp", "slurm/spank.h", "toml++/toml.h"]:
        if not ctx.path("/usr/include/" + header).exists:
            fail("/usr/include/%s is missing: run tools/setup, which installs the Debian packages of the build" % header)

    absl = sorted([
        f.basename[len("lib"):-len(".a")]
        for f in ctx.path(_LIB_DIR).readdir()
        if f.basename.startswith("libabsl_") and f.basename.endswith(".a")
    ])
    for lib in _ARCHIVES + absl:
        ctx.symlink("%s/lib%s.a" % (_LIB_DIR, lib), "archives/lib%s.a" % lib)

    # The toolchain also links -lstdc++ by name.
    libstdcxx = ctx.execute(["g++", "-print-file-name=libstdc++.a"]).stdout.strip()
    ctx.symlink(libstdcxx, "archives/libstdc++.a")

    build = "package(default_visibility = [\"//visibility:public\"])\n"
    build += _cc_library("absl", libs = absl, linkopts = ["-pthread"])
    build += _cc_library("protobuf", libs = ["protobuf", "z"], linkopts = ["-pthread"])

    # The variant without TLS, since every channel is a unix socket.
    build += _cc_library("grpc++", libs = [
        "grpc++_unsecure",
        "grpc_unsecure",
        "gpr",
        "address_sorting",
        "upb",
        "cares",
    ] + absl + ["protobuf", "z"], linkopts = ["-pthread", "-ldl"], deps = ["@//third_party/system:tsan_grpc"])
    build += _cc_library("crypto", libs = ["crypto"])
    build += _cc_library("ssl", libs = ["ssl", "crypto"], linkopts = ["-pthread", "-ldl"])
    build += _cc_library("zstd", libs = ["zstd"])
    build += _cc_library("lz4", libs = ["lz4"])
    build += _cc_library("asmjit", libs = ["asmjit"], linkopts = ["-lrt", "-pthread"])
    build += _cc_library("boost_headers", linkopts = ["-pthread"])
    for header_only in ["catch2", "cli11", "nlohmann_json", "slurm", "tomlplusplus"]:
        build += _cc_library(header_only)
    build += """
filegroup(
    name = "archives",
    srcs = glob(["archives/*.a"]),
)
"""
    ctx.file("BUILD.bazel", build)

system_repository = repository_rule(
    implementation = _system_repository_impl,
    local = True,
    doc = "Debian's C++ libraries.",
)
