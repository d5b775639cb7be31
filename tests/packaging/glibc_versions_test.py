#!/usr/bin/python3
"""Checks that what runs in users' images or in Slurm needs only glibc, and no version after 2.17.

  glibc_versions_test.py FILE...
"""

import re
import subprocess
import sys

NEWEST = (2, 17)
LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}
# Without it, a process of an older system that has no other use for it lacks pthread_create.
NEEDED = {"libpthread.so.0", "libdl.so.2"}


def problems(path):
    text = subprocess.run(["readelf", "--dynamic", "--version-info", "--wide", path], check=True, capture_output=True, text=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
    for library in sorted(needed - LIBRARIES):
        yield f"needs {library}, which images may not have"
    for library in sorted(NEEDED - needed):
        yield f"does not need {library}, where older systems have functions that it calls"
    versions = set(re.findall(r"Name: GLIBC_(\S+)", text))
    if not versions:
        yield "names no version of glibc"
    for version in sorted(versions):
        if not re.fullmatch(r"[0-9.]+", version) or tuple(map(int, version.split(".")))[:2] > NEWEST:
            yield f"needs glibc {version}"


def main():
    found = [f"{path} {problem}" for path in sys.argv[1:] for problem in problems(path)]
    print("\n".join(found) or f"{len(sys.argv) - 1} files run with glibc 2.17")
    sys.exit(1 if found else 0)


main()
