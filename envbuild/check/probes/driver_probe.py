"""What the NVIDIA driver says, asked through libcuda and libnvidia-ml alone (no framework).

Answers are raw values; what a code means is known outside.
"""

import ctypes
import struct

MAJOR, MINOR = 75, 76
LAID = "/.singularity.d/libs/libcuda.so.1"


def mapped(name):
    """The file that a loaded library really is."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                path = line.split(None, 5)[-1].strip()
                if "/" in path and os.path.basename(path).startswith(name):
                    return path
    except OSError:
        pass
    return None


def load(name):
    try:
        return ctypes.CDLL(name), None
    except OSError as error:
        return None, str(error)


def describe(cuda, index):
    device = ctypes.c_int()
    code = cuda.cuDeviceGet(ctypes.byref(device), index)
    if code:
        return {"index": index, "code": code}
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, 256, device)
    numbers = []
    for attribute in (MAJOR, MINOR):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        numbers.append(value.value)
    result = {"index": index, "name": name.value.decode("utf-8", "replace"), "capability": numbers}
    size = ctypes.c_size_t()
    if hasattr(cuda, "cuDeviceTotalMem_v2") and not cuda.cuDeviceTotalMem_v2(
        ctypes.byref(size), device
    ):
        result["memory"] = size.value
    return result


def ask_cuda():
    cuda, error = load("libcuda.so.1")
    if cuda is None:
        return {"loaded": False, "error": error, "laid": os.path.exists(LAID)}
    result = {"loaded": True, "path": mapped("libcuda.so"), "init": cuda.cuInit(0), "devices": []}
    version = ctypes.c_int()
    if not cuda.cuDriverGetVersion(ctypes.byref(version)):
        result["cuda"] = "%d.%d" % (version.value // 1000, version.value % 1000 // 10)
    if result["init"] == 0:
        count = ctypes.c_int()
        result["count_code"] = cuda.cuDeviceGetCount(ctypes.byref(count))
        result["count"] = count.value
        result["devices"] = [describe(cuda, index) for index in range(min(count.value, 64))]
    return result


def ask_nvml():
    nvml, error = load("libnvidia-ml.so.1")
    if nvml is None:
        return {"loaded": False, "error": error}
    code = nvml.nvmlInit_v2()
    if code:
        return {"loaded": True, "init": code}
    result = {"loaded": True, "init": 0}
    text = ctypes.create_string_buffer(96)
    if not nvml.nvmlSystemGetDriverVersion(text, 96):
        result["driver"] = text.value.decode("ascii", "replace")
    count = ctypes.c_uint()
    if not nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        result["count"] = count.value
    result["mig"] = mig_modes(nvml, result.get("count", 0))
    nvml.nvmlShutdown()
    return result


def mig_modes(nvml, count):
    """Whether each card is split into MIG slices (None: it cannot be)."""
    modes = []
    for index in range(min(count, 64)):
        handle, current, pending = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
        call = getattr(nvml, "nvmlDeviceGetMigMode", None)
        if call is None or nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            modes.append(None)
            continue
        code = call(handle, ctypes.byref(current), ctypes.byref(pending))
        modes.append(None if code else bool(current.value))
    return modes


answer(
    {
        "cuda": ask_cuda(),
        "nvml": ask_nvml(),
        "bits": 8 * struct.calcsize("P"),
        "environment": {
            key: os.environ[key]
            for key in (
                "CUDA_VISIBLE_DEVICES",
                "NVIDIA_VISIBLE_DEVICES",
                "SLURM_GPUS_ON_NODE",
                "SLURM_JOB_GPUS",
                "LD_LIBRARY_PATH",
            )
            if key in os.environ
        },
    }
)
