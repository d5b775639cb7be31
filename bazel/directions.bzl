"""Which folder may use which. The visibility of packages and //tests/source:directions_test are made from this."""

# For each folder the others that it may use. A folder in a folder of the list follows the same rule, unless it is in the list, too.
# tests/ and the packages at the root, in bazel/ and in third_party/ may use everything.
_BASE = ["client_shim/base", "proto"]
_TRANSPORT = _BASE + ["client_shim/transport"]
_OBJECTS = _TRANSPORT + ["client_shim/objects"]
_MEMORY = _OBJECTS + ["client_shim/memory"]
_CODE = _MEMORY + ["client_shim/code"]
_WORK = _CODE + ["client_shim/work"]
_API = _WORK + ["client_shim/context", "client_shim/entry"]

_RUNTIME = ["coroutine_runtime", "policy", "policy/config", "proto"]
_SERVER_BASE = _RUNTIME + ["server/base"]
_SESSION = _SERVER_BASE + ["server/backends/images", "server/shared_memory"]
_SESSIONS = _SESSION + ["server/access", "server/session", "server/tenants"]
_TELEMETRY = _SESSIONS + ["server/sessions"]
_SERVICES = _TELEMETRY + ["server/engines", "server/telemetry"]
_WEB = _SERVICES + ["server/services"]

USES = {
    "client_shim": _API + ["client_shim/api", "client_shim/nvml"],
    "client_shim/api": _API,
    "client_shim/base": ["proto"],
    "client_shim/code": _MEMORY,
    "client_shim/context": _WORK,
    "client_shim/entry": _MEMORY,
    "client_shim/memory": _OBJECTS,
    "client_shim/nvml": _TRANSPORT,
    "client_shim/objects": _TRANSPORT,
    "client_shim/transport": _BASE,
    "client_shim/work": _CODE,
    "coroutine_runtime": ["policy", "proto"],
    "policy": [],
    "policy/config": ["policy", "proto"],
    "proto": [],
    "server": _WEB + ["server/backends", "server/web"],
    "server/access": _SERVER_BASE,
    "server/backends": ["coroutine_runtime", "policy", "proto", "server/backends/images"],
    "server/backends/images": ["proto"],
    "server/base": ["proto"],
    "server/services": _SERVICES,
    "server/session": _SESSION,
    "server/sessions": _SESSIONS,
    "server/shared_memory": _SERVER_BASE,
    "server/engines": _SESSIONS + ["server/sessions"],
    "server/telemetry": _TELEMETRY,
    "server/tenants": _SERVER_BASE,
    "server/web": _WEB,
    "tools": ["policy", "policy/config", "proto"],
}

def rule_of(folder):
    """Returns the folder of USES whose rule `folder` follows; None: it may use everything.

    Args:
      folder: a path, as "server/session/handlers".
    """
    parts = folder.split("/")
    for count in range(len(parts), 0, -1):
        name = "/".join(parts[:count])
        if name in USES:
            return name
    return None

def users_of(folder):
    """Returns the visibility of the packages of a folder of USES.

    Args:
      folder: a path, as "server/session".
    """
    users = [user for user, used in USES.items() if user == folder or folder in used]
    return ["//:__pkg__"] + [
        "//%s:__subpackages__" % user
        for user in sorted(users + ["bazel", "tests", "third_party"])
    ]
