"""C++ that Debian's protoc generates from .proto files."""

load("//bazel:cc.bzl", "cc_library")

def detshare_proto_library(name, src, grpc = False, deps = [], **kwargs):
    """A cc_library with the messages of one .proto file and, with `grpc`, its services.

    Its headers are included by full path: "proto/control.pb.h", "proto/control.grpc.pb.h".

    Args:
      name: the cc_library.
      src: the .proto file, in this package.
      grpc: whether the file declares services.
      deps: detshare_proto_library targets of the files that it imports. It imports them by full
        path.
      **kwargs: common attributes.
    """
    base = src[:-len(".proto")]
    suffixes = [".pb"] + ([".grpc.pb"] if grpc else [])
    command = "/usr/bin/protoc -I. --cpp_out=$(GENDIR)"
    if grpc:
        command += " --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin --grpc_out=$(GENDIR)"
    native.genrule(
        name = name + "_protoc",
        srcs = [src] + [d + "_proto_files" for d in deps],
        outs = [base + s + end for s in suffixes for end in [".h", ".cc"]],
        cmd = command + " $(location %s)" % src,
        message = "Generating C++ from",
    )
    native.filegroup(
        name = name + "_proto_files",
        srcs = [src] + [d + "_proto_files" for d in deps],
        visibility = ["//visibility:public"],
    )
    cc_library(
        name = name,
        srcs = [base + s + ".cc" for s in suffixes],
        hdrs = [base + s + ".h" for s in suffixes],
        copts = ["-w"],
        deps = deps + (["@system//:grpc++"] if grpc else ["@system//:protobuf"]),
        **kwargs
    )
