#!/usr/bin/python3
"""Runs the first command of docs/simulator.md, and compares its output with the page.

  page_test.py DETSHARE_SIM PAGE
"""

import re
import shlex
import subprocess
import sys

PROGRAM, PAGE = sys.argv[1:]


def main():
    with open(PAGE, encoding="utf-8") as file:
        blocks = re.findall(r"^```\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    command = shlex.split(blocks[0])
    arguments = command[command.index("--") + 1:]
    result = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"FAILED: the command ends with {result.returncode}")
    if result.stdout != blocks[1]:
        sys.exit(f"FAILED: the page has\n{blocks[1]}but the command prints\n{result.stdout}")


if __name__ == "__main__":
    main()
