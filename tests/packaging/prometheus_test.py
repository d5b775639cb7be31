#!/usr/bin/python3
"""The rules by Prometheus' own tools, and a real Prometheus that scrapes a real daemon with programs in tenants.

  prometheus_test.py RULES.YML RULES_TEST.YML DETSHARED DETSHARECTL PROGRAM SHIM...

Needs prometheus and promtool (Debian's package prometheus), and starts Prometheus on a free port of this machine.
"""

import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server", "web"))

from daemon import Daemon, until  # noqa: E402

TOKEN = "0123456789abcdef0123456789abcdef"
# What kube-state-metrics says of the pod.
PODS = 'kube_pod_labels{namespace="models",pod="chat-0",label_app="assistant"} 1\n'
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True)
    check(done.returncode == 0, f"promtool {' '.join(arguments)}:\n{done.stdout}{done.stderr}")


class Pods(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(PODS.encode())

    def log_message(self, *_):
        pass


class Prometheus:
    def __init__(self, folder, rules, targets):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        shutil.copy(rules, os.path.join(folder, "detshare.rules.yml"))
        with open(os.path.join(folder, "token"), "w", encoding="ascii") as file:
            file.write(TOKEN)
        with open(os.path.join(folder, "prometheus.yml"), "w", encoding="ascii") as file:
            file.write(f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [detshare.rules.yml]
scrape_configs:
  - job_name: detshare
    honor_labels: true
    authorization: {{credentials_file: token}}
    static_configs:
      # As in a cluster, targets have labels of their own.
      - {{targets: ["127.0.0.1:{targets['daemon']}"], labels: {{namespace: kube-system, pod: detshare-daemon-x}}}}
  - job_name: detshare-without-token
    static_configs: [{{targets: ["127.0.0.1:{targets['daemon']}"]}}]
  - job_name: kube-state-metrics
    honor_labels: true
    static_configs: [{{targets: ["127.0.0.1:{targets['pods']}"]}}]
""")
        promtool("check", "config", os.path.join(folder, "prometheus.yml"))
        self.log = open(os.path.join(folder, "prometheus.log"), "wb")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"],
            stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()

    def get(self, path, **parameters):
        query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}{query}", timeout=30) as reply:
            return json.load(reply)["data"]

    def ready(self):
        try:
            return self.get("targets")
        except OSError:
            return None

    def query(self, text):
        """Returns [(labels, value)]."""
        return [(one["metric"], float(one["value"][1])) for one in self.get("query", query=text)["result"]]


def scrape(rules, detshared, ctl, program, shim):
    folder = tempfile.mkdtemp(prefix="detshare-prometheus-")
    token = os.path.join(folder, "daemons-token")
    with open(token, "w", encoding="ascii") as file:
        file.write(TOKEN + "\n")
    pods = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pods)
    threading.Thread(target=pods.serve_forever, daemon=True).start()
    with Daemon(detshared, shim, flags=("--preemption=off", f"--metrics-token-file={token}")) as daemon:

        def open_endpoint(name, *arguments):
            command = [ctl, "--socket", daemon.socket, "endpoint", "open", name, *arguments]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

        chat = open_endpoint("share-0", "--class", "latency", "--slo-latency", "1us", "--memory", "256MiB", "--pod",
                             "models/chat-0/server")
        job = open_endpoint("slurm-17", "--class", "batch", "--user", "alice", "--job", "17")
        daemon.run("", program, "answer", "600", socket=f"{chat}/detshared.sock")
        daemon.run("", program, "train", "600", socket=f"{job}/detshared.sock")
        with Prometheus(folder, rules, {"daemon": daemon.port, "pods": pods.server_port}) as prometheus:
            until(prometheus.ready)
            until(lambda: prometheus.query('up{job="detshare"} == 1'))
            until(lambda: prometheus.query('up{job="detshare-without-token"} == 0'))
            # Whose the tenants are, with the pod's labels and not those of the daemon's pod.
            owners = until(lambda: prometheus.query("detshare_tenant_owner_info"))
            labels = {one["tenant"]: one for one, _ in owners}
            check(labels["share-0"]["namespace"] == "models" and labels["share-0"]["pod"] == "chat-0", f"the pod: {labels}")
            check(labels["share-0"]["container"] == "server", f"the container: {labels}")
            check(labels["slurm-17"]["user"] == "alice" and labels["slurm-17"]["job_id"] == "17", f"the job: {labels}")
            check(labels["slurm-17"].get("pod", "") == "", f"a job has no pod: {labels}")
            check(labels["slurm-17"]["job"] == "detshare", f"the job of Prometheus: {labels}")
            joined = until(lambda: prometheus.query("""
                sum by (namespace, label_app) (
                  rate(detshare_operations_total[10s])
                    * on (instance, tenant) group_left (namespace, pod) detshare_tenant_owner_info
                    * on (namespace, pod) group_left (label_app) kube_pod_labels) > 0"""))
            check([one for one, _ in joined] == [{"namespace": "models", "label_app": "assistant"}], f"the join: {joined}")
            # All rules are evaluated, and what they record is there.
            until(lambda: prometheus.query('instance_tenant:detshare_tenant_sms:ratio_rate5m{tenant="slurm-17"} > 0'))
            until(lambda: prometheus.query('instance_tenant:detshare_late_bursts:ratio_rate5m{tenant="share-0"} > 0.5'))
            until(lambda: prometheus.query('ALERTS{alertname="DetShareLateBursts",tenant="share-0"}'))
            groups = prometheus.get("rules")["groups"]
            rules_read = [rule for group in groups for rule in group["rules"]]
            check(len(rules_read) > 15, f"the rules are read: {groups}")
            for rule in rules_read:
                check(rule["health"] == "ok" and not rule.get("lastError"), f"{rule['name']}: {rule.get('lastError')}")
            # A daemon that ends is missed.
            daemon.end()
            until(lambda: prometheus.query('ALERTS{alertname="DetShareNotReplying",job="detshare"}'))
    pods.shutdown()
    shutil.rmtree(folder)


def main():
    rules, rules_test, detshared, ctl, program, shim = [os.path.abspath(path) for path in sys.argv[1:7]]
    for tool in ("promtool", "prometheus"):
        if shutil.which(tool) is None:
            raise SystemExit(f"there is no {tool}: apt-get install --no-install-recommends prometheus")
    promtool("check", "rules", rules)
    with tempfile.TemporaryDirectory() as folder:
        for path in (rules, rules_test):
            shutil.copy(path, folder)
        promtool("test", "rules", os.path.join(folder, os.path.basename(rules_test)))
    begin = time.monotonic()
    scrape(rules, detshared, ctl, program, shim)
    print(f"Prometheus scraped for {time.monotonic() - begin:.0f} s")
    return 1 if failures else 0


sys.exit(main())
