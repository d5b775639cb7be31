#!/usr/bin/python3
"""The dashboard in a real browser, of a daemon with busy tenants: its numbers are the daemon's, and nothing complains.

  dashboard_test.py DETSHARED DETSHARECTL PROGRAM SHIM...

With $DETSHARE_SCREENSHOTS it lets the tenants work for a while and writes pictures to that folder.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import browser  # noqa: E402
from daemon import Daemon, until  # noqa: E402

PICTURES = os.environ.get("DETSHARE_SCREENSHOTS")
SECONDS_OF_PICTURES = 62

failures = []

# The texts that the page shows.
PAGE = """(() => {
  const rows = (id) => [...document.querySelectorAll(`#${id} tbody tr`)].map((row) => [...row.cells].map((cell) => cell.textContent));
  return {
    health: document.getElementById("health").textContent,
    facts: document.getElementById("facts").textContent,
    tiles: [...document.querySelectorAll(".tile .value")].map((tile) => tile.textContent),
    tenants: rows("tenants"), sessions: rows("sessions"),
    bars: document.querySelectorAll("#map .bar i").length,
    devices: [...document.querySelectorAll("#map .device")].map((device) => [...device.querySelectorAll(".bar")].map((bar) => bar.title)),
    engines: document.getElementById("engines-card").hidden ? null : rows("engines"),
    charts: [...document.querySelectorAll(".chart")].map((chart) => chart.querySelectorAll("path").length),
    strips: document.querySelectorAll("#strips .track").length,
    legend: [...document.querySelectorAll("#legend li")].map((one) => one.textContent),
    problem: document.getElementById("problem").hidden ? null : document.getElementById("problem").textContent,
    width: document.documentElement.scrollWidth,
    markup: document.querySelectorAll("#sessions img, #sessions script, #tenants img").length,
  };
})()"""

# The same texts from the daemon's reply, in the page's notation.
WANTED = """(async () => {
  const { bytes, count } = await import("/format.js");
  const status = await (await fetch("/api/v1/status")).json();
  const partitions = (one) => one.devices.map((place) => `${status.devices.length > 1 ? `${place.device}: ` : ""}${place.partition}${place.bound ? " (bound)" : ""}`).join(", ");
  const sum = (of) => status.devices.reduce((total, device) => total + of(device), 0);
  return {
    open: count(status.tenants.reduce((total, one) => total + one.sessions, 0)),
    memory: `${bytes(sum((device) => device.memory.used))} of ${bytes(sum((device) => device.memory.total))}`,
    tenants: status.tenants.map((one) => [one.name, count(one.sessions), bytes(one.device_memory), count(one.migrations)]),
    sessions: status.sessions.map((one) => [count(one.session), one.tenant, one.program, String(one.pid), partitions(one), count(one.operations), bytes(one.device_memory)]),
    policy: status.policy, version: status.version,
  };
})()"""


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def page(chromium):
    return chromium.value(PAGE)


def check_numbers(chromium):
    """With the programs stopped, what is there stands still."""
    shown, wanted = page(chromium), chromium.value(WANTED)
    check(shown["health"] == "serving", f"health: {shown['health']}")
    check(wanted["policy"] in shown["facts"] and wanted["version"] in shown["facts"], f"facts: {shown['facts']}")
    check(shown["tiles"][1].replace("\u00a0", " ") == wanted["memory"], f"memory: {shown['tiles'][1]}, not {wanted['memory']}")
    check(shown["tiles"][2].split()[0] == wanted["open"], f"sessions: {shown['tiles'][2]}, not {wanted['open']}")
    check([[row[0], row[2], row[5], row[12]] for row in shown["tenants"]] == wanted["tenants"],
          f"tenants: {shown['tenants']}, not {wanted['tenants']}")
    check([[*row[:5], *row[6:8]] for row in shown["sessions"]] == sorted(wanted["sessions"], key=lambda row: int(row[0])),
          f"sessions: {shown['sessions']}, not {wanted['sessions']}")


def take_pictures(chromium):
    os.makedirs(PICTURES, exist_ok=True)
    chromium.value("document.querySelector('[data-minutes=\"%d\"]').click()" % (1 if SECONDS_OF_PICTURES < 100 else 5))
    for width, scheme, limit in ((1280, "light", 2000), (1280, "dark", 920), (390, "light", 1300)):
        chromium.size(width, 900)
        chromium.scheme(scheme)
        time.sleep(2.5)
        chromium.screenshot(os.path.join(PICTURES, f"dashboard-{width}-{scheme}.png"), limit)


def main():
    detshared, ctl, program, shim = map(os.path.abspath, sys.argv[1:5])
    chromium_program = browser.find()
    if chromium_program is None:
        print("NOT TESTED: there is no Chromium on this machine (Debian: apt-get install chromium)")
        return 0
    with Daemon(detshared, shim) as daemon, browser.Browser(chromium_program) as chromium:
        chromium.size(1280, 900)
        chromium.open(daemon.url + "/")
        # The page says that there are no programs yet.
        until(lambda: page(chromium)["health"] == "serving")
        empty = page(chromium)
        check("No session is open" in str(empty["sessions"]), f"an empty table: {empty['sessions']}")
        check(empty["bars"] == 0, "an empty map")

        # A program's name is never markup.
        hostile = os.path.join(daemon.folder, "<img src=x onerror=alert(1)>")
        shutil.copy(program, hostile)
        daemon.run("chat", "serve" if PICTURES else hostile, "answer", "600", executable=program if PICTURES else None)
        daemon.run("training", "trainer", "train", "600", executable=program)
        daemon.run("notebook", "notebook", "wait", "600", executable=program)
        until(lambda: len(page(chromium)["sessions"]) == 3)
        if PICTURES:
            time.sleep(SECONDS_OF_PICTURES)
            take_pictures(chromium)
            chromium.size(1280, 900)
        until(lambda: page(chromium)["charts"][0] > 0 and page(chromium)["charts"][1] > 0 and page(chromium)["charts"][2] > 0)
        until(lambda: page(chromium)["strips"] == 3)
        shown = page(chromium)
        check(shown["bars"] >= 3, f"{shown['bars']} bars")
        check(shown["strips"] == 3, f"{shown['strips']} strips")
        check(shown["legend"] == ["chat", "notebook", "training"], f"legend: {shown['legend']}")
        check(shown["markup"] == 0, "a program's name has become markup")
        check(shown["problem"] is None, shown["problem"])
        check(shown["width"] <= 1280, f"{shown['width']} pixels wide on 1280")
        chromium.size(390, 844)
        check(page(chromium)["width"] <= 390, f"{page(chromium)['width']} pixels wide on 390")
        hidden = chromium.value("(() => { const bar = document.querySelector('.toolbar'); return bar.scrollHeight - bar.clientHeight; })()")
        check(hidden <= 0, f"{hidden} pixels of the legend and the time shown are hidden")

        for one in daemon.programs:
            one.send_signal(signal.SIGSTOP)
        time.sleep(3)
        check_numbers(chromium)
        check(not chromium.errors, f"the console says: {chromium.errors}")
        foreign = [url for url in chromium.requests if not url.startswith((daemon.url, "about:", "data:"))]
        check(not foreign, f"asked elsewhere: {foreign}")

        # The page says when the daemon has ended.
        for one in daemon.programs:
            one.kill()
        daemon.end()
        until(lambda: page(chromium)["problem"] is not None)
        check("does not reply" in page(chromium)["problem"], page(chromium)["problem"])
        check(page(chromium)["health"] == "no reply", page(chromium)["health"])
        if PICTURES:
            chromium.size(1280, 900)
            chromium.screenshot(os.path.join(PICTURES, "dashboard-no-answer.png"), 600)
    several_devices(detshared, program, shim, chromium_program)
    owners(detshared, ctl, program, shim, chromium_program)
    return 1 if failures else 0


def several_devices(detshared, program, shim, chromium_program):
    """A session on two devices is shown on both, one on one of them there only; and with isolation by user there are engines."""
    with Daemon(detshared, shim, flags=["--soft-devices=2", "--isolation=user"]) as daemon, browser.Browser(chromium_program) as chromium:
        chromium.size(1280, 900)
        chromium.open(daemon.url + "/")
        until(lambda: page(chromium)["health"] == "serving")
        check(page(chromium)["devices"] == [], f"devices at which nobody has looked: {page(chromium)['devices']}")
        daemon.run("chat", "serve", "answer", "600", executable=program, devices="0,1")
        daemon.run("training", "trainer", "train", "600", executable=program, devices="1")
        until(lambda: len(page(chromium)["sessions"]) == 2)
        until(lambda: page(chromium)["strips"] == 3)
        shown = page(chromium)
        check([[title.split(":")[0] for title in device] for device in shown["devices"]] == [["chat"], ["chat", "training"]],
              f"on two devices: {shown['devices']}")
        # With several engines the page has a column for the isolation group.
        check([row[5].count(":") for row in shown["sessions"]] == [2, 1], f"sessions on two devices: {shown['sessions']}")
        check(shown["engines"] is not None and [row[1:4] for row in shown["engines"]] == [["running", "2", "1"]], f"engines: {shown['engines']}")
        check("engines" in shown["facts"], f"facts: {shown['facts']}")
        check(shown["width"] <= 1280, f"{shown['width']} pixels wide on 1280")
        check(not chromium.errors, f"the console says: {chromium.errors}")


def owners(detshared, ctl, program, shim, chromium_program):
    """Tenants of containers and jobs, whose names are long, show whose they are."""
    with Daemon(detshared, shim) as daemon, browser.Browser(chromium_program) as chromium:
        chromium.size(1280, 900)
        chromium.open(daemon.url + "/")
        until(lambda: page(chromium)["health"] == "serving")
        share = "gpu-share-latency.de754a7e-50f7-4090-8000-000000000000-"
        pod = "models/chat-with-a-long-name-7d4b9c6f5d-x2x4k/server"
        for number, arguments in ((0, ["--class", "latency", "--pod", pod]), (1, ["--user", "alice", "--job", "17"])):
            made = subprocess.run([ctl, "--socket", daemon.socket, "endpoint", "open", f"e{number}", "--tenant", f"{share}{number}", *arguments],
                                  check=True, capture_output=True, text=True)
            daemon.run("", program, "train" if number else "answer", "600", socket=f"{made.stdout.strip()}/detshared.sock")
        until(lambda: len(page(chromium)["tenants"]) == 4)
        until(lambda: page(chromium)["strips"] == 2)
        if PICTURES:
            time.sleep(20)
            chromium.value("document.querySelector('details').open = true")
            for width in (1280, 390):
                chromium.size(width, 900)
                time.sleep(2.5)
                chromium.screenshot(os.path.join(PICTURES, f"dashboard-owners-{width}.png"), 3600)
            chromium.size(1280, 900)
            time.sleep(2.5)
        shown = page(chromium)
        rows = {row[0]: row[1] for row in shown["tenants"]}
        # The ends of names tell them apart, so the middle is left out.
        short = [f"{share}{number}"[:14] + "\u2026" + f"{share}{number}"[-13:] for number in (0, 1)]
        check(set(short) < set(rows), f"names: {rows}")
        check(rows[short[1]] == "alice, job 17", f"the job: {rows}")
        check(rows[short[0]].startswith("models/chat-with") and rows[short[0]].endswith("server") and len(rows[short[0]]) == 32, f"the pod: {rows}")
        check(rows["training"] == "\u2013", f"nobody's: {rows}")
        titles = chromium.value("[...document.querySelectorAll('#tenants td, #tenants .who')].map((cell) => cell.title)")
        check(pod in titles and f"{share}0" in titles, f"the whole names: {titles}")
        terms = chromium.value("[...document.querySelectorAll('#terms dt')].map((term) => term.textContent)")
        check({"SM", "Burst", "Throttled", "TPOT"} < set(terms), f"the terms: {terms}")
        check(shown["width"] <= 1280, f"{shown['width']} pixels wide on 1280")
        chromium.size(390, 844)
        check(page(chromium)["width"] <= 390, f"{page(chromium)['width']} pixels wide on 390")
        until(lambda: "gpu-sha\u20260000-0" in [row[0] for row in page(chromium)["tenants"]])
        # Beside the scale of the SMs there is room for each name.
        overlaps = chromium.value("""[...document.querySelectorAll('#strips .name')].filter(
            (name) => [...name.parentNode.querySelectorAll('text')].some((text) => {
              const [one, other] = [name.getBoundingClientRect(), text.getBoundingClientRect()];
              return text !== name && one.right > other.left && one.left < other.right && one.bottom > other.top + 2 && one.top < other.bottom - 2;
            })).length""")
        check(overlaps == 0, f"{overlaps} names run into the scale")
        # The ends of names, which tell them apart, are shown here, too.
        cut = "[...document.querySelectorAll('#map .name')].filter((name) => name.scrollWidth > name.clientWidth).length"
        until(lambda: chromium.value(cut) == 0)
        # No name is wider than its place, so that none runs into what is beside it.
        wide = chromium.value("""[...document.querySelectorAll('#map .who, #legend li')].filter(
            (name) => name.getBoundingClientRect().right > document.documentElement.clientWidth).length""")
        check(wide == 0, f"{wide} names leave the page")
        check(not chromium.errors, f"the console says: {chromium.errors}")


sys.exit(main())
