"""Unit tests: one Catch2 program for each file."""

load("//bazel:cc.bzl", "cc_test")

# The test acts as other users and groups when root runs it.
OTHER_USERS = "other_users"

# The test starts its own daemons.
PROCESSES = "processes"

# The test takes longer than a minute on a slow machine.
MEDIUM = "medium"

def unit_tests(tests, traits = {}):
    """Declares one test for each file NAME.cc.

    Args:
      tests: {name: its dependencies other than Catch}.
      traits: {name: list of OTHER_USERS, PROCESSES, MEDIUM}.
    """
    for name, deps in tests.items():
        needs = traits.get(name, [])
        daemon = "//server:detshared"
        cc_test(
            name = name,
            size = "medium" if MEDIUM in needs else "small",
            srcs = [name + ".cc"],
            data = [daemon] if PROCESSES in needs else [],
            env = {"DETSHARED": "$(rootpath %s)" % daemon} if PROCESSES in needs else {},
            tags = ["no-sandbox"] if OTHER_USERS in needs else [],
            deps = deps + ["//tests:catch_main"],
        )
