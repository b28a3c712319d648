"""Read facts from the merged layers of an image that does not run."""

from __future__ import annotations

import json
import posixpath
import re
from functools import partial
from typing import Any

from envbuild.base.facts import MARK, probe_functions
from envbuild.base.oci.layers import Tree
from envbuild.errors import UsageError
from envbuild.names import Variables

SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of an image that sets none."""
INTERPRETERS = ("python3", "python")
BIGGEST = 8 * 1024 * 1024
PROGRAMS = 64 * 1024 * 1024
"""Bytes above which a file called python3.N is no interpreter."""
KEPT = re.compile(
    r"\.(dist-info|egg-info)/(METADATA|PKG-INFO|RECORD|INSTALLER|top_level\.txt|requires\.txt)$"
    r"|\.egg-info$|/EGG-INFO/(PKG-INFO|RECORD|INSTALLER|top_level\.txt|requires\.txt)$"
    r"|(^|/)(os-release|ld\.so\.conf|pip\.conf|pyvenv\.cfg)$|/ld\.so\.conf\.d/[^/]+\.conf$|var/lib/dpkg/status$"
    r"|/cuda[^/]*/version\.(json|txt)$|torch/version\.py$|python/platform/build_info\.py$|/cudnn_version\w*\.h$"
    r"|/conda-meta/[^/]+\.json$"
    r"|[^/]*constraint[^/]*\.txt$|-packages/[^/]+\.pth$"
)
"""Files whose content the probe reads; of all others the name is enough."""
LONG_LIST = re.compile(r"var/lib/dpkg/status$|/conda-meta/[^/]+\.json$")
PROGRAM = re.compile(
    r"/bin/python\d?(\.\d+)?m?$|/libpython3[^/]*\.so[^/]*$|/libc\.so\.6$|/libc-2[^/]*\.so$"
)


def _is_read(path: str, size: int, *, named: frozenset[str] = frozenset()) -> bool:
    """Tell whether facts need a file's content; ``named`` are paths in variables."""
    path = f"/{path}"
    if PROGRAM.search(path):
        return size <= PROGRAMS
    # the list of Debian packages may be of any size; a conda package's has all its files
    if size > BIGGEST and not LONG_LIST.search(path):
        return False
    return path in named or KEPT.search(path) is not None


def _named_files(environment: Variables) -> frozenset[str]:
    """Return the paths of pip's files that variables name."""
    values = f"{environment.get('PIP_CONSTRAINT', '')} {environment.get('PIP_CONFIG_FILE', '')}"
    return frozenset(word for word in values.split() if word.startswith("/"))


class _Layers:
    """An image's files and variables, as the probe asks for them."""

    def __init__(self, tree: Tree, environment: Variables) -> None:
        self.environ = environment
        self.names, self.real, self.glob, self.mtime = tree.names, tree.real, tree.glob, tree.mtime
        self._tree = tree

    def read(self, path: str, most: int = -1) -> bytes | None:
        data = self._tree.read(path)
        return data if data is None or most < 0 else data[:most]

    def isdir(self, path: str) -> bool:
        return self._tree.kind(path) == "d"

    def exists(self, path: str) -> bool:
        return self._tree.kind(path) is not None


def read_static(tree: Tree, environment: Variables, *, machine: str, where: str) -> str:
    """Return what the probe would print inside the image.

    Raises UsageError for an image whose Python is older than 3.6.
    """
    probe = probe_functions()
    files = _Layers(tree, environment)
    program = _find_program(tree, environment)
    python = {} if program else probe["without_interpreter"](files, machine)
    # a conda environment may have one that is on no PATH
    off_path = python.get("python_path", "")
    if program or off_path:
        python = describe_interpreter(
            tree, environment, program or off_path, machine=machine, where=where
        )
        python["glibc"] = probe["glibc_of_files"](files)
    facts = probe["read_facts"](files, python)
    return MARK + json.dumps({**facts, "off_path": bool(off_path)})


def describe_interpreter(
    tree: Tree, environment: Variables, program: str, *, machine: str, where: str
) -> dict[str, Any]:
    """Tell of an image's Python what a running one tells of itself."""
    real = tree.real(program)
    found = re.search(r"python3\.(\d{1,4})m?$", real)
    if found is None or int(found[1]) < 6:
        raise UsageError(
            f"the image's Python is {posixpath.basename(real)}; a base needs Python 3.6 or newer",
            where=where,
            hint="take a newer tag of the image (TensorFlow 2.1 images need a tag that ends with -py3)",
        )
    minor = int(found[1])
    home = posixpath.dirname(posixpath.dirname(real))
    prefix = _venv_of(tree, program) or home
    places = [f"{home}/{lib}/python3.{minor}" for lib in ("lib", "lib64")]
    stdlib = next((path for path in places if tree.kind(f"{path}/os.py")), places[0])
    return {
        "python_path": program,
        "python": _python_version(tree, real, home, minor, where),
        "implementation": "cpython",
        "abi": _python_abi(tree, stdlib, minor),
        "prefix": prefix,
        "stdlib": stdlib,
        "path": _search_path(
            tree, environment, stdlib=stdlib, prefix=prefix, home=home, minor=minor
        ),
        "machine": machine,
    }


def _find_program(tree: Tree, environment: Variables) -> str | None:
    """Return the Python on the image's PATH, None where there is none."""
    folders = [
        folder
        for folder in (environment.get("PATH") or SEARCH).split(":")
        if folder.startswith("/")
    ]
    for name in INTERPRETERS:
        for folder in folders:
            path = f"{folder.rstrip('/')}/{name}"
            if tree.kind(path) == "f":
                return path
    return None


def _venv_of(tree: Tree, program: str) -> str | None:
    folder = posixpath.dirname(posixpath.dirname(program))
    return folder if tree.read(f"{folder}/pyvenv.cfg") else None


def _python_version(tree: Tree, real: str, home: str, minor: int, where: str) -> str:
    """Find the version's text in the interpreter, or in the library that it is loaded from."""
    libraries = [f"{home}/lib", f"{home}/lib64", *tree.glob("/usr/lib/*-linux-gnu")]
    candidates = [real]
    for folder in libraries:
        candidates += tree.glob(f"{folder}/libpython3.{minor}*.so*")
    for path in candidates:
        # linkers share the ends of strings:
        # the version may stand at the end of a path that holds it
        found = re.findall(
            rb"(?<![\d.])(3\.%d\.\d+(?:(?:a|b|rc)\d+)?\+?)\0" % minor, tree.read(path) or b""
        )
        if found:
            return str(max(found, key=found.count).decode())
    raise UsageError(
        f"the version of {real} cannot be read from its files",
        where=where,
        hint="make a .sif of it",
    )


def _python_abi(tree: Tree, stdlib: str, minor: int) -> str:
    for name in tree.names(f"{stdlib}/lib-dynload"):
        found = re.search(r"\.cpython-(\w+)-", name)
        if found:
            return f"cp{found[1]}"
    return f"cp3{minor}"


def _search_path(
    tree: Tree, environment: Variables, *, stdlib: str, prefix: str, home: str, minor: int
) -> list[str]:
    """Return sys.path: PYTHONPATH, standard library, site folders and their .pth lines."""
    sites = _site_folders(tree, prefix=prefix, home=home, minor=minor)
    found = [*environment.get("PYTHONPATH", "").split(":"), stdlib, f"{stdlib}/lib-dynload"]
    for site in sites:
        found += [site, *_pth_folders(tree, site)]
    return [path for path in dict.fromkeys(found) if path and tree.kind(path) == "d"]


def _site_folders(tree: Tree, *, prefix: str, home: str, minor: int) -> list[str]:
    """Return the site folders: dist-packages for Debian's Python, else site-packages."""
    python = f"python3.{minor}"
    if prefix == "/usr" and tree.kind("/usr/lib/python3/dist-packages"):
        return [
            f"/usr/local/lib/{python}/dist-packages",
            "/usr/lib/python3/dist-packages",
            f"/usr/lib/{python}/dist-packages",
        ]
    if prefix == home == "/usr":
        return [
            f"/usr/{lib}/{python}/site-packages"
            for lib in ("local/lib64", "local/lib", "lib64", "lib")
        ]
    return [f"{prefix}/{lib}/{python}/site-packages" for lib in ("lib64", "lib")]


def _pth_folders(tree: Tree, site: str) -> list[str]:
    found = []
    for name in tree.names(site):
        if name.startswith(".") or not name.endswith(".pth"):
            continue
        text = (tree.read(f"{site}/{name}") or b"").decode("utf-8", "replace")
        for line in text.split("\n"):
            # site.py: comments are left out, and lines that are code
            if line.strip() and not re.match(r"#|import[ \t]", line):
                found.append(posixpath.normpath(posixpath.join(site, line.strip())))  # noqa: PERF401
    return found


def keep_file(environment: Variables) -> partial[bool]:
    """Return the test that a tree keeps files' contents by."""
    return partial(_is_read, named=_named_files(environment))
