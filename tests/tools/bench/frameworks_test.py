#!/usr/bin/python3
"""Tests the conclusions of tools/bench/frameworks from reports.

usage: frameworks_test.py FRAMEWORKS
"""

import importlib.machinery
import importlib.util
import sys
import unittest

sys.dont_write_bytecode = True
_loader = importlib.machinery.SourceFileLoader("frameworks", sys.argv[1])
frameworks = importlib.util.module_from_spec(importlib.util.spec_from_loader("frameworks", _loader))
_loader.exec_module(frameworks)


def report(bits, seconds=(0.002,), **notes):
    return {"digests": dict(bits), "unit": "step", "seconds": list(seconds), "notes": {"repetitions": 1, **notes}}


class Compare(unittest.TestCase):

    def test_equal_digests_are_equal_and_the_ratio_is_that_of_the_medians(self):
        row = frameworks.compare("w", [report({"a": "1"}, [0.001, 0.002, 0.009])] * 2, [report({"a": "1"}, [0.003])] * 2)
        self.assertEqual((row["bits"], row["checked"], row["differing"]), ("equal", 1, []))
        self.assertAlmostEqual(row["ratio"], 1.5)

    def test_another_digest_differs_and_is_named(self):
        row = frameworks.compare("w", [report({"a": "1", "b": "2"})], [report({"a": "1", "b": "3"})])
        self.assertEqual((row["bits"], row["differing"]), ("differ", ["b"]))

    def test_a_missing_digest_differs(self):
        self.assertEqual(frameworks.compare("w", [report({"a": "1"})], [report({})])["bits"], "differ")

    def test_native_runs_that_disagree_are_no_reference(self):
        row = frameworks.compare("w", [report({"a": "1"}), report({"a": "2"})], [report({"a": "3"})])
        self.assertEqual(row["bits"], "native varies")

    def test_one_shim_run_that_differs_is_enough(self):
        row = frameworks.compare("w", [report({"a": "1"})] * 2, [report({"a": "1"}), report({"a": "2"})])
        self.assertEqual(row["bits"], "differ")

    def test_failures_say_who_failed_and_how(self):
        row = frameworks.compare("w", [{"error": "exit 1: no"}], [report({})])
        self.assertEqual((row["bits"], row["notes"]["native"]), ("native failed", "exit 1: no"))
        row = frameworks.compare("w", [report({"a": "1"})], [report({"a": "1"}), {"error": "exit 2: oh"}])
        self.assertEqual((row["bits"], row["notes"]["shim"]), ("shim failed", "exit 2: oh"))

    def test_notes_of_failed_parts_are_kept(self):
        row = frameworks.compare("w", [report({"a": "1"})], [report({"a": "1"}, **{"failed: fft": "bad"})])
        self.assertEqual(row["notes"], {"failed: fft": "bad"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
