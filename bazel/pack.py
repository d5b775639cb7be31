"""Packs a tarball from a manifest of lines "path in the tarball TAB file".

Several names of one file in one folder become one file and symbolic links to it.

  pack.py TOP MANIFEST OUT
"""

import gzip
import os
import sys
import tarfile


def main():
    top, manifest, out = sys.argv[1:]
    with open(manifest, encoding="utf-8") as lines:
        entries = dict(line.rstrip("\n").split("\t") for line in lines)

    # The longest name (libcuda.so.1 rather than libcuda.so) is the file; the others are links.
    real_names = {}
    for name, source in sorted(entries.items(), key=lambda e: -len(e[0])):
        real_names.setdefault((os.path.dirname(name), os.path.realpath(source)), name)

    with open(out, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name, source in sorted(entries.items()):
                info = tarfile.TarInfo(f"{top}/{name}")
                real_name = real_names[os.path.dirname(name), os.path.realpath(source)]
                if real_name != name:
                    info.type = tarfile.SYMTYPE
                    info.linkname = os.path.basename(real_name)
                    info.mode = 0o777
                    tar.addfile(info)
                    continue
                info.size = os.path.getsize(source)
                info.mode = 0o755 if os.access(source, os.X_OK) else 0o644
                with open(source, "rb") as content:
                    tar.addfile(info, content)


if __name__ == "__main__":
    main()
