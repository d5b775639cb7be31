#!/usr/bin/python3
"""Checks that Kubernetes objects are valid for the API, and that they fit together and fit the real
programs.

  check_manifests.py MANIFESTS DETSHARED DETSHARECTL PLUGIN DRA_DRIVER

Fields and types are checked against the models of Debian's python3-kubernetes, where that is installed. It
is older than Dynamic Resource Allocation and admission policies, whose fields are listed here.
"""

import copy
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

# The rights that tests/tools/kubernetes/dra/dra_driver_test.cc sees the driver use.
DRIVER_RIGHTS = {"create resourceslices", "delete resourceslices", "get nodes", "get resourceclaims", "list resourceclaims",
                 "list resourceslices", "patch resourceclaims/status", "update resourceslices", "watch resourceclaims", "watch resourceslices"}

# The API server asks for this right in addition, when the status is patched.
DRIVER_RIGHTS.add("associated-node:patch resourceclaims/driver")

# Fields of kinds that python3-kubernetes does not have. A list has the form of its members; None is any value.
_PARAMETERS = {"apiVersion": str, "kind": str, "class": str, "weight": None, "exclusive": bool, "maxMultiprocessors": int,
               "pinnedMemory": str, "objectives": {"latency": str, "ttft": str, "tpot": str}}
_SELECTORS = [{"cel": {"expression": str}}]
_OPAQUE = {"driver": str, "parameters": _PARAMETERS}
_META = {"name": str, "namespace": str, "labels": None}
FORMS = {
    "DeviceClass": ("resource.k8s.io/v1", {"selectors": _SELECTORS, "config": [{"opaque": _OPAQUE}]}),
    "ResourceClaimTemplate": ("resource.k8s.io/v1", {"metadata": None, "spec": {"devices": {
        "requests": [{"name": str, "exactly": {"deviceClassName": str, "selectors": _SELECTORS, "count": int,
                                               "capacity": {"requests": {"memory": None, "multiprocessors": str, "places": str}}}}],
        "config": [{"requests": [str], "opaque": _OPAQUE}]}}}),
    "ValidatingAdmissionPolicy": ("admissionregistration.k8s.io/v1", {
        "failurePolicy": str, "matchConditions": [{"name": str, "expression": str}],
        "matchConstraints": {"resourceRules": [{"apiGroups": [str], "apiVersions": [str], "operations": [str], "resources": [str]}]},
        "variables": [{"name": str, "expression": str}], "validations": [{"expression": str, "message": str}]}),
    "ServiceMonitor": ("monitoring.coreos.com/v1", {"selector": None, "endpoints": None}),
    "ValidatingAdmissionPolicyBinding": ("admissionregistration.k8s.io/v1", {"policyName": str, "validationActions": [str]}),
}
CLUSTER_KINDS = {"ClusterRole", "ClusterRoleBinding", "DeviceClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

MODELS = {"ServiceAccount": "V1ServiceAccount", "ClusterRole": "V1ClusterRole", "ClusterRoleBinding": "V1ClusterRoleBinding", "ConfigMap": "V1ConfigMap", "DaemonSet": "V1DaemonSet", "Pod": "V1Pod",
          "Job": "V1Job", "Service": "V1Service"}
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


def check_form(value, form, where):
    """Checks a value against FORMS."""
    if form is None:
        return
    if isinstance(form, list):
        check(isinstance(value, list), f"{where} is no list")
        for position, one in enumerate(value if isinstance(value, list) else []):
            check_form(one, form[0], f"{where}[{position}]")
    elif isinstance(form, dict):
        check(isinstance(value, dict), f"{where} is no map")
        for key, one in (value if isinstance(value, dict) else {}).items():
            check(key in form, f"{where} has no field {key}")
            check_form(one, form.get(key), f"{where}.{key}")
    else:
        check(isinstance(value, form), f"{where} is {value!r}, no {form.__name__}")


def without_claims(item):
    """The object without the claims of its pod, after checking them."""
    if item["kind"] != "Pod":
        return item
    item = copy.deepcopy(item)
    claims = item["spec"].pop("resourceClaims", [])
    check_form(claims, [{"name": str, "resourceClaimTemplateName": str}], "resourceClaims")
    names = {claim["name"] for claim in claims}
    for container in item["spec"]["containers"]:
        used = container.get("resources", {}).pop("claims", [])
        check({claim["name"] for claim in used} <= names, f"a container uses claims that its pod lacks: {used}")
    return item


def check_rights(role, objects):
    """Checks that the role has the rights of the driver, and is bound to its account."""
    rights = {f"{verb} {resource}" for rule in role["rules"] for verb in rule["verbs"] for resource in rule["resources"]}
    check(rights == DRIVER_RIGHTS, f"the role has other rights than the driver uses: {rights ^ DRIVER_RIGHTS}")
    for rule in role["rules"]:
        check(rule["apiGroups"] == ([""] if "nodes" in rule["resources"] else ["resource.k8s.io"]), f"the group of {rule}")
    bindings = [item for item in objects if item["kind"] == "ClusterRoleBinding"]
    check([item["roleRef"]["name"] for item in bindings] == [role["metadata"]["name"]], "the role is not bound once")
    for subject in (subject for item in bindings for subject in item["subjects"]):
        check(any(item["kind"] == "ServiceAccount" and item["metadata"]["name"] == subject["name"] and
                  item["metadata"]["namespace"] == subject["namespace"] for item in objects), f"no account {subject}")
        account = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
        check(any(item["kind"] == "ValidatingAdmissionPolicy" and account in str(item["spec"]["matchConditions"])
                  for item in objects), f"no policy limits {account}")


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
    manifests, detshared, detsharectl, plugin, driver = sys.argv[1:]
    programs = {"/usr/sbin/detshared": detshared, "/usr/sbin/detshare-device-plugin": plugin,
                "/usr/sbin/detshare-dra-driver": driver}
    with open(manifests, encoding="utf-8") as file:
        objects = [item for item in yaml.safe_load_all(file) if item is not None]
    check(objects, "there is nothing")
    for item in objects:
        where = f"{item.get('kind')} {item.get('metadata', {}).get('name')}"
        check(item.get("kind") in MODELS or item.get("kind") in FORMS, f"{where}: what is that?")
        if item.get("kind") in FORMS:
            version, form = FORMS[item["kind"]]
            check(item.get("apiVersion") == version, f"{where}: apiVersion")
            check_form(item, {"apiVersion": str, "kind": str, "metadata": _META, "spec": form}, where)
        elif item.get("kind") not in MODELS:
            continue
        elif models:
            check_fields(without_claims(item), MODELS[item["kind"]], where)
        check(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?" + (r"(\.[-a-z0-9]+)*" if item["kind"] == "DeviceClass" else ""),
                           item["metadata"]["name"]), f"{where}: name")
        check(("namespace" in item["metadata"]) <= (item["kind"] not in CLUSTER_KINDS), f"{where} has a namespace")
        if item["kind"] == "ClusterRole":
            check_rights(item, objects)
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
        if item["kind"] == "Service":
            pods = [one["spec"]["template"] for one in objects if one["kind"] == "DaemonSet"]
            chosen = [pod for pod in pods if item["spec"]["selector"].items() <= pod["metadata"]["labels"].items()]
            check(len(chosen) == 1, f"{where} selects the pods of {len(chosen)} sets")
            names = {port["name"] for pod in chosen for one in pod["spec"]["containers"] for port in one.get("ports", [])}
            check(all(port["targetPort"] in names for port in item["spec"]["ports"]), f"{where}: ports {names}")
        if item["kind"] == "ServiceMonitor":
            services = [one for one in objects if one["kind"] == "Service"
                        and item["spec"]["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()]
            check(len(services) == 1, f"{where} selects {len(services)} services")
            names = {port["name"] for one in services for port in one["spec"]["ports"]}
            for endpoint in item["spec"]["endpoints"]:
                check(endpoint["port"] in names, f"{where}: port {endpoint['port']}")
                secret = endpoint["authorization"]["credentials"]["name"]
                mounted = [volume["secret"]["secretName"] for one in objects if one["kind"] == "DaemonSet"
                           for volume in one["spec"]["template"]["spec"]["volumes"] if "secret" in volume]
                check(secret in mounted, f"{where}: the daemon does not have the token of {secret}")
    # Two sets must not select each other's pods.
    selectors = [item["spec"]["selector"]["matchLabels"] for item in objects if item["kind"] == "DaemonSet"]
    check(all(selectors.count(one) == 1 for one in selectors), "two DaemonSets select the same pods")
    for failure in failures:
        print("FAILED:", failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
