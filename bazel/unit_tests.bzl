"""Unit tests: Catch2, one file for each test."""

load("//bazel:cc.bzl", "cc_binary", "cc_library", "cc_test")

# The test acts as other users and groups when root runs it.
OTHER_USERS = "other_users"

# The test starts its own daemons.
PROCESSES = "processes"

# The test takes longer than a minute on a slow machine.
MEDIUM = "medium"

# The test changes its whole program, by an own operator new for example.
ALONE = "alone"

def _file_test_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = out, target_file = ctx.executable.program, is_executable = True)
    environment = {name: ctx.expand_location(value, ctx.attr.data) for name, value in ctx.attr.env.items()}
    runfiles = ctx.runfiles(files = ctx.files.data)
    for target in ctx.attr.data + [ctx.attr.program]:
        runfiles = runfiles.merge(target[DefaultInfo].default_runfiles)
    return [
        DefaultInfo(executable = out, runfiles = runfiles),
        testing.TestEnvironment(environment),
    ]

_file_test = rule(
    implementation = _file_test_impl,
    attrs = {
        "data": attr.label_list(allow_files = True),
        "env": attr.string_dict(),
        "program": attr.label(executable = True, cfg = "target", mandatory = True),
    },
    doc = "Runs a program that holds the tests of several files, with `args` that choose those of one file.",
    test = True,
)

def unit_tests(tests, data = [], traits = {}):
    """Declares one test for each file NAME.cc.

    The files are compiled together (unity.bzl), and one program holds all of them. A test runs the test
    cases of its own file.

    Args:
      tests: {name: its dependencies other than Catch}.
      data: the files that the tests read.
      traits: {name: list of OTHER_USERS, PROCESSES, MEDIUM, ALONE}.
    """
    together = [name for name in tests if ALONE not in traits.get(name, [])]
    cc_library(
        name = "unit_test_files",
        testonly = True,
        srcs = [name + ".cc" for name in together],
        deps = depset([dep for name in together for dep in tests[name]]).to_list() +
               ["@system//:catch2"],
        linkstatic = True,
        alwayslink = True,
    )
    cc_binary(
        name = "unit_tests",
        testonly = True,
        deps = ["unit_test_files", "//tests:catch_main"],
    )
    for name in tests:
        needs = traits.get(name, [])
        daemon = "//server:detshared"
        common = dict(
            name = name,
            size = "medium" if MEDIUM in needs else "small",
            data = data + ([daemon] if PROCESSES in needs else []),
            env = {"DETSHARED": "$(rootpath %s)" % daemon} if PROCESSES in needs else {},
            tags = ["no-sandbox"] if OTHER_USERS in needs else [],
        )
        if name in together:
            _file_test(
                program = "unit_tests",
                # Catch2 tags test cases with the names of their files.
                args = ["--filenames-as-tags", "--warn", "NoTests", "[#%s]" % name],
                **common
            )
        else:
            cc_test(srcs = [name + ".cc"], deps = tests[name] + ["//tests:catch_main"], **common)
