#!/bin/bash
#PBS -N optuna-mpi
#PBS -j oe
#PBS -R oe
#PBS -o logs/
#PBS -q workq
#PBS -l select=1:ncpus=4:mem=4gb:mpiprocs=4:ompthreads=1
#PBS -l walltime=01:00:00
#PBS -W umask=022
# optuna-mpi on openpbs-compose, written by envbuild VERSION (docs/job.md)
# shellcheck disable=SC2034,SC2317
set -u

name=optuna-mpi
site=openpbs-compose
commit=none
image=optuna-mpi.sif
stamp=''
digest=sha256:0000000000000000000000000000000000000000000000000000000000000000
lock=''
walltime=3600
margin=130
requeue=0
signal='' reason='' child='' early='' begun='' ranks='' watch=() sampler='' used='' gpus='' driver='' own=''
cd "${PBS_O_WORKDIR:-$PWD}" || exit 125
id=${ENVBUILD_ID:-${PBS_JOBID:-$$}}
id=${id%%.*}
id=${id%%[[]*}
task=${PBS_ARRAY_INDEX:-}
mkdir -p -- logs || exit 125
# The folders of what a job tells; a copied project may have links in their places.
for place in .envbuild .envbuild/jobs .envbuild/results; do
  if [ -L "$place" ] || ! mkdir -p -- "$place"; then
    printf 'envbuild: error: %s is no folder of its own\n' "$place" >&2
    exit 125
  fi
done
[ -e .envbuild/.gitignore ] || [ -L .envbuild/.gitignore ] || echo '*' >.envbuild/.gitignore

receipt=".envbuild/jobs/optuna-mpi-$id.receipt.json"
use=${receipt%.json}.use runs=1
export ENVBUILD_RESULT=$PWD/".envbuild/results/optuna-mpi-$id.receipt.result"
# Schedulers open a log by its name.  A link that came there while the job waited leads elsewhere: no word of the job
# goes there.
is_log() {
  local folder
  folder=$(CDPATH='' cd -P -- "$(dirname -- "$1")" 2>/dev/null && pwd) || return 1
  case $1:$folder/ in
  # a place that the user chose, or one in the project
  /* | *..*:* | *:"$(pwd -P)"/*) ;;
  # what a login runs lies in such folders
  */.*) exit 125 ;;
  esac
  [ ! -L "$1" ] && [ "$1" -ef /dev/fd/1 ] && [ "$(stat -c %h -- "$1")" = 1 ]
}
keep_log() {
  [ -f /dev/fd/1 ] || return 0
  is_log "$1" && return
  exec >/dev/null 2>&1
  rm -f -- "$1"
  # makes a new file, or nothing
  set -C
  exec >"$1" 2>&1 || exit 125
  set +C
  printf 'envbuild: in the place of this log was a link: nothing was written to the file that it named\n'
}

[ ! -L "logs/optuna-mpi-$id.log" ] || rm -f -- "logs/optuna-mpi-$id.log"
exec >>"logs/optuna-mpi-$id.log" 2>&1
keep_log "logs/optuna-mpi-$id.log"
node=$(hostname) started=$(date -u +%Y-%m-%dT%H:%M:%SZ)

# How a job tells what it is, and how it ended.  The variables are the head's.
fail() {
  printf 'envbuild: error: %s\n' "$*" >&2
  exit 125
}

# the receipt has its place on the disk from the start: a full disk is one of the things that end jobs
reserve_receipt() {
  local tries=0
  if declare -F kill_later >/dev/null && [ "$runs" -gt 1 ]; then
    # the run before may still save its state; of a node that has failed, this place is left
    while [ -e "$receipt.part" ] && [ $((tries += 1)) -le 40 ]; do sleep 1; done
  fi
  # one is there if the job was put back into the queue
  rm -f -- "$receipt" "$receipt.part" "$use" "$use".*
  printf '%4000s\n' '' >"$receipt.part"
}

finish() {
  local code=$? text ended
  trap '' TERM INT USR1 USR2
  [ "${#watch[@]}" -eq 0 ] || kill "${watch[@]}" 2>/dev/null
  stop_sampling
  case $signal in
  TERM | INT | USR2)
    case $code in
    # the runtime may report 128 + SIGCONT, which Slurm sends with TERM, or 255 of a container that has gone
    146 | 255) code=143 ;;
    # unless they are the command's: 125 is this script's, of a program that the signal has ended, and 2 that of bash 5.2
    # which was looking for the end of $(
    2 | 125) [ "$code" = "$own" ] || code=143 ;;
    0)
      printf 'envbuild: the command ended with 0 after signal %s: it was stopped, so the job has not succeeded\n' "$signal"
      code=143
      ;;
    esac
    ;;
  esac
  # the scheduler kills some seconds after its signal, and on a busy node each program takes long: until
  # the receipt is there, only mv runs
  TZ=UTC printf -v ended '%(%FT%TZ)T' -1
  # bash 4.2 does not look at TZ again once it runs
  case $BASH_VERSION in 4.2*) ended=$(date -u +%FT%TZ) ;; esac
  printf -v text \
    '{"schema":1,"job":"%s","task":"%s","name":"%s","site":"%s","code":%d,"signal":"%s","reason":"%s","node":"%s",' \
    "$id" "$task" "$name" "$site" "$code" "$signal" "$reason" "$node"
  printf -v text \
    '%s"started":"%s","ended":"%s","image":"%s","lock":"%s","commit":"%s","gpus":[%s],"driver":"%s","runs":%d,"use":%s}' \
    "$text" "$started" "$ended" "$digest" "$lock" "$commit" "$gpus" "$driver" "$runs" "${used:-null}"
  # over the place that is kept, not into an empty file
  printf '%s\n' "$text" 1<>"$receipt.part"
  mv -f -- "$receipt.part" "$receipt"
  # the blanks that kept the place
  truncate -s $((${#text} + 1)) -- "$receipt" 2>/dev/null
  rm -f -- "$use" "$use.on" "$use.part" "$use.halted"
  printf 'envbuild: ended with code %d%s\n' "$code" "${reason:+: $reason}"
  if [ -n "$reason" ] && [ "$runs" -le "$requeue" ]; then
    printf 'envbuild: back into the queue, for run %d of %d\n' $((runs + 1)) $((requeue + 1))
    put_back || printf 'envbuild: error: it could not be put back: see above\n'
  elif declare -F notify >/dev/null; then
    notify
  fi
  exit "$code"
}

# Ask from a handler of signals: schedulers signal all processes of a job, and may do so again, so the client ignores
# them.  Functions here say what they return: in a handler "return" alone is the status from before it (bash 5).
ask_scheduler() {
  local tries=0
  # shellcheck disable=SC2006  # a signal that comes while bash 5.2 looks for the end of $( is a syntax error
  until answer=`trap '' TERM INT USR1 USR2 && "$@" 2>/dev/null`; do
    [ $((tries += 1)) -lt 3 ] || return 1
    sleep 1
  done
}

# a warning comes up to two minutes before the end (sbatch(1), --signal), the end itself when it is due
stop() {
  local ran
  signal=$1
  printf 'envbuild: signal %s, handed on to the command\n' "$signal"
  # USR1 is what a command may ask for as a warning; the others mean that it is to end
  [ "$signal" = USR1 ] || set -- TERM
  if [ -n "$ranks" ]; then
    tell_ranks "$1"
  else
    hand_on "$1"
  fi
  ran=$((SECONDS - $(cat "$use.halted" 2>/dev/null || echo 0)))
  if [ -n "$walltime" ] && [ "$ran" -ge $((walltime - margin)) ]; then
    reason="it reached its time limit of $walltime s"
  elif declare -F preempted >/dev/null && preempted; then
    reason=${reason:-another job takes its place}
  fi
  if [ "$1" = TERM ] && [ -n "$child" ] && declare -F kill_later >/dev/null; then kill_later; fi
}

# what runs is what the folder holds now, which may have changed while the job waited
read_commit() {
  local head
  [ "$commit" != none ] && head=$(git rev-parse --verify --quiet HEAD 2>/dev/null) || return 0
  case $commit in
  "$head"*) ;;
  *)
    printf 'envbuild: the commit has changed since the job was submitted: it was %s\n' "$commit"
    commit=$head
    ;;
  esac
}

describe_job() {
  local only=()
  # where devices are not fenced off, nvidia-smi shows those of the whole node
  [ -z "${CUDA_VISIBLE_DEVICES:-}" ] || only=(-i "$CUDA_VISIBLE_DEVICES")
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd '0-9.')
  gpus=$(nvidia-smi ${only[@]+"${only[@]}"} --query-gpu=name --format=csv,noheader 2>/dev/null |
    tr -cd 'A-Za-z0-9 ._\n-' | sed 's/.*/"&"/' | paste -sd, -)
  printf 'envbuild: job %s%s on %s, %s\n' "$id" "${task:+ task $task}" "$node" "$started"
  read_commit
  printf 'envbuild: %s for %s, commit %s\n' "$name" "$site" "$commit"
  if [ -n "$image" ]; then
    printf 'envbuild: image %s %s\n' "$image" "$digest"
    printf 'envbuild: lock %s\n' "${lock:-none}"
  fi
  printf 'envbuild: GPU %s, driver %s\n' "${gpus:-none seen}" "${driver:-none seen}"
}

# What the job uses is sampled by a small program, which needs the node's python3; without it, nothing is known.
stop_sampling() {
  local end=$((SECONDS + 2))
  [ -n "$sampler" ] || return 0
  # a job may end before its sampler has begun
  if [ -e "$use.on" ]; then kill -ALRM "$sampler"; else kill -KILL "$sampler"; fi 2>/dev/null
  while kill -0 "$sampler" 2>/dev/null && [ "$SECONDS" -le "$end" ]; do sleep 0.05; done
  kill -KILL "$sampler" 2>/dev/null
  read -r used 2>/dev/null <"$use"
}
sample_use() {
  command -v python3 >/dev/null || return 0
  python3 -I - "$use" 15 300 3600 4 4096 0 <<'END' 7<&- &
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
END
  sampler=$!
  # else bash would print all of it where it is killed before it has begun
  disown "$sampler"
}

# A signal that comes while the runtime starts the container is lost, or ends the runtime alone: the container's first
# process has no handler yet.  So it waits until the command's own shell has written into a file, half a minute at most.
hand_on() {
  if [ -z "$child" ]; then
    early=$1
  elif [ -z "$begun" ] || [ -s "$begun" ]; then
    kill "-$1" "$child" 2>/dev/null
  else
    {
      # schedulers signal all processes of a job, and may do so again
      trap '' TERM INT USR1 USR2
      tries=0
      while [ ! -s "$begun" ] && kill -0 "$child" && [ $((tries += 1)) -le 300 ]; do sleep 0.1; done
      kill "-$1" "$child"
    } >/dev/null 2>&1 &
  fi
}

# in the background, because bash hears a signal while it waits, but not while a command has the foreground
supervise() {
  local code last running
  # a signal that came before the command did
  case $signal in TERM | INT | USR2) exit 143 ;; esac
  # of several processes of a node, only the script has it
  if declare -F sample_use >/dev/null && [ -z "$sampler" ]; then sample_use; fi
  "$@" 6<&- &
  child=$!
  [ -z "$early" ] || hand_on "$early"
  early=
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  # a wait that a signal has ended gives the signal's number, even if the command ended at the same moment; at that
  # moment bash may forget the command's end (its handler leaves the wait), take it for running, and wait for ever
  # shellcheck disable=SC2006  # a signal that comes while bash 5.2 looks for the end of $( is a syntax error
  running=`jobs -pr`
  case " ${running//[!0-9]/ } " in
  *" $child "*) ;;
  *)
    wait "$child" 2>/dev/null
    last=$?
    [ "$last" -eq 127 ] || code=$last
    ;;
  esac
  child=
  return "$code"
}

# for PBS a job has ended with the shell above its script, so nobody else would end a command
# that goes on after TERM (seen with 23.06.06)
kill_later() {
  local left=30
  case $reason in *limit*) [ "$ran" -ge "$walltime" ] || left=$((left + walltime - ran)) ;; esac
  {
    trap 'kill $!' TERM
    sleep "$left" &
    wait $! && kill -KILL "$child"
  } >/dev/null 2>&1 &
  watch+=($!)
}

reserve_receipt
trap finish EXIT
trap 'stop TERM' TERM
trap 'stop INT' INT
trap 'stop USR1' USR1
trap 'stop USR2' USR2

describe_job

load_module() {
  local before=${LOADEDMODULES-}
  module load "$1" || fail "module load $1 failed"
  # Environment Modules 3 answers 0 to all, and knows neither of these; what it has loaded is in its list
  if [ -n "${LMOD_CMD-}${MODULES_CMD-}" ] || [ -z "${LOADEDMODULES+set}" ] || [ "$LOADEDMODULES" != "$before" ]; then
    return 0
  fi
  case :$LOADEDMODULES: in
  *:"$1":* | *:"$1"/*) ;;
  *) fail "module load $1 failed; loaded are: ${LOADEDMODULES:-none}" ;;
  esac
}
prepare() {
  set +u
  # shellcheck disable=SC1090,SC1091
  source /etc/profile.d/modules.sh
  load_module mpi
  set -u
}
prepare

node_local() {
  local folder
  for folder in "${TMPDIR:-}" /tmp /tmp; do
    if [ -n "$folder" ] && [ -d "$folder" ] && [ -w "$folder" ] && is_kept "$folder"; then
      printf "%s\n" "$folder"
      return
    fi
  done
  fail "no folder of this node can be used: each is missing, read-only, or any user may exchange what lies in it"
}
# no user may put another folder in the place of one of this job's
is_kept() {
  local folder
  folder=$(CDPATH='' cd -P -- "$1" && pwd) || return 1
  while :; do
    [ -z "$(find "$folder/" -maxdepth 0 -perm -0002 ! -perm -1000 2>&1)" ] || return 1
    [ -n "$folder" ] || return 0
    folder=${folder%/*}
  done
}
# What stands before the call of the container runtime, on whatever node this runs.
clean_environment() {
  local variable
  # settings of the caller would change what runs; where the runtime keeps its own files is theirs to say
  for variable in "${!APPTAINER@}" "${!SINGULARITY@}"; do
    case $variable in
    *ENV_* | *_BIND* | *_NV* | *_HOME) unset "$variable" ;;
    *_CACHEDIR | *_TMPDIR | *_CONFIGDIR) ;;
    *) unset "$variable" ;;
    esac
  done
  export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1
}

# A program of the image may write into the project, but not what the host runs, reads as shell or writes by name:
# the files of jobs, of all but their results.
protect_records() {
  local folder=$1/.envbuild
  # made later, it could be changed by what runs by then
  if [ -d "$1/recipes" ] || (cd "$1" && compgen -G '*.sif') >/dev/null 2>&1; then
    [ -L "$folder" ] || mkdir -p -- "$folder/results" 2>/dev/null
  fi
  if [ ! -d "$folder" ] || [ -L "$folder" ]; then return 0; fi
  records=(--bind "$folder:$folder:ro")
  if [ ! -d "$folder/results" ] || [ -L "$folder/results" ]; then return 0; fi
  records+=(--bind "$folder/results:$folder/results:rw")
}

hand_in() { export "APPTAINERENV_$1=$2" "SINGULARITYENV_$1=$2"; }

hand_in_matching() {
  local variable pattern
  for variable in $(compgen -e); do
    for pattern in "$@"; do
      # shellcheck disable=SC2053  # it is a pattern
      [[ $variable != $pattern ]] || hand_in "$variable" "${!variable}"
    done
  done
}

find_runtime() {
  local program capabilities
  runtime=
  for program in "$@"; do
    [ -n "$runtime" ] || runtime=$(command -v "$program")
  done
  [ -n "$runtime" ] || fail "$* cannot be found on this node (PATH is $PATH)"
  # root that lacks a capability has to go the way of users; without fuse an image has to be unpacked
  if [ "$EUID" -eq 0 ]; then
    capabilities=$(awk '/^CapEff/ { print $2 }' /proc/self/status)
    [ $((16#$capabilities)) -eq $(((1 << ($(cat /proc/sys/kernel/cap_last_cap) + 1)) - 1)) ] || flags+=(--userns)
  elif [ ! -w /dev/fuse ] && "$runtime" buildcfg 2>/dev/null | grep -q 'SUID_INSTALL=0'; then
    flags+=(--unsquash)
  fi
}
# A folder on the node's own disk for /tmp of the container.  Its job's shell holds a lock on it.
make_scratch() {
  local disk
  disk=$(node_local) || exit 125
  remove_left "$disk"
  while :; do
    scratch=$(mktemp -d "$disk/envbuild-job.XXXXXXXX") || fail "no node-local folder can be written"
    # a rank beside this one may take it for one that is left, and remove it
    { exec 7<"$scratch"; } 2>/dev/null || continue
    flock -s 7
    # another job may have taken it for one that is left
    [ ! "$scratch" -ef /dev/fd/7 ] || break
  done
}
# what your jobs have left there that were killed outright
remove_left() {
  local folder lock
  for folder in "$1"/envbuild-job.* "$1"/envbuild-stage-*; do
    lock=$folder
    case $folder in "$1"/envbuild-stage-*) lock=$folder/lock ;; esac
    if [ -d "$folder" ] && [ -O "$folder" ] && [ ! -L "$folder" ]; then
      (flock -n -x 7 && rm -rf -- "$folder") 2>/dev/null 7<"$lock"
    fi
  done
}
# An Apptainer without setuid serves an image's files to ordinary users by FUSE programs.  PBS and Grid Engine signal
# all processes of a job, and the files would be gone while the command still saves its state.  These programs leave a
# signal alone that they find ignored (libfuse, fuse_set_signal_handlers).  What is written in Go does not hand that on
# (os/signal), so a shell ignores the signals last.  It also ends the program when the runtime was killed outright.
keep_servers() {
  local built file own path places program found watcher folder=$scratch/.servers
  # nor does the kernel mount them for root who lacks a capability (find_runtime)
  [ "$EUID" -ne 0 ] || [[ " ${flags[*]-} " = *" --userns "* ]] || return 0
  built=$("$runtime" buildcfg 2>/dev/null)
  case $built in *APPTAINER_SUID_INSTALL=0*) ;; *) return 0 ;; esac
  file=$(sed -n 's/^APPTAINER_CONF_FILE=//p' <<<"$built")
  own=$(sed -n 's/^LIBEXECDIR=//p' <<<"$built")/apptainer/bin
  # the settings of 1.1 and later, in which the folder of programs can be named
  grep -qi 'binary path' "$file" 2>/dev/null && mkdir -p -- "$folder" || return 0
  path=$(sed -n 's/^[[:blank:]]*binary path[[:blank:]]*=[[:blank:]]*//p' "$file" | tail -n 1)
  # shellcheck disable=SC2016  # the runtime expands it
  path=${path:-'$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'}
  # the runtime's own folder has its place before the user's, else before all
  places=${path/\$PATH/"$own:$PATH"}
  [ "$places" != "$path" ] || places=$own:$path
  printf -v watcher %q "$(type -P tail)"
  for program in squashfuse_ll squashfuse fuse-overlayfs fuse2fs; do
    found=$(PATH=$places type -P "$program") || continue
    # there is no PATH; when the runtime is gone, the program's number may be another's, unless it is still the parent
    printf '#!/bin/sh\ntrap "" HUP TERM USR1 USR2\n%s\n%s\nexec %q "$@"\n' \
      "[ \$# -eq 0 ] || ($watcher --pid=\$PPID -f /dev/null && read -r _ _ _ parent _ </proc/self/stat &&" \
      "  [ \"\$parent\" = \$\$ ] && kill -KILL \$\$) </dev/null >/dev/null 2>&1 3<&- &" \
      "$found" >"$folder/$program" && chmod 700 "$folder/$program" || return 0
    # a disk from which nothing may be run
    [ -x "$folder/$program" ] || return 0
  done
  { sed '/^[[:blank:]]*binary path[[:blank:]]*=/d' "$file" && printf 'binary path = %s:%s\n' "$folder" "$path"; } \
    >"$folder/apptainer.conf" && export APPTAINER_CONFIG_FILE=$folder/apptainer.conf
}

check_image() {
  [ -r "$image" ] || fail "the image is not there on $(hostname): $image"
  # an image may be made anew while its job waits; the digest in log and receipt is that of the submission
  [ -z "$stamp" ] || [ "$(stat -L -c '%s %Y' -- "$image")" = "$stamp" ] ||
    fail "the image has changed since the job was submitted: $image; submit it again"
}
enter() {
  local variable value runtime scratch code flags=() records=() kept=()
  clean_environment
  find_runtime apptainer singularity
  export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
  hand_in_matching \
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER NVIDIA_VISIBLE_DEVICES \
    ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES 'NCCL_*' OMP_NUM_THREADS \
    ENVBUILD_RESULT ENVBUILD_CHECKPOINT 'PBS_*' NCPUS MASTER_ADDR \
    MASTER_PORT RANK LOCAL_RANK NODE_RANK WORLD_SIZE 'OMPI_*' 'PMIX_*' \
    'PMI_*' 'PALS_*' 'MPI_*' 'I_MPI_*' 'UCX_*'
  make_scratch
  keep_servers
  check_image
  protect_records "$PWD"
  # what is downloaded and compiled stays in folders of the user's (docs/howto-data.md)
  if (umask 077 && mkdir -p -- \
      /home/you/.cache/envbuild-caches/downloads /home/you/.cache/envbuild-caches/compiled/6bc63e498813d213 \
      /home/you/.cache/envbuild-caches/downloads/nltk) 2>/dev/null &&
    [ -w /home/you/.cache/envbuild-caches/downloads ]; then
    mkdir -p -- "$scratch"/.cache "$scratch"/.compiled
    kept+=(--bind /home/you/.cache/envbuild-caches/downloads:"$scratch"/.cache:rw)
    kept+=(--bind /home/you/.cache/envbuild-caches/compiled/6bc63e498813d213:"$scratch"/.compiled:rw)
    for value in \
      XDG_CACHE_HOME=.cache HF_HOME=.cache/huggingface TORCH_HOME=.cache/torch \
      KERAS_HOME=.cache/keras TFHUB_CACHE_DIR=.cache/tfhub TFDS_DATA_DIR=.cache/tensorflow_datasets \
      NLTK_DATA=.cache/nltk SCIKIT_LEARN_DATA=.cache/scikit_learn GENSIM_DATA_DIR=.cache/gensim \
      CHAINER_DATASET_ROOT=.cache/chainer KAGGLEHUB_CACHE=.cache/kagglehub \
      TRITON_CACHE_DIR=.compiled/triton TORCHINDUCTOR_CACHE_DIR=.compiled/inductor \
      TORCH_EXTENSIONS_DIR=.compiled/torch_extensions CUDA_CACHE_PATH=.compiled/cuda \
      JAX_COMPILATION_CACHE_DIR=.compiled/xla NUMBA_CACHE_DIR=.compiled/numba \
      CUPY_CACHE_DIR=.compiled/cupy; do
      hand_in "${value%%=*}" "$scratch"/"${value#*=}"
    done
  else
    printf 'envbuild: downloads are not kept: their folder cannot be written on this node\n'
  fi
  begun= && : >"$scratch/.begun" && exec 6<"$scratch/.begun" && begun=/dev/fd/6
  # shellcheck disable=SC2016  # the image's shell expands it
  supervise "$runtime" --quiet exec ${flags[@]+"${flags[@]}"} \
    --cleanenv --no-mount cwd --home "$scratch" --pwd "$PWD" \
    --bind "${TMPDIR:-/tmp}:${TMPDIR:-/tmp}:rw" \
    --bind "$PWD:$PWD:rw" ${records[@]+"${records[@]}"} ${kept[@]+"${kept[@]}"} \
    "$image" sh -c 'echo >"$1"; shift; exec "$@"' sh "$scratch"/.begun "$@" 7<&-
  code=$? own=$code
  if [ "$code" -ne 0 ] && [ -n "$begun" ] && [ ! -s "$begun" ]; then
    printf 'envbuild: error: the container did not start: see above\n' >&2
    code=125
  fi
  exec 6<&-
  rm -rf -- "$scratch"
  return "$code"
}

command=(python tune.py --trials 20)

mapfile -t hosts < <(if [ -r "${PBS_NODEFILE:-}" ]; then awk '!seen[$0]++' "$PBS_NODEFILE"; else hostname; fi)
[ "${#hosts[@]}" -eq 1 ] || fail "the allocation has ${#hosts[@]} nodes instead of 1"
export MASTER_ADDR=${hosts[0]}
export MASTER_PORT=$((10000 + (id + ${task:-0}) % 20000))
program=$(
  printf 'set -u\nsignal= child= early= begun=\ncd %q || exit 125\n' "$PWD"
  printf 'image=%q stamp=%q\n' "$image" "$stamp"
  declare -f \
    fail hand_on supervise load_module prepare node_local is_kept make_scratch remove_left \
    clean_environment protect_records hand_in hand_in_matching find_runtime keep_servers \
    check_image enter
  cat <<'END'
trap "hand_on TERM" TERM
trap "hand_on USR1" USR1
prepare
enter "$@"
END
)
hostfile=${receipt%.json}.hosts
rm -f -- "$hostfile"
printf '%s slots=4\n' "${hosts[@]}" >"$hostfile"
world='# run by every rank before the command: with an MPI that does not fit the host'"'"'s, each would be alone

import sys

try:
    from mpi4py import MPI
except ImportError:
    print("envbuild: the image has no mpi4py, so the number of ranks was not tested")
    sys.exit()
found, wanted = MPI.COMM_WORLD.allreduce(1), int(sys.argv[1])
if found != wanted:
    sys.exit("envbuild: a world of %d ranks instead of %d" % (found, wanted))
if MPI.COMM_WORLD.rank == 0:
    print("envbuild: %d ranks found each other" % found, flush=True)
'
# shellcheck disable=SC2016  # expanded by the shell in the container
supervise mpirun -np 4 --map-by "ppr:4:node" --bind-to none --hostfile "$hostfile" -x MASTER_ADDR -x MASTER_PORT bash -c "$program" world sh -c 'command -v python3 >/dev/null || exit 0
python3 -c "$1" "$2"' sh "$world" 4 ||
  fail "the ranks were not started, or do not find each other: see above; both MPIs must fit"
supervise mpirun -np 4 --map-by "ppr:4:node" --bind-to none --hostfile "$hostfile" -x MASTER_ADDR -x MASTER_PORT bash -c "$program" rank "${command[@]}"
exit
