#!/usr/bin/python3
"""Tests what tools/sim/plot says about bad input and a missing matplotlib.

usage: plot_test.py PLOT
"""

import os
import subprocess
import sys
import tempfile
import unittest

PLOT = os.path.abspath(sys.argv[1])
FIGURES = "policy,placement,tpot_violations,ttft_violations,training,fairness\nfair,best-fit,0,0.1,0.5,0.9\n"
# A module that fails as a missing one does, and one that only notes that a figure was saved.
MISSING = "raise ImportError('No module named matplotlib')\n"
STAND_IN = "def use(backend):\n    pass\n"
PYPLOT = """class Axis:
    def __getattr__(self, name):
        return lambda *arguments, **options: None


class Figure(Axis):
    def savefig(self, path, dpi):
        open(path, "w").close()


def subplots(rows, columns, **options):
    return Figure(), [Axis() for _ in range(columns)]
"""


class Plot(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def plot(self, *arguments):
        environment = dict(os.environ, PYTHONPATH=os.path.join(self.folder, "modules"), PYTHONDONTWRITEBYTECODE="1")
        return subprocess.run([sys.executable, PLOT, *arguments], env=environment, capture_output=True, text=True,
                              check=False)

    def test_without_matplotlib_one_sentence_says_what_to_install(self):
        self.write("modules/matplotlib/__init__.py", MISSING)
        result = self.plot(self.write("results.csv", FIGURES), os.path.join(self.folder, "out.png"))
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"^plot: matplotlib is missing: apt-get install python3-matplotlib.*\n$")

    def test_a_wrong_command_line_shows_the_usage(self):
        result = self.plot("results.csv")
        self.assertEqual(result.returncode, 2)
        self.assertIn("tools/sim/plot RESULTS.csv OUT.png", result.stderr)

    def test_a_file_without_figures_is_named(self):
        for path in (os.path.join(self.folder, "none.csv"), self.write("other.csv", "a,b\n1,2\n"),
                     self.write("empty.csv", "")):
            result = self.plot(path, os.path.join(self.folder, "out.png"))
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, r"^plot: .*\.csv.*\n$")

    def test_with_matplotlib_it_writes_the_picture(self):
        self.write("modules/matplotlib/__init__.py", STAND_IN)
        self.write("modules/matplotlib/pyplot.py", PYPLOT)
        out = os.path.join(self.folder, "out.png")
        result = self.plot(self.write("results.csv", FIGURES), out)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(os.path.exists(out))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
