#!/usr/bin/python3
"""Tests how tools/bench/faults makes programs fault, and its conclusions from the reports of the others.

usage: faults_test.py FAULTS
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SCRIPT = sys.argv[1]
_loader = importlib.machinery.SourceFileLoader("faults", SCRIPT)
faults = importlib.util.module_from_spec(importlib.util.spec_from_loader("faults", _loader))
_loader.exec_module(faults)

# Programs that do as the faulty program does, without a GPU.
GETS_ITS_ERROR = "echo ready; echo cudaError_$1"
GETS_NO_ERROR = "echo ready; exit 1"
NEVER_READY = "exit 1"
STOPPED_FROM_OUTSIDE = 'echo ready; [ $1 != endless ] || until [ -e "$0.stop" ]; do sleep 0.01; done; rm -f "$0.stop"; echo stopped'


class FakeDaemon:
    def __init__(self, stop):
        self.stop = stop
        self.commands = []

    def prefix(self, tenant):
        return []

    def control(self, *words):
        self.commands.append(words)
        open(self.stop, "w").close()

    def status(self):
        return {"engines": []}


class MakingFaults(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.program = os.path.join(self.directory.name, "program")
        self.daemon = FakeDaemon(self.program + ".stop")

    def tearDown(self):
        self.directory.cleanup()

    def run_faults(self, text, count, tenants, make=faults.Faults):
        with open(self.program, "w") as file:
            file.write("#!/bin/bash\n%s\n" % text)
        os.chmod(self.program, 0o755)
        made = make(self.daemon, self.program, faults.KINDS, count, tenants, self.directory.name)
        for thread in made.threads:
            thread.join()
        return made

    def test_the_errors_of_the_programs_are_counted_by_kind(self):
        made = self.run_faults(GETS_ITS_ERROR, 4, 2)
        self.assertEqual(dict(made.seen), {(kind, "cudaError_" + kind): 1 for kind in faults.KINDS[:4]})
        self.assertEqual(made.failures, [])

    def test_a_program_that_gets_no_error_is_a_failure(self):
        made = self.run_faults(GETS_NO_ERROR, 2, 1)
        self.assertEqual((len(made.failures), sum(made.seen.values())), (2, 0))
        self.assertIn("no error came", made.failures[0])

    def test_a_program_whose_first_kernel_fails_is_a_failure(self):
        made = self.run_faults(NEVER_READY, 1, 1)
        self.assertIn("first kernel", made.failures[0])

    def test_an_endless_kernel_is_ended_by_the_operator(self):
        made = self.run_faults(STOPPED_FROM_OUTSIDE, 5, 1)
        self.assertEqual(made.seen["endless", "stopped"], 1)
        self.assertEqual(self.daemon.commands, [("sessions", "kill", "--tenant", "faulty-0")])

    def test_an_engine_that_is_not_found_is_a_failure(self):
        made = self.run_faults(STOPPED_FROM_OUTSIDE, 6, 1)
        self.assertIn("not in the status", made.failures[-1])

    def test_natively_the_program_with_an_endless_kernel_is_killed(self):
        made = self.run_faults(STOPPED_FROM_OUTSIDE, 6, 1, faults.NativeFaults)
        self.assertEqual((made.seen["endless", "SIGKILL"], made.seen["killed-engine", "SIGKILL"], made.seen["trap", "stopped"]), (1, 1, 1))
        self.assertEqual(self.daemon.commands, [])

    def test_the_faults_beside_a_long_step_are_named(self):
        made = self.run_faults(GETS_ITS_ERROR, 0, 1)
        made.times = [("trap", 1.0, 2.0), ("endless", 2.5, 4.0), ("assertion", 6.0, 7.0)]
        shown = io.StringIO()
        reports = {"inference": [{"latencies": [.5, .1], "begins": [8.0, 8.5]}],
                   "training": [{"times": [1.0], "begins": [0.0]}, {"times": [2.0], "begins": [3.0]}]}
        with contextlib.redirect_stdout(shown):
            faults.show_longest(made, reports, 1)
        self.assertEqual(shown.getvalue(), "  inference: 500 ms beside no fault\n"
                         "  training: 2000 ms beside endless (from -0.5 s to 1.0 s)\n")


class Conclusions(unittest.TestCase):

    def setUp(self):
        self.table = faults.Table("")

    def add(self, losses, result="a", wrong=0):
        with contextlib.redirect_stdout(io.StringIO()):
            self.table.add("phase", {"inference": [{"latencies": [.001, .003], "bits": [result], "wrong": wrong}],
                                     "training": [{"times": [.5, .5], "seconds": 1, "bits": losses}]})
        return dict(zip(self.table.COLUMNS, self.table.rows[-1]))

    def test_equal_bits_are_not_wrong_however_many_steps_a_phase_has(self):
        for losses in (["1", "2"], ["1"], ["1", "2", "3"]):
            self.assertEqual(self.add(losses)["wrong results"], 0)

    def test_each_loss_and_result_with_other_bits_is_wrong(self):
        self.add(["1", "2", "3"])
        self.assertEqual(self.add(["1", "4", "5"])["wrong results"], 2)
        self.assertEqual(self.add(["1"], result="b")["wrong results"], 1)
        self.assertEqual(self.add(["1"], wrong=3)["wrong results"], 3)
        self.assertEqual(self.table.wrong, 6)

    def test_a_phase_shows_its_tail_and_its_speed(self):
        row = self.add(["1"])
        self.assertEqual((row["requests"], row["p99 ms"], row["longest ms"], row["steps/s"]), (2, "3.00", "3.0", "2.00"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
