"""Read the facts of an image from inside: prints one line of JSON.

It runs on any Python from 3.6 on with its standard library alone, is fed on stdin, writes nothing,
imports nothing that is installed, and survives whatever it finds: a file that cannot be read is a
file that is not there.

These files are its parts, in the order of facts.PARTS; each uses the ones before it.
What looks at files does so through `Files`, and what is known of the interpreter is one dictionary:
static.py hands over the layers of an image that is not running, and what their files tell of its
Python.
"""

import glob
import os

BIGGEST = 8 * 1024 * 1024


class Files:
    """The running system's files and variables."""

    environ = os.environ
    isdir = staticmethod(os.path.isdir)
    exists = staticmethod(os.path.exists)
    real = staticmethod(os.path.realpath)

    def read(self, path, most=-1):
        try:
            with open(path, "rb") as file:
                return file.read(most)
        except (OSError, ValueError):
            return None

    def names(self, folder):
        try:
            return sorted(os.listdir(folder or "."))
        except OSError:
            return []

    def mtime(self, path):
        try:
            return int(os.stat(path).st_mtime)
        except OSError:
            return None

    def glob(self, pattern):
        return sorted(glob.glob(pattern))


def read_bytes(files, path):
    return files.read(path, BIGGEST)


def read_text(files, path):
    data = read_bytes(files, path)
    return None if data is None else data.decode("utf-8", "replace")
