"""Comes before the probe of a framework: tasks on each device, compared with float64 on the CPU.

The probe has ``perform(task, index, data)``, which computes one task on one device and returns (array, name of the
device it was computed on); for "training" the losses stand for the array, for "speed" and "collective" see there.
Parameters: ``size`` (rows and columns of a product), ``tasks``, ``seconds`` (of "endurance"), ``device`` ("gpu"; "cpu"
tries a probe itself where there is no GPU).
"""

import ctypes
import time

TASKS = PARAMETERS.get("tasks", ["product"])
ON_CPU = PARAMETERS.get("device") == "cpu"
PRODUCTS = ("product", "tf32", "float16", "bfloat16", "compiled", "endurance")
FAMILIES = ("libcuda.so", "libcudart", "libcublas.so", "libcublasLt", "libcudnn.so", "libnccl")
STEPS = 20
SPEED_SIZE = 2048
REPEATS = 20
if "tf32" not in TASKS:
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # so that the error is that of float32
os.environ.setdefault("NCCL_DEBUG", "INFO" if "collective" in TASKS else "WARN")


def reference(task):
    """(inputs, expected result) of a task."""
    import numpy

    random = numpy.random.RandomState(7)

    def uniform(*shape):
        return random.uniform(-1, 1, shape if len(shape) > 1 else shape[0]).astype("float32")

    if task in PRODUCTS:
        size = PARAMETERS.get("size", 1024)
        a, b = uniform(size, size), uniform(size, size)
        return (a, b), a.astype("float64").dot(b.astype("float64"))
    if task == "convolution":
        x, w = uniform(2, 8, 34, 34), uniform(8, 8, 3, 3)
        wide, expected = x.astype("float64"), numpy.zeros((2, 8, 32, 32))
        for row in range(3):
            for column in range(3):
                part = wide[:, :, row : row + 32, column : column + 32]
                expected += numpy.einsum(
                    "nchw,oc->nohw", part, w[:, :, row, column].astype("float64")
                )
        return (x, w), expected
    if task == "training":
        x = uniform(256, 16)
        return (x, numpy.tanh(x.dot(uniform(16, 1)))), None
    if task == "memory":
        data = random.randint(0, 1 << 30, 16 << 20).astype("int32")
        return (data,), data
    if task == "speed":
        return (uniform(SPEED_SIZE, SPEED_SIZE), uniform(SPEED_SIZE, SPEED_SIZE)), None
    return (), None


def compare(seen, expected):
    """Relative error over the whole matrix (Frobenius norm)."""
    import numpy

    return float(
        numpy.linalg.norm(numpy.asarray(seen, dtype="float64") - expected)
        / numpy.linalg.norm(expected)
    )


def last_line(error):
    lines = [
        line for line in ("%s: %s" % (type(error).__name__, error)).splitlines() if line.strip()
    ]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])[:500]


def average(run):
    """Seconds of one ``run()`` after a first one; ``run`` waits for its end."""
    run()
    started = time.time()
    for _ in range(REPEATS):
        run()
    return (time.time() - started) / REPEATS


def compute_twice(entry, task, index, perform):
    data, expected = reference(task)
    # the first run compiles kernels and fills caches
    perform(task, index, data)
    started = time.time()
    seen, place = perform(task, index, data)
    entry["seconds"] = round(time.time() - started, 4)
    error = compare(seen, expected)
    entry["device"] = str(place)
    if error - error == 0:
        entry["error"] = error
    else:
        entry["failed"] = "the product has values that are not finite"


def train(entry, task, index, perform):
    data, _ = reference(task)
    losses, place = perform(task, index, data)
    entry["losses"] = [float(loss) for loss in losses]
    entry["device"] = str(place)


def race(entry, task, index, perform):
    """The same product on the device and on the CPU; ``perform`` returns (seconds, place)."""
    data, _ = reference(task)
    seconds, place = perform(task, index, data)
    data[0].dot(data[1])
    started = time.time()
    data[0].dot(data[1])
    entry["cpu_seconds"] = round(time.time() - started, 6)
    entry["seconds"], entry["device"] = round(seconds, 6), str(place)


def endure(entry, task, index, perform):
    """The same product again and again: a GPU that is not sound gives another result at times."""
    data, expected = reference(task)
    stop = time.time() + PARAMETERS.get("seconds", 60)
    worst, count, place = 0.0, 0, ""
    while time.time() < stop:
        seen, place = perform("product", index, data)
        error = compare(seen, expected)
        worst = error if error - error != 0 else max(worst, error)
        count += 1
        if worst != worst:
            break
    entry["device"], entry["repeats"] = str(place), count
    if worst == worst:
        entry["error"] = worst
    else:
        entry["failed"] = "the product has values that are not finite"


def gather(entry, task, index, perform):
    """All devices add up.

    ``perform`` returns (greatest error, seconds, bytes of one device, number of devices).
    """
    error, seconds, size, devices = perform(task, index, ())
    entry.update(error=float(error), seconds=round(seconds, 6), device="gpu")
    # bus bandwidth as nccl-tests counts it
    entry["bandwidth"] = 2.0 * (devices - 1) / devices * size / max(seconds, 1e-9)


WAYS = {"training": train, "speed": race, "endurance": endure, "collective": gather}


def every(document, count, perform, can):
    """Do all tasks that the framework can on all devices; a task that fails is an answer."""
    before = used_memory()
    for task in TASKS:
        if task not in can or (task == "collective" and count < 2):
            continue
        for index in range(1 if task == "collective" else count):
            entry = {"index": index, "task": task}
            try:
                WAYS.get(task, compute_twice)(entry, task, index, perform)
            except Exception as error:
                entry["failed"] = last_line(error)
            document["results"].append(entry)
    document["seen"] = seen_by_driver(before)
    document["loaded"] = loaded_libraries()
    answer(document)


def loaded_libraries():
    found = {}
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                path = line.split(None, 5)[-1].strip()
                for family in FAMILIES:
                    if "/" in path and os.path.basename(path).startswith(family):
                        found.setdefault(family, set()).add(path)
    except OSError:
        pass
    return {family: sorted(paths) for family, paths in found.items()}


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Memory(ctypes.Structure):
    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


def nvml_devices():
    """The management library and a handle for each card; nothing where there is none."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return None, []
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        handles = []
        for index in range(min(count.value, 64)):
            handle = ctypes.c_void_p()
            if not nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
                handles.append(handle)
        return nvml, handles
    except (OSError, AttributeError):
        return None, []


def used_memory():
    nvml, handles = nvml_devices() if "memory" in TASKS else (None, [])
    used = []
    for handle in handles:
        memory = Memory()
        if not nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
            used.append(memory.used)
    return used


def seen_by_driver(before):
    """Whether the management library shows this process, and by how much the memory in use rose.

    Null: not asked.
    """
    nvml, handles = nvml_devices() if "memory" in TASKS else (None, [])
    if nvml is None:
        return None
    pids = set()
    name = "nvmlDeviceGetComputeRunningProcesses_v3"
    call = getattr(nvml, name, None) or getattr(nvml, name[:-1] + "2", None)
    for handle in handles:
        room, table = ctypes.c_uint(256), (Process * 256)()
        if call is not None and not call(handle, ctypes.byref(room), table):
            pids |= {table[number].pid for number in range(min(room.value, 256))}
    after = used_memory()
    rise = max([now - then for now, then in zip(after, before)] or [0])
    return {"pid": os.getpid() in pids, "processes": len(pids), "rise": rise}
