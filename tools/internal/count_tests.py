"""Counts the test cases of one `bazel test`.

  count_tests.py BUILD_EVENTS_JSON BAZEL_EXIT_STATUS

The last line is "N passed, N failed", with ", N skipped" when tests were skipped. A test program
that died, timed out or could not be built counts as at least one failure. Exits with 1 when
anything failed.
"""

import json
import sys
import urllib.parse
import xml.etree.ElementTree


def count_cases(path):
    """Returns (passed, failed, skipped) of a JUnit file, or None when it cannot be read."""
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return None
    passed = failed = skipped = 0
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main():
    events_path, status = sys.argv[1], int(sys.argv[2])
    tests = set()
    results = {}  # (label, run, shard) -> (attempt, result)
    with open(events_path, encoding="utf-8") as events:
        for line in events:
            event = json.loads(line)
            identity = event.get("id", {})
            if "targetConfigured" in identity and event.get("configured", {}).get("testSize"):
                tests.add(identity["targetConfigured"]["label"])
            if "testResult" in identity and "testResult" in event:
                of = identity["testResult"]
                key = (of["label"], of.get("run", 1), of.get("shard", 1))
                attempt = of.get("attempt", 1)
                if key not in results or results[key][0] <= attempt:
                    results[key] = (attempt, event["testResult"])

    passed = failed = skipped = 0
    complaints = []
    for (label, _, _), (_, result) in sorted(results.items()):
        ok = result.get("status") in ("PASSED", "FLAKY")
        counts = None
        for output in result.get("testActionOutput", []):
            if output.get("name") == "test.xml" and output.get("uri", "").startswith("file://"):
                counts = count_cases(urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path))
        if counts is None or sum(counts) == 0:
            counts = (1, 0, 0) if ok else (0, 1, 0)
        if not ok:
            complaints.append(f"{result.get('status', 'FAILED')}: {label}")
            counts = (counts[0], max(counts[1], 1), counts[2])
        passed += counts[0]
        failed += counts[1]
        skipped += counts[2]
    for label in sorted(tests - {key[0] for key in results}):
        complaints.append(f"NOT BUILT: {label}")
        failed += 1
    # Status 4: there was nothing to test. With any other status, Bazel itself failed or a target
    # that is no test.
    if status not in (0, 4) and failed == 0:
        complaints.append(f"bazel ended with exit status {status}")
        failed = 1

    for complaint in complaints:
        print(complaint)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
