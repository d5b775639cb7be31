#!/usr/bin/python3
"""Tests how tools/bench/first_kernel measures programs, without a GPU.

usage: first_kernel_test.py FIRST_KERNEL
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
_loader = importlib.machinery.SourceFileLoader("first_kernel", SCRIPT)
first_kernel = importlib.util.module_from_spec(importlib.util.spec_from_loader("first_kernel", _loader))
_loader.exec_module(first_kernel)


class Measuring(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.program = os.path.join(self.directory.name, "program")

    def tearDown(self):
        self.directory.cleanup()

    def write(self, text):
        with open(self.program, "w") as file:
            file.write("#!/bin/bash\n%s\n" % text)
        os.chmod(self.program, 0o755)

    def test_the_time_ends_with_the_first_result_and_not_with_the_program(self):
        # The program waits for a file that the test makes only after the measurement could have ended.
        self.write('[ $1 = none ] || exit 1; echo ready; until [ -e "$0.go" ]; do sleep 0.01; done')
        reached = []
        real = first_kernel.time.perf_counter

        def clock():
            reached.append(len(reached))
            if len(reached) == 2:  # after the first result
                open(self.program + ".go", "w").close()
            return real()

        first_kernel.time.perf_counter = clock
        try:
            self.assertGreater(first_kernel.first_kernel([], self.program), 0)
        finally:
            first_kernel.time.perf_counter = real

    def test_programs_run_behind_their_prefixes(self):
        self.write("[ $TENANT = a ] && echo ready")
        prefix = ["env", "TENANT=a"]
        self.assertEqual(len(first_kernel.one_after_the_other([prefix] * 3, self.program, 0)), 3)
        self.assertEqual(len(first_kernel.at_once([prefix] * 3, self.program)), 3)

    def test_a_program_without_a_result_is_an_error(self):
        self.write("exit 3")
        with self.assertRaisesRegex(RuntimeError, "exit 3"):
            first_kernel.first_kernel([], self.program)
        with self.assertRaisesRegex(RuntimeError, "exit 3"):
            first_kernel.at_once([[]] * 2, self.program)

    def test_a_row_has_the_shortest_the_median_and_the_longest_time(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            cells = first_kernel.row("native", [0.3, 0.1, 0.2])
            first_kernel.show_and_keep(first_kernel.COLUMNS, [cells], os.path.join(self.directory.name, "first_kernel.csv"))
        self.assertEqual(cells, ["native", 3, "100", "200", "300"])
        self.assertIn("native: 300, 100, 200", out.getvalue())
        with open(os.path.join(self.directory.name, "first_kernel.csv")) as file:
            self.assertIn("native,3,100,200,300", file.read())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
