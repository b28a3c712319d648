"""Runs the probes of one visit: lanes side by side, the probes of a lane one after the other.

Comes with "python3 -c"; reads its program from stdin as JSON: {"lanes": [[{"name", "source", "parameters", "limit"}]]}.
Of every probe it prints one document as soon as that has ended: code, both outputs (their last parts), seconds,
timed_out; cut into lines that begin with the marker, the probe's name and "+" (more follows) or "." (the last one).
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

KEPT = 4 << 20
PIECE = 16384
MARK = "=====envbuild-part"
writing = threading.Lock()


class Tail(threading.Thread):
    """Reads a pipe to its end and keeps the last part."""

    def __init__(self, pipe):
        threading.Thread.__init__(self)
        self.daemon = True
        self.pipe, self.kept = pipe, []
        self.start()

    def run(self):
        size = 0
        while True:
            chunk = os.read(self.pipe.fileno(), 1 << 16)
            if not chunk:
                return
            self.kept.append(chunk)
            size += len(chunk)
            if size > 2 * KEPT:
                self.kept = [b"".join(self.kept)[-KEPT:]]
                size = KEPT


def text(tail):
    return b"".join(list(tail.kept))[-KEPT:].decode("utf-8", "replace")


def feed(pipe, source):
    try:
        pipe.write(source.encode("utf-8"))
        pipe.close()
    except OSError:
        pass  # it ended without reading its program; its exit code tells


def end(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass


def run(job):
    started = time.time()
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        [sys.executable, "-"],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
    )
    out, err = Tail(child.stdout), Tail(child.stderr)
    feed(child.stdin, job["source"])
    timed_out = False
    try:
        child.wait(job["limit"])
    except subprocess.TimeoutExpired:
        timed_out = True
    end(child)  # with the processes that it left behind
    child.wait()
    for tail in (out, err):
        tail.join(2)
    return {
        "code": child.returncode,
        "stdout": text(out),
        "stderr": text(err),
        "seconds": round(time.time() - started, 3),
        "timed_out": timed_out,
    }


def write_document(name, document):
    data = json.dumps(document)
    pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
    with writing:
        for number, piece in enumerate(pieces, 1):
            sys.stdout.write(
                "%s %s %s %s\n" % (MARK, name, "." if number == len(pieces) else "+", piece)
            )
        sys.stdout.flush()


def lane(jobs):
    for job in jobs:
        try:
            document = run(job)
        except OSError as error:
            document = {
                "code": 1,
                "stdout": "",
                "stderr": str(error),
                "seconds": 0.0,
                "timed_out": False,
            }
        write_document(job["name"], document)


def main():
    threads = [
        threading.Thread(target=lane, args=(jobs,)) for jobs in json.load(sys.stdin)["lanes"]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
