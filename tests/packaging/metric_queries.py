"""Checks queries of Prometheus against the table of metrics in docs/metrics.md."""

import re

# Labels that Prometheus itself adds, the last two in a cluster.
EVERYWHERE = {"instance", "job", "namespace", "pod"}


def documented(path):
    with open(path, encoding="utf-8") as file:
        rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| (.*?) \|", file.read(), re.M)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def check_query(query, metrics, title, check):
    """Calls check(condition, words) for each metric and label of the query. Returns the metrics' names."""
    names = set()
    for name in re.findall(r"(?<![\w:])(?:detshare|process)_[a-z_]+(?![\w:])", query):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        base = name if name in metrics else base
        names.add(base)
        check(base in metrics, f"{title}: there is no {name}")
        if base not in metrics:
            continue
        kind, labels = metrics[base]
        check((name == base) == (kind != "histogram"), f"{title}: {name} is a {kind}")
        if kind == "counter":
            over_time = re.search(rf"(rate|increase|max_over_time)\({name}\b", query)
            check(over_time, f"{title}: {name} is a counter, which says something over time only")
        known = labels | EVERYWHERE | {"le"}
        for selector in re.findall(rf"\b{name}\{{([^}}]*)\}}", query):
            for label in re.findall(r"(\w+)\s*[=!]", selector):
                check(label in known, f"{title}: {name} has no label {label}")
    everything = EVERYWHERE | {"le"}
    for name in names:
        everything |= metrics.get(name, (None, set()))[1]
    if names:
        for group in re.findall(r"\b(?:by|on|group_left) ?\(([^)]*)\)", query):
            for label in filter(None, (one.strip() for one in group.split(","))):
                check(label in everything or ":" in query, f"{title}: no metric of the query has the label {label}")
    return names
