#!/usr/bin/python3
"""Tests the conclusions of tools/bench/bits, and its random changes on a pretended daemon.

usage: bits_test.py BITS
"""

import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
_loader = importlib.machinery.SourceFileLoader("bits", sys.argv[1])
bits = importlib.util.module_from_spec(importlib.util.spec_from_loader("bits", _loader))
_loader.exec_module(bits)

# Has other bits in each run if its name ends in "varies".
WORKLOAD = """
import json, os, sys
path = sys.argv[0]
count = len(open(path).readlines())
open(path, "a").write("\\n")
if "fails" in path: sys.exit("oh")
print(json.dumps({"digests": {"a": str(count if "varies" in path else 0)}, "unit": "step", "seconds": [0.5], "notes": {}}))
"""


def report(digest):
    return {"digests": {"a": digest}, "unit": "step", "seconds": [0.002], "notes": {}}


class Conclusions(unittest.TestCase):

    def test_a_row_counts_runs_with_the_bits_of_the_reference(self):
        reports = [report("1"), report("2"), report("2"), {"error": "exit 1: oh"}, report("3")]
        self.assertEqual(bits.row_of("x", reports, bits.bits_of(report("2"))), ["x", 5, 2, 3, 1, "2.0"])

    def test_a_run_that_failed_equals_nothing(self):
        self.assertEqual(bits.row_of("x", [{"error": "exit 1"}], bits.bits_of(report("1")))[2], 0)


class Reference(unittest.TestCase):

    def make(self, name, runs):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name + ".py")
            with open(path, "w") as file:
                file.write(WORKLOAD)
            bits.run.__globals__["workload_file"] = lambda _: path
            return bits.reference_of(name, types.SimpleNamespace(out=folder, timeout=60), runs)

    def test_runs_that_agree_are_a_reference(self):
        reports, reference = self.make("equal", 3)
        self.assertEqual((len(reports), reference), (3, (("a", "0"),)))

    def test_runs_that_disagree_are_none(self):
        with self.assertRaisesRegex(SystemExit, "different bits natively"):
            self.make("varies", 2)

    def test_a_run_that_fails_is_none_and_its_error_is_told(self):
        with self.assertRaisesRegex(SystemExit, "exit 1: oh"):
            self.make("fails", 1)


class RandomChanges(unittest.TestCase):

    def test_every_kind_of_change_is_a_command_of_detsharectl(self):
        commands = []
        changes = bits.Changes(types.SimpleNamespace(control=lambda *words: commands.append(words)), ["a", "b"], 1)
        changes.end()
        for _ in range(200):
            changes.change()
        self.assertEqual({words[:2] for words in commands}, {("policy", "set"), ("tenant", "set")})
        self.assertEqual({words[3] for words in commands if words[0] == "tenant"}, {"--class", "--weight", "--exclusive"})
        self.assertEqual({words[2] for words in commands if words[0] == "tenant"}, {"a", "b"})

    def test_a_command_that_fails_ends_the_changes_and_is_told(self):
        def control(*words):
            sys.exit("no such policy")
        changes = bits.Changes(types.SimpleNamespace(control=control), ["a"], 1)
        changes.thread.join()
        self.assertEqual(changes.failure, "no such policy")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
