#!/usr/bin/python3
"""Checks that Grafana's dashboard uses existing metrics and labels, as their types allow.

  grafana_test.py DASHBOARD.JSON METRICS.MD
"""

import json
import re
import sys

failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def documented(path):
    with open(path, encoding="utf-8") as file:
        rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| (.*?) \|", file.read(), re.M)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


# Labels that Prometheus itself adds.
EVERYWHERE = {"instance", "job"}


def check_query(query, metrics, title):
    names = set()
    for name in re.findall(r"\b(?:detshare|process)_[a-z_]+", query):
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
            for label in re.findall(r"(\w+)\s*=", selector):
                check(label in known, f"{title}: {name} has no label {label}")
        for group in re.findall(r"by \(([^)]*)\)", query):
            for label in group.split(","):
                check(label.strip() in known, f"{title}: {name} has no label {label}")
    check(names, f"{title}: asks for nothing of the daemon's: {query}")
    return names


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        dashboard = json.load(file)
    metrics = documented(sys.argv[2])
    check(len(metrics) > 30, "docs/metrics.md has its table")
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    used, places, ids = set(), [], set()
    for panel in dashboard["panels"]:
        check(panel["id"] not in ids, f"two panels have the id {panel['id']}")
        ids.add(panel["id"])
        at = panel["gridPos"]
        check(at["x"] + at["w"] <= 24, f"{panel['title']} is beyond the edge")
        for other, title in places:
            apart = (at["x"] >= other["x"] + other["w"] or other["x"] >= at["x"] + at["w"] or at["y"] >= other["y"] + other["h"]
                     or other["y"] >= at["y"] + at["h"])
            check(apart, f"{panel['title']} lies on {title}")
        places.append((at, panel["title"]))
        if panel["type"] == "row":
            continue
        check(panel["fieldConfig"]["defaults"].get("unit"), f"{panel['title']} has no unit")
        for target in panel["targets"]:
            used |= check_query(target["expr"], metrics, panel["title"])
            for variable in re.findall(r"\$(\w+)", target["expr"]):
                check(variable in variables or variable.startswith("__"), f"{panel['title']}: there is no ${variable}")
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            check_query(variable["definition"], metrics, variable["name"])
    for wanted in ("detshare_burst_duration_seconds", "detshare_tenant_sm_seconds_total", "detshare_slo_violations_total"):
        check(wanted in used, f"{wanted} is not shown")
    return 1 if failures else 0


sys.exit(main())
