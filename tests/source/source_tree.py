"""The checkout that a test runs in: these tests read sources where they lie, not as declared inputs."""

import os


def root():
    """Returns the checkout's folder."""
    return os.path.dirname(os.path.realpath("WORKSPACE"))


def files(endings):
    """Yields the paths, below root(), of source files whose name ends in one of `endings`."""
    for folder, folders, names in os.walk(root()):
        relative = os.path.relpath(folder, root())
        folders[:] = sorted(
            f for f in folders
            if not f.startswith((".", "bazel-")) and (relative != "." or f not in ("dist",)))
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.normpath(os.path.join(relative, name))
