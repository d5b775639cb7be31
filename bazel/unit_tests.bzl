"""Unit tests: Catch2, one file for each test."""

load("//bazel:cc.bzl", "cc_library", "cc_test")

# The test acts as other users and groups when root runs it.
OTHER_USERS = "other_users"

# The test starts its own daemons.
PROCESSES = "processes"

# The test takes longer than a minute on a slow machine.
MEDIUM = "medium"

# The test changes its whole program, by an own operator new for example.
ALONE = "alone"

def unit_tests(tests, data = [], traits = {}):
    """Declares one test for each file NAME.cc.

    The files are compiled together (unity.bzl), and each test program holds all of them. A test runs
    the test cases of its own file.

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
    for name in tests:
        needs = traits.get(name, [])
        daemon = "//server:detshared"
        cc_test(
            name = name,
            size = "medium" if MEDIUM in needs else "small",
            srcs = [] if name in together else [name + ".cc"],
            # Catch2 tags test cases with the names of their files.
            args = ["--filenames-as-tags", "--warn", "NoTests", "[#%s]" % name] if name in together else [],
            data = data + ([daemon] if PROCESSES in needs else []),
            env = {"DETSHARED": "$(rootpath %s)" % daemon} if PROCESSES in needs else {},
            tags = ["no-sandbox"] if OTHER_USERS in needs else [],
            deps = (["unit_test_files"] if name in together else tests[name]) + ["//tests:catch_main"],
        )
