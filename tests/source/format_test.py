#!/usr/bin/python3
"""Fails when a C++ file is not as clang-format makes it, and names the file and the command that mends it."""

import os
import subprocess
import sys

from source_tree import files, root

BATCH = 40  # files a process


def main():
    paths = list(files((".cc", ".h", ".cu", ".inc")))
    batches = [paths[i:i + BATCH] for i in range(0, len(paths), BATCH)]
    wrong = []
    running = []
    for batch in batches:
        running.append(subprocess.Popen(
            ["/usr/bin/clang-format", "--dry-run", "-Werror", "--ferror-limit=1"] + batch,
            cwd=root(), stderr=subprocess.PIPE, text=True))
        if len(running) == os.cpu_count():
            wrong += finished(running)
    wrong += finished(running)
    print("%d files looked at" % len(paths))
    for path in wrong:
        print("FAILED: %s is not formatted: clang-format -i %s" % (path, path))
    return 1 if wrong or len(paths) < 500 else 0


def finished(running):
    """Waits for all of `running`, empties it, and returns the files that are not formatted."""
    wrong = set()
    for process in running:
        errors = process.communicate()[1]
        found = {line.split(":")[0] for line in errors.splitlines() if ": error: " in line}
        if process.returncode and not found:
            sys.exit("clang-format: " + errors)
        wrong |= found
    running.clear()
    return sorted(wrong)


sys.exit(main())
