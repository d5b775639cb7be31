#!/usr/bin/python3
"""Checks that the rules for Prometheus use existing metrics and labels, as their types allow.

  rules_test.py RULES.YML METRICS.MD

promtool checks their syntax and what they say (prometheus_test.py).
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from metric_queries import check_query, documented  # noqa: E402

failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def rules(path):
    """Yields kind, name and expression of each rule. The file has one style, so this needs no reader of YAML."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for kind, name, body in re.findall(r"^      - (record|alert): (\S+)\n(.*?)(?=^      [-#]|^\S|^  - |\Z)", text, re.M | re.S):
        expression = re.search(r"^        expr: (?:\|\n((?:          .*\n)+)|(.*)\n)", body, re.M)
        yield kind, name, (expression.group(1) or expression.group(2)).strip(), body


def main():
    metrics = documented(sys.argv[2])
    check(len(metrics) > 30, "docs/metrics.md has its table")
    recorded, seen = set(), set()
    for kind, name, expression, body in rules(sys.argv[1]):
        check(name not in seen, f"{name} is there twice")
        seen.add(name)
        used = check_query(expression, metrics, name, check)
        for record in re.findall(r"\b\w+:\w+:\w+\b", expression):
            check(record in recorded, f"{name}: {record} is not recorded before")
            used.add(record)
        check(used or re.match(r"up\{", expression), f"{name} asks for nothing of the daemon's")
        if kind == "record":
            recorded.add(name)
        else:
            check(re.search(r"severity: (critical|warning|info)", body), f"{name} has no severity")
            check("summary:" in body, f"{name} has no summary")
    with open(sys.argv[1], encoding="utf-8") as file:
        check(len(seen) == len(re.findall(r"^ +- (?:record|alert):", file.read(), re.M)), "all rules are read")
    check(len(recorded) > 4 and len(seen) > 15, "the rules are there")
    return 1 if failures else 0


sys.exit(main())
