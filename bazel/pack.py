"""Packs a tarball by a manifest of "path in it TAB file" and "path in it TAB -> symlink's target" lines.

  pack.py TOP MANIFEST OUT
"""

import gzip
import os
import sys
import tarfile


def main():
    top, manifest, out = sys.argv[1:]
    entries = {}
    with open(manifest, encoding="utf-8") as lines:
        for line in lines:
            name, source = line.rstrip("\n").split("\t")
            entries[name] = source

    with open(out, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name, source in sorted(entries.items()):
                info = tarfile.TarInfo(f"{top}/{name}")
                if source.startswith("-> "):
                    info.type = tarfile.SYMTYPE
                    info.linkname = source[3:]
                    info.mode = 0o777
                    tar.addfile(info)
                    continue
                info.size = os.path.getsize(source)
                info.mode = 0o755 if os.access(source, os.X_OK) else 0o644
                with open(source, "rb") as content:
                    tar.addfile(info, content)


if __name__ == "__main__":
    main()
