"""Fuzz targets: code that must be safe for any bytes."""

load("//bazel:cc.bzl", "cc_binary", "cc_test")

def fuzz_target(name, inputs, deps, seeds = [], made_seeds = [], seeds_deps = [], **kwargs):
    """A test and a libFuzzer program of the LLVMFuzzerTestOneInput() in `name`_fuzzer.cc.

    `name`_fuzzer is an ordinary test: it runs the seeds, and then a fixed number of inputs made from them
    (tests/fuzzing/driver.cc).

    `name`_libfuzzer searches without end, and needs clang:
    bazel run --config=fuzz //THIS:`name`_libfuzzer -- FOLDER

    Args:
      name: what is tested.
      inputs: how many inputs the test makes: at most two seconds' worth.
      deps: of the target.
      seeds: files that are inputs, each a label of one file.
      made_seeds: names of seeds that the program in `name`_seeds.cc writes (tests/fuzzing/write_seeds.h).
      seeds_deps: of that program.
      **kwargs: common attributes of the test.
    """
    seeds = list(seeds)
    if made_seeds:
        cc_binary(
            name = name + "_seeds",
            testonly = True,
            srcs = [name + "_seeds.cc"],
            deps = seeds_deps + ["//tests/fuzzing:write_seeds"],
        )
        made = ["corpus/%s/%s" % (name, seed) for seed in made_seeds]
        native.genrule(
            name = name + "_made_seeds",
            testonly = True,
            outs = made,
            cmd = "$(location :%s_seeds) $(OUTS)" % name,
            tools = [":%s_seeds" % name],
        )
        seeds += made
    paths = ["$(rootpath %s)" % seed for seed in seeds]
    cc_test(
        name = name + "_fuzzer",
        size = "small",
        srcs = [name + "_fuzzer.cc"],
        args = ["--inputs=%d" % inputs] + paths,
        data = seeds,
        deps = deps + [
            "//tests/fuzzing:check",
            "//tests/fuzzing:driver",
        ],
        **kwargs
    )
    cc_binary(
        name = name + "_libfuzzer",
        testonly = True,
        srcs = [name + "_fuzzer.cc"],
        args = ["-seed_inputs=" + ",".join(paths)],
        data = seeds,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = deps + ["//tests/fuzzing:check"],
    )
