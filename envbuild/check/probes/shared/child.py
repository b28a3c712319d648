"""Comes before probes that try things in forked processes: one may crash, hang or print without end."""

import functools
import re
import select
import signal
import time

KEPT = 16384
FORK = os.fork
WAIT = os.waitpid
SELECT = select.select
"""As they are before a package changes them for all (gevent does)."""
USUAL = re.compile(
    "(?:_|HOME|HOSTNAME|LANG|LC_.*|LD_.*|PATH|PROMPT_COMMAND|PS1|PWD|PYTHON(?:HOME|PATH|NOUSERSITE)"
    "|SHLVL|TERM|TMPDIR|USER|USER_PATH|(?:APPTAINER|SINGULARITY)_?.*)$"
)
"""Variables that every image has, or that the loader has read already: they are not left out."""


def in_child(work, limit):
    """Run ``work(say)`` in a forked process; returns what it said, or how it ended instead."""
    said_r, said_w = os.pipe()
    noise_r, noise_w = os.pipe()
    started = time.time()
    child = FORK()
    if child == 0:
        status = 1
        try:
            os.setsid()
            for fd in (1, 2):
                os.dup2(noise_w, fd)
            os.close(said_r)
            os.close(noise_r)

            def say(document):
                data = (json.dumps(document) + "\n").encode("ascii")
                while data:
                    data = data[os.write(said_w, data) :]

            work(say)
            status = 0
        finally:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except Exception:
                    pass
            os._exit(status)  # no exit handlers: some frameworks hang or crash in theirs
    os.close(said_w)
    os.close(noise_w)
    said, noise, timed_out = drain_pipes(said_r, noise_r, started + limit, child)
    if timed_out:
        os.killpg(child, signal.SIGKILL)
    status = WAIT(child, 0)[1]
    result = {
        "lines": [
            json.loads(line) for line in said.decode("ascii", "replace").splitlines() if line
        ],
        "noise": noise.decode("utf-8", "replace").splitlines(),
        "seconds": round(time.time() - started, 3),
        "timed_out": timed_out,
    }
    if os.WIFSIGNALED(status) and not timed_out:
        result["signal"] = os.WTERMSIG(status)
    elif os.WIFEXITED(status):
        result["code"] = os.WEXITSTATUS(status)
    return result


def count_waited(process):
    """The seconds that a process was ready and got no processor, on a machine that is busy."""
    try:
        with open("/proc/%d/schedstat" % process) as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def drain_pipes(said_r, noise_r, deadline, child):
    """Read both pipes until the child's end of the first closes; keeps the end of the noise.

    What the child waits for a processor does not count.
    """
    said = b""
    noise = b""
    timed_out = False
    open_fds = [said_r, noise_r]
    while said_r in open_fds:
        left = deadline + count_waited(child) - time.time()
        if left <= 0:
            timed_out = True
            break
        for fd in SELECT(open_fds, [], [], min(left, 1.0))[0]:
            chunk = os.read(fd, 65536)
            if not chunk:
                open_fds.remove(fd)
            elif fd == said_r:
                said += chunk
            else:
                noise = (noise + chunk)[-KEPT:]
    while noise_r in open_fds and not timed_out and SELECT([noise_r], [], [], 0)[0]:
        chunk = os.read(noise_r, 65536)
        if not chunk:
            break
        noise = (noise + chunk)[-KEPT:]
    os.close(said_r)
    os.close(noise_r)
    return said, noise, timed_out


def works_without(names, work, limit):
    """Whether work goes well in a process without some variables of the environment."""

    def work_bare(say):
        for name in names:
            os.environ.pop(name, None)
        work(say)

    lines = in_child(work_bare, limit)["lines"]
    if not lines:
        return False
    return lines[-1]["ok"]


def blame_variable(document, work, limit):
    """Add to an error which variable of the environment it comes from: without it all goes well."""
    names = [name for name in sorted(os.environ) if not USUAL.match(name)]
    if not names or document["ok"] or document["kind"] in ("printed", "timeout"):
        return
    if works_without(names, work, limit) and not works_without((), work, limit):
        name = next((name for name in names if works_without([name], work, limit)), "")
        if name:
            document["error"] += " (it works without %s of the environment)" % name
