#!/usr/bin/python3
"""Checks that Kubernetes objects are valid for the API, and that they fit together and fit the real
programs.

  check_manifests.py MANIFESTS DETSHARED DETSHARECTL PLUGIN

Fields and types are checked against the models of Debian's python3-kubernetes, where that is installed.
"""

import re
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    print("NOT TESTED: this machine has no python3-yaml")
    sys.exit(0)
try:
    from kubernetes.client import models
except ImportError:
    models = None
    print("NOT TESTED: fields against Kubernetes' API: this machine has no python3-kubernetes")

MODELS = {"ServiceAccount": "V1ServiceAccount", "ConfigMap": "V1ConfigMap", "DaemonSet": "V1DaemonSet", "Pod": "V1Pod",
          "Job": "V1Job"}
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)


def check_fields(value, kind, where):
    """Checks that every key is a field of the model and every value has its type."""
    collection = re.fullmatch(r"(list\[|dict\(str, )(.*)[\])]", kind)
    if collection and kind.startswith("list["):
        if not isinstance(value, list):
            return failures.append(f"{where} is no list")
        for position, one in enumerate(value):
            check_fields(one, collection[2], f"{where}[{position}]")
    elif collection:
        if not isinstance(value, dict):
            return failures.append(f"{where} is no map")
        for key, one in value.items():
            check(isinstance(key, str), f"{where}: key {key!r}")
            check_fields(one, collection[2], f"{where}.{key}")
    elif kind == "str" and re.search(r"\.(limits|requests)\.", where):  # a quantity
        check(isinstance(value, (str, int)), f"{where} is {value!r}, no quantity")
    elif kind in ("str", "int", "bool", "float"):
        check(type(value).__name__ == kind, f"{where} is {value!r}, no {kind}")
    elif kind == "object":  # a number or a text
        check(isinstance(value, (int, str, dict)), f"{where} is {value!r}")
    elif kind == "datetime":
        failures.append(f"{where}: a time is nothing to write")
    else:
        model = getattr(models, kind)
        fields = {name: model.openapi_types[attribute] for attribute, name in model.attribute_map.items()}
        if not isinstance(value, dict):
            return failures.append(f"{where} is no {kind}")
        for key, one in value.items():
            if key not in fields:
                failures.append(f"{where}: {kind} has no field {key}")
            else:
                check_fields(one, fields[key], f"{where}.{key}")
        try:
            model(**{attribute: value.get(name) for attribute, name in model.attribute_map.items()})
        except ValueError as error:
            failures.append(f"{where}: {error}")


def check_pod(spec, where, objects, programs):
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    check(len(volumes) == len(spec.get("volumes", [])), f"{where}: a volume is there twice")
    if "serviceAccountName" in spec:
        check(any(item["kind"] == "ServiceAccount" and item["metadata"]["name"] == spec["serviceAccountName"]
                  for item in objects), f"{where}: no account {spec['serviceAccountName']}")
    for volume in spec.get("volumes", []):
        if "configMap" in volume:
            check(any(item["kind"] == "ConfigMap" and item["metadata"]["name"] == volume["configMap"]["name"]
                      for item in objects), f"{where}: no config map for volume {volume['name']}")
    used = set()
    for container in spec.get("initContainers", []) + spec["containers"]:
        for mount in container.get("volumeMounts", []):
            used.add(mount["name"])
            check(mount["name"] in volumes, f"{where}: no volume {mount['name']}")
        command = container.get("command", [])
        program = programs.get(command[0] if command else "")
        if program:
            # The real program must accept these arguments.
            said = subprocess.run([program, *container.get("args", []), "--version"], capture_output=True, text=True,
                                  check=False)
            check(said.returncode == 0, f"{where}: {command[0]} refuses its arguments: {said.stdout}{said.stderr}")
        check(container.get("image", "").count(":") == 1, f"{where}: image {container.get('image')!r}")
    check(used == volumes, f"{where}: volumes that nobody mounts: {volumes - used}")


def main():
    manifests, detshared, detsharectl, plugin = sys.argv[1:]
    programs = {"/usr/sbin/detshared": detshared, "/usr/sbin/detshare-device-plugin": plugin}
    with open(manifests, encoding="utf-8") as file:
        objects = [item for item in yaml.safe_load_all(file) if item is not None]
    check(objects, "there is nothing")
    for item in objects:
        where = f"{item.get('kind')} {item.get('metadata', {}).get('name')}"
        check(item.get("kind") in MODELS, f"{where}: what is that?")
        if item.get("kind") not in MODELS:
            continue
        if models:
            check_fields(item, MODELS[item["kind"]], where)
        check(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", item["metadata"]["name"]), f"{where}: name")
        for key, value in item["metadata"].get("labels", {}).items():
            check(re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", str(value)), f"{where}: label {key}={value}")
        if item["kind"] == "DaemonSet":
            template = item["spec"]["template"]
            for key, value in item["spec"]["selector"]["matchLabels"].items():
                check(template["metadata"]["labels"].get(key) == value, f"{where} does not select its own pods")
            check_pod(template["spec"], where, objects, programs)
        if item["kind"] == "Job":
            check_pod(item["spec"]["template"]["spec"], where, objects, programs)
        if item["kind"] == "Pod":
            check_pod(item["spec"], where, objects, programs)
        if item["kind"] == "ConfigMap":
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
                config.write(item["data"]["detshare.toml"])
                config.flush()
                said = subprocess.run([detsharectl, "config", "check", config.name], capture_output=True, text=True, check=False)
                check(said.returncode == 0, f"{where}: {said.stdout}{said.stderr}")
    # Two sets must not select each other's pods.
    selectors = [item["spec"]["selector"]["matchLabels"] for item in objects if item["kind"] == "DaemonSet"]
    check(all(selectors.count(one) == 1 for one in selectors), "two DaemonSets select the same pods")
    for failure in failures:
        print("FAILED:", failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
