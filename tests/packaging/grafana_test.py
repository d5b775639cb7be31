#!/usr/bin/python3
"""Checks that Grafana's dashboard uses existing metrics and labels, as their types allow.

  grafana_test.py DASHBOARD.JSON METRICS.MD
"""

import json
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
            asked = check_query(target["expr"], metrics, panel["title"], check)
            check(asked, f"{panel['title']} asks for nothing of the daemon's: {target['expr']}")
            used |= asked
            for variable in re.findall(r"\$(\w+)", target["expr"]):
                check(variable in variables or variable.startswith("__"), f"{panel['title']}: there is no ${variable}")
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            check(check_query(variable["definition"], metrics, variable["name"], check), f"{variable['name']} asks for nothing")
    for wanted in ("detshare_burst_duration_seconds", "detshare_tenant_sm_seconds_total", "detshare_slo_violations_total"):
        check(wanted in used, f"{wanted} is not shown")
    return 1 if failures else 0


sys.exit(main())
