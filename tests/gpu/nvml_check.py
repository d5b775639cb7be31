#!/usr/bin/env python3
"""Compares the replies of our libnvidia-ml.so.1 with those of the machine's own.

usage: nvml_check.py --ours PATH [--real PATH]

Needs Python's standard library only, and a running detshared (DETSHARE_SOCKET) for our library; --real is asked on the
same machine, past the daemon. Prints a row for each function and device; the verdict is

  same      both give the same answer, or the same error
  close     both give a number of something that changes (temperature, clocks, ...)
  own       ours is the tenant's and may differ (memory, processes, utilisation)
  missing   the real library answers and ours does not
  DIFFERS   anything else

The exit code is 0 if nothing differs and our library lacks nothing that it promises.
"""

import argparse
import ctypes
import json
import subprocess
import sys

SUCCESS, INSUFFICIENT_SIZE = 0, 7
U32, I32, U64 = ctypes.c_uint, ctypes.c_int, ctypes.c_ulonglong


class PciInfo(ctypes.Structure):
    _fields_ = [("busIdLegacy", ctypes.c_char * 16), ("domain", U32), ("bus", U32), ("device", U32),
                ("pciDeviceId", U32), ("pciSubSystemId", U32), ("busId", ctypes.c_char * 32)]


class Memory(ctypes.Structure):
    _fields_ = [("total", U64), ("free", U64), ("used", U64)]


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", U32), ("memory", U32)]


class Process(ctypes.Structure):
    _fields_ = [("pid", U32), ("usedGpuMemory", U64), ("gpuInstanceId", U32), ("computeInstanceId", U32)]


class FieldValue(ctypes.Structure):
    _fields_ = [("fieldId", U32), ("scopeId", U32), ("timestamp", ctypes.c_longlong), ("latencyUsec", ctypes.c_longlong),
                ("valueType", U32), ("nvmlReturn", U32), ("value", U64)]


class FabricInfo(ctypes.Structure):
    _fields_ = [("version", U32), ("clusterUuid", ctypes.c_ubyte * 16), ("status", U32), ("cliqueId", U32),
                ("state", ctypes.c_ubyte), ("healthMask", U32)]


# (function, arguments after the device, results). The results must be the same natively and through
# DetShare.
FIXED = [
    ("Brand", (), (U32,)), ("BusType", (), (U32,)), ("MinorNumber", (), (U32,)), ("BoardId", (), (U32,)),
    ("MultiGpuBoard", (), (U32,)), ("NumGpuCores", (), (U32,)), ("MemoryBusWidth", (), (U32,)),
    ("Architecture", (), (U32,)), ("CudaComputeCapability", (), (I32, I32)), ("NumaNodeId", (), (U32,)),
    ("Index", (), (U32,)), ("PersistenceMode", (), (U32,)), ("DisplayMode", (), (U32,)), ("DisplayActive", (), (U32,)),
    ("EccMode", (), (U32, U32)), ("ComputeMode", (), (U32,)), ("MigMode", (), (U32, U32)),
    ("MaxMigDeviceCount", (), (U32,)), ("EnforcedPowerLimit", (), (U32,)), ("PowerManagementLimit", (), (U32,)),
    ("PowerManagementDefaultLimit", (), (U32,)), ("PowerManagementLimitConstraints", (), (U32, U32)),
    ("MaxPcieLinkGeneration", (), (U32,)), ("MaxPcieLinkWidth", (), (U32,)), ("NumFans", (), (U32,)),
    ("FanSpeed", (), (U32,)), ("VirtualizationMode", (), (U32,)), ("GspFirmwareMode", (), (U32, U32)),
    ("RetiredPagesPendingStatus", (), (U32,)), ("RemappedRows", (), (U32, U32, U32, U32)),
    ("SupportedClocksEventReasons", (), (U64,)), ("ModuleId", (), (U32,)), ("IrqNum", (), (U32,)),
] + [("MaxClockInfo", (kind,), (U32,)) for kind in range(4)] \
  + [("TemperatureThreshold", (kind,), (U32,)) for kind in range(4)] \
  + [("TotalEccErrors", (kind, counter), (U64,)) for kind in range(2) for counter in range(2)] \
  + [("NvLinkState", (link,), (U32,)) for link in range(18)] \
  + [("NvLinkVersion", (link,), (U32,)) for link in (0, 17)] \
  + [("NvLinkRemoteDeviceType", (link,), (U32,)) for link in (0, 17)] \
  + [("NvLinkCapability", (0, capability), (U32,)) for capability in range(6)]
CHANGING = [
    ("PowerUsage", (), (U32,)), ("TotalEnergyConsumption", (), (U64,)), ("PerformanceState", (), (U32,)),
    ("Temperature", (0,), (U32,)), ("CurrPcieLinkGeneration", (), (U32,)), ("CurrPcieLinkWidth", (), (U32,)),
    ("CurrentClocksEventReasons", (), (U64,)), ("EncoderUtilization", (), (U32, U32)),
    ("DecoderUtilization", (), (U32, U32)), ("PcieThroughput", (0,), (U32,)), ("PcieReplayCounter", (), (U32,)),
] + [("ClockInfo", (kind,), (U32,)) for kind in range(4)]
TEXTS = ["Name", "UUID", "Serial", "VbiosVersion", "BoardPartNumber", "InforomImageVersion"]
# Fields that are asked for by name: ECC, energy, memory temperature, NVLink speed and count, PCIe
# counters.
FIELDS = [1, 82, 83, 90, 91, 92, 138, 139, 160, 193, 197]


class Asker:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.results = []

    def call(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def note(self, kind, label, result, value=None):
        self.results.append((kind, label, result, value if result == SUCCESS else None))

    def numbers(self, kind, prefix, device, function, arguments, results):
        outs = [result() for result in results]
        name = "nvmlDeviceGet" + function
        result = self.call(name, device, *map(U32, arguments), *map(ctypes.byref, outs))
        self.note(kind, "%s %s(%s)" % (prefix, name, ", ".join(map(str, arguments))), result, [out.value for out in outs])

    def text(self, kind, label, name, *device):
        buffer = ctypes.create_string_buffer(256)
        self.note(kind, label, self.call(name, *device, buffer, U32(256)), buffer.value.decode())

    def device(self, prefix, device, others):
        for function in TEXTS:
            self.text("fixed", prefix + " nvmlDeviceGet" + function, "nvmlDeviceGet" + function, device)
        for function, arguments, results in FIXED:
            self.numbers("fixed", prefix, device, function, arguments, results)
        for function, arguments, results in CHANGING:
            self.numbers("changing", prefix, device, function, arguments, results)
        for kind, function, struct in (("fixed", "PciInfo_v3", PciInfo), ("own", "MemoryInfo", Memory),
                                       ("own", "UtilizationRates", Utilization), ("changing", "BAR1MemoryInfo", Memory)):
            value = struct()
            result = self.call("nvmlDeviceGet" + function, device, ctypes.byref(value))
            self.note(kind, "%s nvmlDeviceGet%s" % (prefix, function), result,
                      [str(getattr(value, field[0])) for field in struct._fields_])
        processes, count = (Process * 256)(), U32(256)
        result = self.call("nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), processes)
        self.note("own", prefix + " nvmlDeviceGetComputeRunningProcesses_v3", result,
                  [(p.pid, p.usedGpuMemory) for p in processes[:count.value]])
        words = (ctypes.c_ulong * 16)()
        self.note("fixed", prefix + " nvmlDeviceGetCpuAffinity", self.call("nvmlDeviceGetCpuAffinity", device, U32(16), words),
                  list(words))
        self.note("fixed", prefix + " nvmlDeviceGetMemoryAffinity",
                  self.call("nvmlDeviceGetMemoryAffinity", device, U32(16), words, U32(0)), list(words))
        count, clocks = U32(256), (U32 * 256)()
        result = self.call("nvmlDeviceGetSupportedMemoryClocks", device, ctypes.byref(count), clocks)
        self.note("fixed", prefix + " nvmlDeviceGetSupportedMemoryClocks", result, list(clocks[:count.value]))
        for link in (0, 1):
            pci = PciInfo()
            result = self.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, U32(link), ctypes.byref(pci))
            self.note("fixed", "%s nvmlDeviceGetNvLinkRemotePciInfo_v2(%d)" % (prefix, link), result, pci.busId.decode())
        for version, size in ((2, 36), (3, 40)):
            fabric = FabricInfo(version=size | version << 24)
            result = self.call("nvmlDeviceGetGpuFabricInfoV", device, ctypes.byref(fabric))
            self.note("fixed", "%s nvmlDeviceGetGpuFabricInfoV(%d)" % (prefix, version), result,
                      [bytes(fabric.clusterUuid).hex(), fabric.status, fabric.cliqueId, fabric.state])
        fields = (FieldValue * len(FIELDS))(*[FieldValue(fieldId=field) for field in FIELDS])
        result = self.call("nvmlDeviceGetFieldValues", device, I32(len(FIELDS)), fields)
        for field in fields:
            self.note("changing", "%s field %d" % (prefix, field.fieldId), result or field.nvmlReturn,
                      [field.valueType, field.value])
        for other, handle in enumerate(others):
            value = U32()
            result = self.call("nvmlDeviceGetTopologyCommonAncestor", device, handle, ctypes.byref(value))
            self.note("fixed", "%s nvmlDeviceGetTopologyCommonAncestor(%d)" % (prefix, other), result, value.value)
            if handle.value == device.value:
                continue
            for index in range(5):
                result = self.call("nvmlDeviceGetP2PStatus", device, handle, U32(index), ctypes.byref(value))
                self.note("fixed", "%s nvmlDeviceGetP2PStatus(%d, %d)" % (prefix, other, index), result, value.value)

    def machine(self):
        result = self.call("nvmlInit_v2")
        self.note("fixed", "nvmlInit_v2", result)
        if result != SUCCESS:
            return
        self.text("fixed", "nvmlSystemGetDriverVersion", "nvmlSystemGetDriverVersion")
        self.text("fixed", "nvmlSystemGetNVMLVersion", "nvmlSystemGetNVMLVersion")
        value = I32()
        self.note("fixed", "nvmlSystemGetCudaDriverVersion", self.call("nvmlSystemGetCudaDriverVersion", ctypes.byref(value)),
                  value.value)
        count = U32()
        self.note("fixed", "nvmlDeviceGetCount_v2", self.call("nvmlDeviceGetCount_v2", ctypes.byref(count)), count.value)
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        for error in list(range(30)) + [999]:
            self.note("fixed", "nvmlErrorString(%d)" % error, SUCCESS, self.library.nvmlErrorString(error).decode())
        handles = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self.note("fixed", "nvmlDeviceGetHandleByIndex_v2(%d)" % index,
                      self.call("nvmlDeviceGetHandleByIndex_v2", U32(index), ctypes.byref(handle)))
            handles.append(handle)
        for index, handle in enumerate(handles):
            self.device("device %d:" % index, handle, handles)
        self.call("nvmlShutdown")


def ask(path):
    output = subprocess.run([sys.executable, __file__, "--ask", path], stdout=subprocess.PIPE, check=True).stdout
    return {label: (kind, result, value) for kind, label, result, value in json.loads(output)}


def verdict(ours, real):
    kind, result, value = ours
    if real is None:
        return "-"
    if result == real[1] and value == real[2]:
        return "same"
    if result == real[1] and kind != "fixed":
        return "own" if kind == "own" else "close"
    return "missing" if result != SUCCESS and real[1] == SUCCESS else "DIFFERS"


def shown(entry):
    if entry is None:
        return "-"
    _, result, value = entry
    text = "error %d" % result if result != SUCCESS else "ok" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[2][len("usage: "):])
    parser.add_argument("--ours")
    parser.add_argument("--real")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        asker = Asker(options.ask)
        asker.machine()
        print(json.dumps(asker.results))
        return 0
    ours = ask(options.ours)
    real = ask(options.real) if options.real else {}
    counts = {}
    for label, entry in ours.items():
        word = verdict(entry, real.get(label) if options.real else None)
        counts[word] = counts.get(word, 0) + 1
        print("%-8s %-52s %-60s %s" % (word, label, shown(entry), shown(real.get(label))))
    print(", ".join("%d %s" % (count, word) for word, count in sorted(counts.items())))
    initialised = ours["nvmlInit_v2"][1] == SUCCESS
    return 0 if initialised and not counts.get("DIFFERS") and not counts.get("missing") else 1


if __name__ == "__main__":
    sys.exit(main())
