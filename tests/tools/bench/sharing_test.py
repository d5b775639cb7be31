#!/usr/bin/python3
"""Tests how tools/bench/sharing runs programs, and its conclusions from their reports.

usage: sharing_test.py SHARING
"""

import argparse
import contextlib
import csv
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SCRIPT = sys.argv[1]
_loader = importlib.machinery.SourceFileLoader("sharing", SCRIPT)
sharing = importlib.util.module_from_spec(importlib.util.spec_from_loader("sharing", _loader))
_loader.exec_module(sharing)
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(SCRIPT)), "programs")

STEPS = "from tenant import serve, steps\nserve(steps(lambda: None, lambda: None))\n"
REQUESTS = "from tenant import serve, requests\nprint('not a reply')\nserve(requests(lambda: None, 0.0001))\n"
BROKEN = "import sys\nsys.exit('no GPU in sight')\n"


class Figures(unittest.TestCase):

    def test_a_percentile_is_a_value_that_was_measured(self):
        values = list(range(1, 101))
        self.assertEqual([sharing.percentile(values, share) for share in (.5, .99, 1)], [50, 99, 100])
        self.assertEqual(sharing.percentile([7], .99), 7)

    def test_latencies_are_reported_in_milliseconds(self):
        figures = sharing.figures({"latencies": [0.001, 0.002, 0.009]})
        self.assertEqual((figures["p50"], figures["p99"], figures["requests"]), (2, 9, 3))

    def test_steps_are_reported_per_second(self):
        self.assertEqual(sharing.figures({"steps": 30, "seconds": 2.0, "times": []}), {"per second": 15})

    def test_tokens_beyond_the_objective_are_late(self):
        late = sharing.SLO_TPOT_MS / 1000 * 2
        figures = sharing.figures({"gaps": [0.001, late, late, 0.001], "tpot": [0.001, late], "ttft": [0.1]})
        self.assertEqual((figures["late tokens %"], figures["late requests %"], figures["ttft late %"]), (50, 50, 0))


class Programs(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        for name, text in (("steps.py", STEPS), ("requests.py", REQUESTS), ("broken.py", BROKEN)):
            with open(os.path.join(self.directory.name, name), "w") as file:
                file.write(text)
        os.symlink(os.path.join(PROGRAMS, "tenant.py"), os.path.join(self.directory.name, "tenant.py"))
        os.environ["PYTHONDONTWRITEBYTECODE"] = os.environ["PYTHONPATH"] = self.directory.name
        self.options = argparse.Namespace(out=self.directory.name, programs=self.directory.name, seconds=0.05)
        self.bench = sharing.Bench(self.options)

    def tearDown(self):
        self.directory.cleanup()

    def run_native(self, *programs):
        with contextlib.redirect_stdout(io.StringIO()):
            self.bench.native([sharing.Role(name, name + ".py") for name in programs])
        return self.bench.rows

    def test_programs_are_measured_alone_and_together(self):
        alone, together = self.run_native("requests", "steps")
        self.assertEqual((alone["sharing"], together["sharing"]), ("each alone", "time-slicing"))
        self.assertGreater(together["steps per second"], 0)
        self.assertGreater(alone["requests requests"], 0)

    def test_a_program_that_fails_is_named_with_its_last_words(self):
        [row] = self.run_native("steps", "broken")
        self.assertIn("broken.py", row["failed"])
        self.assertIn("no GPU in sight", row["failed"])

    def test_the_table_has_a_column_for_every_figure_of_any_row(self):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            sharing.show("t", [{"sharing": "x", "a p99": 1.0}, {"sharing": "y", "b p99": 2.5}], self.directory.name)
        with open(os.path.join(self.directory.name, "t.csv"), newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["b p99"] for row in rows], ["", "2.5"])
        self.assertIn("2.50", shown.getvalue())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
