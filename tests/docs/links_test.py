#!/usr/bin/python3
"""Checks that the pages and headings to which the pages link exist.

  links_test.py PAGE...
"""

import os
import re
import sys

PAGES = sys.argv[1:]


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return re.sub(r"^```.*?^```", "", file.read(), flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    """The anchors that GitHub makes of the headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def main():
    texts = {os.path.normpath(page): text_of(page) for page in PAGES}
    links, failures = 0, []
    for page, text in texts.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            at = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not at.endswith(".md"):
                continue
            links += 1
            if at not in texts:
                failures.append(f"{page}: there is no {target}")
            elif anchor and anchor not in anchors(texts[at]):
                failures.append(f"{page}: {at} has no heading {anchor}")
    if links < 100:
        failures.append(f"only {links} links were found")
    print("\n".join(failures) or f"{links} links, all to pages and headings that exist")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
