"""Unit tests: a Catch2 program for each file."""

load("@rules_cc//cc:defs.bzl", "cc_test")

# Takes other users and groups, where root runs it.
OTHER_USERS = "other_users"

# Starts daemons of its own.
PROCESSES = "processes"

# Takes longer than a minute on a slow machine.
MEDIUM = "medium"

def unit_tests(tests, traits = {}):
    """Declares one test for each file NAME.cc.

    Args:
      tests: {name: what it takes beside Catch}.
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
