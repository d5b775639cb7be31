#!/usr/bin/python3
"""Checks that the soak's verdict finds all leaks and no others.

  verdict_test.py SOAK
"""

import importlib.machinery
import importlib.util
import os
import random
import sys
import tempfile
import xml.dom.minidom

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("soak", sys.argv[1])
soak = importlib.util.module_from_spec(importlib.util.spec_from_loader("soak", loader))
loader.exec_module(soak)


def rows(apart=100, **leaks):
    """Twelve rests `apart` sessions apart, with noise, a warm-up, and a figure that grows by so much a session."""
    noise = random.Random(7)
    made = []
    for i in range(12):
        row = {"seconds": i * 10.0, "phase": "rest", "opened": i * apart, "sessions": 8, "files": 3, "survivor_files": 9,
               "survivor_file_kib": 100, "rss_kib": 50000 + min(i, 4) * 5000 + noise.randrange(60), "descriptors": 20 + noise.randrange(2),
               "threads": 22, "mappings": 600 + noise.randrange(5), "card_mib": 700 + noise.randrange(3), "p50_us": 250 + noise.randrange(9),
               "p90_us": 400 + noise.randrange(20), "p99_us": 900 + noise.randrange(9000)}
        for name, growth in leaks.items():
            row[name] += int(growth * row["opened"])
        made.append({**row, "phase": "run", "rss_kib": 90000})
        made.append(row)
    # One outlier is not a leak.
    made[-1]["rss_kib"] += 3000
    return made


def main():
    failures = []

    def check(condition, what):
        if not condition:
            failures.append(what)

    check(not soak.verdict(rows(), 4.0)[1], f"a leak where there is none: {soak.verdict(rows(), 4.0)[0]}")
    for name, growth in {"rss_kib": 8, "descriptors": 0.03, "threads": 0.03, "mappings": 0.5, "files": 0.02, "card_mib": 0.2}.items():
        lines, leaks = soak.verdict(rows(**{name: growth}), 4.0)
        check(leaks and any(line.startswith("LEAK") and name in line for line in lines), f"{name} by {growth} a session is not found")
    for name in ("descriptors", "threads", "mappings"):
        check(soak.verdict(rows(apart=15, **{name: 1}), 400.0)[1], f"{name} by 1 a session is not found in a short run")
        check(not soak.verdict(rows(apart=15, **{name: 0.05}), 400.0)[1], f"{name} by 3 in all is a leak")
    check(soak.verdict(rows()[:6], 4.0)[1], "too few rests are no verdict")
    check(not soak.verdict(rows(), 4.0, 0.1)[1], "latencies that stay are called slow")
    for name in ("p50_us", "p90_us"):
        slower = rows(**{name: 0.4})
        check(soak.verdict(slower, 4.0, 0.1)[1], f"{name} that grows is not found")
        check(not soak.verdict(slower, 4.0)[1], f"{name} is judged though nobody asked")
    check(soak.slope([(x, 2 * x + 1) for x in range(8)] + [(8, 100)]) == 2.0, "an outlier moves the slope")
    with tempfile.TemporaryDirectory() as folder:
        soak.write_svg(rows(), os.path.join(folder, "x.svg"))
        check(len(xml.dom.minidom.parse(os.path.join(folder, "x.svg")).getElementsByTagName("polyline")) == len(soak.PANELS), "the plot")
        soak.write_csv(rows(), os.path.join(folder, "x.csv"))
        with open(os.path.join(folder, "x.csv"), encoding="ascii") as file:
            check(len(file.readlines()) == 25, "the table")
    print("\n".join(failures) or "the verdict is sound")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
