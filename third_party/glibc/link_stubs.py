#!/usr/bin/python3
"""Makes libraries to link with, in place of the machine's C library. What is linked with them runs
with every glibc since a version.

  link_stubs.py VERSION FOLDER

glibc gives a symbol a new version when its meaning or its place changes, and keeps the old versions
for programs that were linked long ago (https://sourceware.org/glibc/wiki/FAQ, "symbol versioning").
The linker takes the newest. The stubs offer, of each symbol of the machine's libraries, the newest
version that is not newer than VERSION ("2.17"), and no symbol that began later. They have no code:
a program finds the real libraries when it starts.

FOLDER gets libc.so and its companions, for the linker's -L.
"""

import os
import re
import subprocess
import sys

MACHINE = "/lib/x86_64-linux-gnu/"
# The part of glibc that is linked into everything.
NONSHARED = "/usr/lib/x86_64-linux-gnu/libc_nonshared.a"
# The names for -l, and the libraries that they stand for.
LIBRARIES = {"c_stub": "libc.so.6", "m": "libm.so.6", "ld_stub": "ld-linux-x86-64.so.2"}
# Since glibc 2.34 these are empty, and their symbols are in libc.so.6. Older systems need them.
MERGED = {"pthread": "libpthread.so.0", "dl": "libdl.so.2", "rt": "librt.so.1"}


def number(version):
    """(2, 17) of "GLIBC_2.17"; None for other versions, such as GLIBC_PRIVATE."""
    match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in match.groups()) if match else None


def symbols(library, newest):
    """{name: (version, kind, size)} of what the library offered at that version."""
    table = subprocess.run(["readelf", "--dyn-syms", "--wide", library], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[6] in ("UND", "ABS") or "@" not in fields[7]:
            continue
        name, version = re.split("@+", fields[7])
        at = number(version)
        if fields[3] not in ("FUNC", "IFUNC", "OBJECT", "TLS") or at is None or at > newest:
            continue
        if name not in found or at > number(found[name][0]):
            found[name] = (version, fields[3], int(fields[2], 0))
    return found


def link(folder, name, soname, assembly, script):
    source, versions = os.path.join(folder, name + ".s"), os.path.join(folder, name + ".lds")
    for path, text in ((source, assembly), (versions, script)):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    command = ["/usr/bin/gcc", "-shared", "-nostdlib", "-fuse-ld=bfd", f"-Wl,-soname={soname}", "-Wl,--build-id=none"]
    if script:
        command.append(f"-Wl,--version-script={versions}")
    subprocess.run([*command, "-o", os.path.join(folder, f"lib{name}.so"), source], check=True)
    os.remove(source)
    os.remove(versions)


def stub(folder, name, soname, newest):
    offered = symbols(MACHINE + soname, newest)
    assembly = ['.section .note.GNU-stack,"",@progbits']
    nodes = {}
    for symbol, (version, kind, size) in sorted(offered.items()):
        kinds = {"FUNC": (".text", "function"), "IFUNC": (".text", "function"), "OBJECT": (".bss", "object"),
                 "TLS": ('.section .tbss,"awT",@nobits', "tls_object")}
        section, what = kinds[kind]
        # Programs that are no libraries copy objects, so their sizes count.
        room = max(size, 8) if kind in ("OBJECT", "TLS") else 1
        assembly += [section, f".globl {symbol}", f".type {symbol}, @{what}", f"{symbol}:", f".zero {room}",
                     f".size {symbol}, {size if what != 'function' else room}"]
        nodes.setdefault(version, []).append(symbol)
    before, script = "", ""
    for version in sorted(nodes, key=number):
        hide = " local: *;" if not before else ""
        script += f"{version} {{ global: {'; '.join(nodes[version])};{hide} }} {before};\n"
        before = version
    link(folder, name, soname, "\n".join(assembly) + "\n", script)


def main():
    version, folder = sys.argv[1:3]
    newest = number("GLIBC_" + version)
    for name, soname in LIBRARIES.items():
        stub(folder, name, soname, newest)
    for name, soname in MERGED.items():
        link(folder, name, soname, '.section .note.GNU-stack,"",@progbits\n', "")
    # As the machine's libc.so, which is a linker script, too. A library that is named after
    # --no-as-needed is needed even where none of its symbols is used: on older systems it has them.
    with open(os.path.join(folder, "libc.so"), "w", encoding="ascii") as file:
        file.write(f"INPUT(-lc_stub {NONSHARED} AS_NEEDED(-lld_stub))\n")


main()
