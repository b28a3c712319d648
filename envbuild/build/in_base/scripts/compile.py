"""Compile the modules of wheels: argv is a JSON file of jobs; the same sources give the same bytes.

Python writes shared objects into bytecode by their reference counts, so what was compiled before in the same process
changes the bytes.  Each batch of files is therefore compiled by a child forked from one and the same parent state.
"""

import importlib.util
import io
import json
import marshal
import os
import struct
import sys
import warnings
import zipfile

BATCH = 150
UNCHECKED = 1


def load_everything():
    """Import what compiling imports by itself, so that every child starts from the same state."""
    for source in (b"x = 1\n", b"# coding: latin-1\nx = 1\n", b"# coding: utf-8\nx = 1\n"):
        try:
            bytecode(source, "warm-up.py", 0)
        except Exception:
            pass


def bytecode(source, path, mtime):
    code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    if sys.version_info >= (3, 7):
        head = struct.pack("<I", UNCHECKED) + importlib.util.source_hash(source)
    else:
        head = struct.pack("<II", mtime & 0xFFFFFFFF, len(source) & 0xFFFFFFFF)
    return importlib.util.MAGIC_NUMBER + head + marshal.dumps(code)


def compile_batch(wheel, members, out, mtime):
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(out, "w") as result:
        for member, path in members:
            try:
                data = bytecode(archive.read(member), path, mtime)
            except (SyntaxError, ValueError, UnicodeError, RecursionError, MemoryError):
                continue
            folder, name = os.path.split(path)
            stem = os.path.splitext(name)[0]
            cached = "%s/__pycache__/%s.%s.pyc" % (folder, stem, sys.implementation.cache_tag)
            result.writestr(zipfile.ZipInfo(cached, (1980, 1, 1, 0, 0, 0)), data)


def run(tasks, workers):
    running, failed = {}, 0
    print("of %d" % len(tasks), flush=True)
    while tasks or running:
        while tasks and len(running) < workers:
            task = tasks.pop(0)
            child = os.fork()
            if child == 0:
                try:
                    compile_batch(*task)
                except BaseException as error:
                    sys.stderr.write("%s: %r\n" % (task[0], error))
                    os._exit(1)
                os._exit(0)
            running[child] = task
        child, status = os.wait()
        if child in running:
            running.pop(child)
            print("done", flush=True)
            failed = failed or status
    return 1 if failed else 0


def main():
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(10000)
    with open(sys.argv[1]) as file:
        order = json.load(file)
    tasks = []
    for job in order["jobs"]:
        members = sorted(job["members"])
        os.makedirs(job["out"])
        for number in range(0, len(members), BATCH):
            out = "%s/%06d.zip" % (job["out"], number // BATCH)
            tasks.append((job["wheel"], members[number : number + BATCH], out, order["mtime"]))
    load_everything()
    sys.exit(run(tasks, order["workers"]))


main()
