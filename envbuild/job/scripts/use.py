# What the job uses on this node: sampled while it runs, summed up at its end.
# Python 3.6 and newer, nothing installed.

import ctypes
import json
import os
import signal
import sys
import time

SAMPLE, IDLE = float(sys.argv[2]), float(sys.argv[3])  # seconds
WALLTIME, CORES, MEMORY, GPUS = [float(word or 0) for word in sys.argv[4:8]]
TICKS = os.sysconf("SC_CLK_TCK")
GIB = 2.0**30
JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "JOB_ID")


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # it has ended, or is somebody else's
        return b""


class JobProcesses:
    """The job's processes: descendants of the script, and those with the job's number."""

    def __init__(self, script):
        self.script, self.strangers, self.seconds, self.memory = script, set(), 0.0, 0
        marks = [name for name in JOBS if name in os.environ]
        self.mark = ("%s=%s" % (marks[0], os.environ[marks[0]])).encode() if marks else b""
        self.family = set()

    def look(self):
        stats, children = {}, {}
        for name in os.listdir("/proc"):
            fields = (
                read("/proc/%s/stat" % name).rpartition(b")")[2].split() if name.isdigit() else ()
            )
            if len(fields) > 15 and int(name) != os.getpid():
                stats[int(name)] = fields
                children.setdefault(int(fields[1]), []).append(int(name))
        left = [self.script] + [
            pid for pid in stats if pid not in self.family and self.is_marked(pid)
        ]
        self.family = set()
        while left:
            pid = left.pop()
            if pid in stats and pid not in self.family:
                self.family.add(pid)
                left += children.get(pid, [])
        # own time, and that of children that have ended
        ticks = sum(int(field) for pid in self.family for field in stats[pid][11:15])
        self.seconds = max(self.seconds, ticks / float(TICKS))
        self.memory = max(self.memory, sum(map(memory_of, self.family)))

    def is_marked(self, pid):
        if not self.mark or pid in self.strangers:
            return False
        if self.mark in read("/proc/%d/environ" % pid).split(b"\0"):
            return True
        self.strangers.add(pid)
        return False


def memory_of(pid):
    """Return the bytes of a process, of shared ones its share (proc(5), smaps_rollup)."""
    sizes = {}
    for line in read("/proc/%d/smaps_rollup" % pid).splitlines()[1:]:
        key, _, value = line.partition(b":")
        sizes[key] = int(value.split()[0]) * 1024
    if b"Pss_Anon" in sizes:
        return sizes[b"Pss_Anon"] + sizes.get(b"Pss_Shmem", 0)
    if b"Pss" in sizes:
        return sizes[b"Pss"]
    pages = read("/proc/%d/statm" % pid).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


# nvml.h, enum nvmlReturn_t
REFUSALS = {4: "no permission", 9: "the driver is not loaded", 18: "driver and library differ"}


class MemoryInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class ProcessInfo(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class SampledCard:
    """One GPU: how busy it was, the most memory in use, and whether the job was on it."""

    def __init__(self, library, handle):
        self.library, self.handle = library, handle
        self.busy = self.seconds = 0.0
        self.highest = self.memory = self.total = 0
        self.used = False
        self.listed = False

    def look(self, family, seconds, alone):
        memory, rates = MemoryInfo(), Rates()
        there = self.find_processes()
        self.listed = self.listed or there is not None
        here = (there or set()) & family
        self.used = self.used or bool(here)
        if not (here or alone):
            return
        if self.library.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory)) == 0:
            self.memory, self.total = max(self.memory, memory.used), memory.total
        if self.library.nvmlDeviceGetUtilizationRates(self.handle, ctypes.byref(rates)) == 0:
            self.busy += rates.gpu * seconds
            self.seconds += seconds
            self.highest = max(self.highest, rates.gpu)

    def find_processes(self):
        """Return the numbers of the processes on the card, None where the driver does not tell."""
        stem = "nvmlDeviceGetComputeRunningProcesses"
        call = getattr(self.library, stem + "_v3", None) or getattr(
            self.library, stem + "_v2", None
        )
        room, table = ctypes.c_uint(256), (ProcessInfo * 256)()
        if call is None or call(self.handle, ctypes.byref(room), table):
            return None
        return {table[number].pid for number in range(min(room.value, 256))}


def open_cards():
    """Return the GPUs that the job may see, and why it sees none that it asked for."""
    if not GPUS:
        return [], ""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        code = library.nvmlInit_v2()
    except (OSError, AttributeError):
        return [], "this node has no libnvidia-ml.so.1"
    if code:
        return [], "NVML refuses to start: %s" % REFUSALS.get(code, "error %d" % code)
    named = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    cards = []
    for word in named or range(count.value):
        handle = ctypes.c_void_p()
        if str(word).isdigit():
            code = library.nvmlDeviceGetHandleByIndex_v2(int(word), ctypes.byref(handle))
        else:
            code = library.nvmlDeviceGetHandleByUUID(str(word).encode(), ctypes.byref(handle))
        if code == 0:
            cards.append(SampledCard(library, handle))
    return cards, "" if cards else "NVML shows none of the GPUs of this job"


def warn_of_idle(cards):
    minutes = "%d minutes" % round(IDLE / 60) if IDLE >= 60 else "%g s" % IDLE
    told = [card for card in cards if card.seconds]
    on_cards = any(card.used for card in cards)
    # a driver that lists no processes cannot say that there are none
    if not on_cards and all(card.listed for card in cards):
        print("envbuild: no process of this job has come to a GPU in %s;" % minutes, end=" ")
        print("envbuild check NAME --require-gpu tells why", flush=True)
    elif told and max(card.highest for card in told) <= 1:
        why = ", although the job is on it" if on_cards else ""
        print("envbuild: the GPU has computed nothing in %s%s;" % (minutes, why), end=" ")
        print("does it wait for data?", flush=True)


def sum_up(processes, cards, unseen, seconds):
    told = [card for card in cards if card.seconds]
    use = {
        "seconds": round(seconds, 1),
        "walltime": WALLTIME,
        "cores": round(processes.seconds / max(seconds, 0.1), 2),
        "cores_asked": CORES,
        "memory": processes.memory,
        "memory_asked": MEMORY * 2**20,
        "gpus_asked": GPUS,
        "gpus_used": None,
        "gpu_busy": None,
        "gpu_memory": max([card.memory for card in cards] or [0]),
        "gpu_memory_total": max([card.total for card in cards] or [0]),
    }
    if cards and (all(card.listed for card in cards) or any(card.used for card in cards)):
        use["gpus_used"] = sum(card.used for card in cards)
    if told:
        # cards that were asked for and never used count as idle
        use["gpu_busy"] = round(
            sum(card.busy / card.seconds for card in told) / max(len(told), GPUS), 1
        )
    use["gpu_unseen"] = unseen or find_unseen(cards, use)
    use["advice"] = advise(use) if seconds >= 60 else ""
    return use


def find_unseen(cards, use):
    """Return why nothing is known of the GPUs' work, although NVML shows them."""
    on_cards = use["gpus_used"] or use["gpu_memory_total"]
    if cards and use["gpu_busy"] is None and on_cards:
        return "NVML gives no utilisation of them (it gives none of a part of a GPU, MIG)"
    return ""


def advise(use):
    """Return the one thing to change first."""
    busy, gpus, seconds = use["gpu_busy"], use["gpus_used"], use["seconds"]
    asked, memory = use["memory_asked"] / GIB, use["memory"] / GIB
    cores = "%.1f of %d cores" % (use["cores"], CORES)
    if gpus == 0:
        return (
            "no process of the job was on a GPU: "
            "envbuild check NAME --require-gpu tells why; or --gpus 0"
        )
    if gpus is not None and gpus < GPUS:
        return (
            "only %d of %d GPUs were used: --gpus %d, or a launcher that starts a process for each"
            % (gpus, GPUS, gpus)
        )
    if asked and memory > 0.95 * asked:
        return "the memory was nearly full: --memory %dGiB" % (1.5 * asked + 1)
    if WALLTIME and seconds > 0.95 * WALLTIME:
        return "the time was nearly over: more --walltime, or checkpoints and --requeue"
    if busy is not None and busy < 40 and CORES and use["cores"] > 0.9 * CORES:
        return "the GPU (%d %% busy) waited for the processor (%s): more --cpus" % (busy, cores)
    if busy is not None and busy < 40:
        return (
            "the GPU was %d %% busy: a larger batch, or more workers that load data (%s in use)"
            % (busy, cores)
        )
    if seconds >= 300 and CORES >= 4 and use["cores"] < 0.25 * CORES:
        return "%s were used: --cpus %d may start sooner" % (cores, use["cores"] + 1)
    if seconds >= 300 and asked >= 8 and memory < 0.25 * asked:
        return "%.1f of %d GiB of memory were used: --memory %dGiB may start sooner" % (
            memory,
            asked,
            1.5 * memory + 1,
        )
    if WALLTIME >= 7200 and 300 <= seconds < 0.25 * WALLTIME:
        return "%d of %d minutes were used: a shorter --walltime may start sooner" % (
            seconds // 60,
            WALLTIME // 60,
        )
    return ""


def describe(use):
    """Return the line for the log."""

    def of(value, asked, unit, form="%.1f"):
        return (form % value) + (" of " + form % asked if asked else "") + " " + unit

    parts = [
        of(use["cores"], CORES, "cores"),
        of(use["memory"] / GIB, use["memory_asked"] / GIB, "GiB memory"),
    ]
    if use["gpu_busy"] is not None:
        parts.append("GPU %.0f %% busy" % use["gpu_busy"])
    if use["gpu_unseen"]:
        parts.append("GPU not measured: %s" % use["gpu_unseen"])
    if use["gpu_memory_total"]:
        parts.append(of(use["gpu_memory"] / GIB, use["gpu_memory_total"] / GIB, "GiB GPU memory"))
    parts.append(of(use["seconds"], WALLTIME, "s", "%.0f"))
    return "envbuild: used %s" % ", ".join(parts)


def main():
    script, path = os.getppid(), sys.argv[1]
    # schedulers tell every process of a job to end; this one ends with the script
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGXCPU"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    open(path + ".on", "w").close()
    began = last = time.monotonic()
    processes, (cards, unseen) = JobProcesses(script), open_cards()
    alone = len(cards) <= GPUS
    pause, over, warned = min(1.0, SAMPLE), False, not cards
    while not over:
        over = signal.sigtimedwait({signal.SIGALRM}, pause) is not None
        if os.getppid() != script:
            return
        now, spent = time.monotonic(), time.process_time()
        processes.look()
        for card in cards:
            card.look(processes.family, now - last, alone)
        last = now
        if not warned and now - began >= IDLE:
            warned = True
            warn_of_idle(cards)
        # at most a third of a per cent of one core
        pause = max(min(pause * 2, SAMPLE), 300 * (time.process_time() - spent))
    use = sum_up(processes, cards, unseen, time.monotonic() - began)
    print(describe(use))
    if use["advice"]:
        print("envbuild: advice: %s" % use["advice"])
    sys.stdout.flush()
    with open(path + ".part", "w") as file:
        json.dump(use, file)
    os.rename(path + ".part", path)


main()
