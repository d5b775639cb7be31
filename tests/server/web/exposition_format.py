"""A strict reader of Prometheus' text format. Every mistake raises ValueError."""

import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
TYPES = ("counter", "gauge", "histogram")


class Family:
    def __init__(self, name, text):
        self.name, self.help, self.type = name, text, None
        self.samples = {}  # (name, sorted labels) -> value


def number(text):
    if not re.fullmatch(r"[+-]?Inf|NaN|[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", text):
        raise ValueError(f"no number: {text}")
    return float(text)


def labels_of(text):
    labels, at = [], 0
    while at < len(text):
        match = LABEL.match(text, at)
        if not match:
            raise ValueError(f"bad labels: {text}")
        labels.append((match.group(1), match.group(2)))
        at = match.end()
        if at < len(text):
            if text[at] != ",":
                raise ValueError(f"bad labels: {text}")
            at += 1
    if len(dict(labels)) != len(labels):
        raise ValueError(f"a label comes twice: {text}")
    return tuple(sorted(labels))


def belongs(family, name):
    ends = ["_bucket", "_sum", "_count"] if family.type == "histogram" else [""]
    return any(name == family.name + end for end in ends)


def check_histogram(family):
    series = {}
    for (name, labels), value in family.samples.items():
        rest = tuple(label for label in labels if label[0] != "le")
        one = series.setdefault(rest, {"buckets": []})
        if name.endswith("_bucket"):
            one["buckets"].append((number(dict(labels)["le"]), value))
        else:
            one[name[len(family.name):]] = value
    for labels, one in series.items():
        edges = [edge for edge, _ in one["buckets"]]
        counts = [count for _, count in one["buckets"]]
        if edges != sorted(set(edges)) or edges[-1] != math.inf:
            raise ValueError(f"{family.name}{labels}: edges {edges}")
        if counts != sorted(counts) or counts[-1] != one["_count"] or one["_sum"] < 0:
            raise ValueError(f"{family.name}{labels}: counts {counts}")


def parse(text):
    """Returns the families by name."""
    if not text.endswith("\n") or "\r" in text:
        raise ValueError("lines end with a line feed")
    families, family = {}, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, _, words = line[7:].partition(" ")
            if not re.fullmatch(NAME, name) or name in families or not words or re.search(r"\\(?![\\n])", words):
                raise ValueError(line)
            family = families[name] = Family(name, words)
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            if family is None or name != family.name or family.type or family.samples or kind not in TYPES:
                raise ValueError(line)
            family.type = kind
            if (kind == "counter") != name.endswith("_total"):
                raise ValueError(f"{name} is a {kind}")
        else:
            match = SAMPLE.fullmatch(line)
            if not match or family is None or family.type is None or not belongs(family, match.group(1)):
                raise ValueError(line)
            key = (match.group(1), labels_of(match.group(2) or ""))
            if key in family.samples:
                raise ValueError(f"twice: {line}")
            value = number(match.group(3))
            if family.type == "counter" and not value >= 0:
                raise ValueError(line)
            family.samples[key] = value
    for family in families.values():
        if family.type == "histogram":
            check_histogram(family)
    return families
