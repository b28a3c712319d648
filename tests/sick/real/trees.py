"""Make trees of real wheels with uv, change them, and run Python in them.

A tree is a virtual environment in the tests' cache, named by a digest over what is in it.  Of NVIDIA's large libraries
the GPU code is punched out (the loader never reads it), so that a stack takes a third of its size on disk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.check.probes.shared.stub_driver import LIBRARIES, shared_object
from tests.check.tree import Tree

UV = Path(sys.executable).with_name("uv")
CACHE = Path(os.environ.get("ENVBUILD_TEST_WHEELS", Path.home() / ".cache/envbuild-tests/wheels"))
LEFT_FREE = 14 << 30
"""Bytes of the disk that others keep."""
LARGE = 4 << 20
"""Bytes from which a library is looked through for GPU code."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is in a tree, step by step.

    Each line of ``install`` are arguments of one uv pip install; ``remove`` are distributions that are uninstalled
    afterwards, ``delete`` files and folders of site-packages that are lost (shell patterns), ``cut`` the bytes that are left
    of its files, ``edit`` an old and a new text in its files, ``strip`` its objects that lose their symbols, ``copy`` files
    (shell pattern below site-packages -> folder below the tree), ``environment`` the variables of the image, in which
    {site} and {tree} are replaced; ``cached`` are folders below the tree that the image's ldconfig lists.
    """

    install: tuple[str, ...]
    remove: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    copy: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cached: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    cut: Mapping[str, int] = field(default_factory=dict)
    edit: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    strip: tuple[str, ...] = ()
    python: str = "3.11"


@dataclass
class WheelTree(Tree):
    """A tree that uv has made."""

    def __post_init__(self) -> None:
        self.home.mkdir(exist_ok=True)


def uv_environment() -> dict[str, str]:
    """Keep what uv unpacks in a cache of its own, which is thinned."""
    return {**os.environ, "UV_CACHE_DIR": str(CACHE / "uv"), "UV_LINK_MODE": "hardlink"}


def make_tree(recipe: Recipe, interpreter: Path) -> WheelTree:
    """Make a tree, or take the one that was made before."""
    root = folder_of(recipe, interpreter)
    done = root / "made"
    if not done.exists():
        shutil.rmtree(root, ignore_errors=True)
        _fill(root, recipe, interpreter)
        done.touch()
    tree = WheelTree(root, python=interpreter, version=recipe.python)
    for name, value in recipe.environment.items():
        tree.env[name] = value.format(site=tree.site, tree=root)
    return tree


def folder_of(recipe: Recipe, interpreter: Path) -> Path:
    """Return where a tree is kept: by a digest over what is in it."""
    steps = (
        recipe.install,
        recipe.remove,
        recipe.delete,
        sorted(recipe.copy.items()),
        sorted(recipe.files.items()),
        str(interpreter),
    )
    changes = [sorted(recipe.cut.items()), sorted(recipe.edit.items()), recipe.strip]
    written = repr(steps) + (repr(changes) if any(changes) else "")
    return CACHE / "trees" / hashlib.sha256(written.encode()).hexdigest()[:16]


@contextmanager
def loader_cache(recipe: Recipe, interpreter: Path) -> Iterator[None]:
    """Put a tree's cache in the place of this machine's, in a name space of mounts that is this process's own."""
    if not recipe.cached:
        yield
        return
    tree = make_tree(recipe, interpreter)
    cache = tree.root / "ld.so.cache"
    folders = [str(tree.root / folder) for folder in recipe.cached]
    _run("/sbin/ldconfig", "-X", "-C", str(cache), *folders)
    _run("mount", "--bind", str(cache), "/etc/ld.so.cache")
    try:
        yield
    finally:
        _run("umount", "/etc/ld.so.cache")


def remove_tree(recipe: Recipe, interpreter: Path) -> None:
    """Give a tree's space back; what uv unpacked stays in its cache."""
    shutil.rmtree(folder_of(recipe, interpreter), ignore_errors=True)


def make_room() -> None:
    """Throw away what uv has unpacked where the disk gets full; it is fetched again when it is wanted."""
    if shutil.disk_usage(CACHE).free < LEFT_FREE:
        shutil.rmtree(CACHE / "uv", ignore_errors=True)


def _fill(root: Path, recipe: Recipe, interpreter: Path) -> None:
    _run(str(UV), "venv", "-q", "--python", str(interpreter), str(root))
    python = ("--python", str(root / "bin/python3"))
    for line in recipe.install:
        _run(str(UV), "pip", "install", "-q", *python, *line.format(tree=root).split())
        prepare_wheels(CACHE / "uv", interpreter)
    if recipe.remove:
        _run(str(UV), "pip", "uninstall", "-q", *python, *recipe.remove)
    site = root / f"lib/python{recipe.python}/site-packages"
    for pattern, folder in recipe.copy.items():
        target = root / folder
        target.mkdir(parents=True, exist_ok=True)
        for path in site.glob(pattern):
            shutil.copy2(path, target)
    _damage(site, recipe)
    for name, text in recipe.files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def _damage(site: Path, recipe: Recipe) -> None:
    """Delete, cut, edit and strip files; a file is written anew, as uv's cache has a hard link to it."""
    for pattern in recipe.delete:
        for path in _files(site, pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for pattern, size in recipe.cut.items():
        for path in _files(site, pattern):
            _write_anew(path, path.read_bytes()[:size])
    for pattern, (old, new) in recipe.edit.items():
        for path in _files(site, pattern):
            _write_anew(path, path.read_bytes().replace(old.encode(), new.encode()))
    for pattern in recipe.strip:
        for path in _files(site, pattern):
            _write_anew(path, path.read_bytes())
            _run("strip", "--strip-unneeded", str(path))


def _files(site: Path, pattern: str) -> list[Path]:
    found = sorted(site.glob(pattern))
    if not found:
        raise ValueError(f"nothing below {site} is named {pattern}")
    return found


def _write_anew(path: Path, content: bytes) -> None:
    mode = path.stat().st_mode
    path.unlink()
    path.write_bytes(content)
    path.chmod(mode)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, env=uv_environment(), timeout=1800)


def prepare_wheels(folder: Path, interpreter: Path) -> None:
    """Punch and compile what uv has unpacked, each wheel once: uv links its compiled modules into each further tree."""
    seen = folder / "prepared"
    known = set(seen.read_text().splitlines()) if seen.exists() else set()
    archive = folder / "archive-v0"
    for entry in sorted(archive.iterdir()) if archive.is_dir() else ():
        if entry.name in known:
            continue
        punch(entry)
        # uv compares a .data folder with RECORD before it moves its files: nothing may be added there
        compiler = (str(interpreter), "-m", "compileall", "-q", "-x", r"\.data/", str(entry))
        subprocess.run(compiler, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with seen.open("a") as file:
            file.write(f"{entry.name}\n")


def punch(folder: Path) -> None:
    """Give the disk space of GPU code back."""
    for path in folder.rglob("*.so*"):
        if path.is_symlink() or not path.is_file() or "/onnxruntime/" in str(path):
            continue  # its provider reads its own code while it is loaded
        if path.stat().st_size > LARGE:
            for start, length in gpu_code(path):
                subprocess.run(
                    ["fallocate", "-p", "-o", str(start), "-l", str(length), str(path)],
                    check=False,
                )


def gpu_code(path: Path) -> Iterator[tuple[int, int]]:
    """Yield where the sections with NVIDIA's GPU code are in an ELF file: offset and size."""
    with path.open("rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return
        (table,) = struct.unpack_from("<Q", head, 40)
        size, count, names_at = struct.unpack_from("<HHH", head, 58)
        file.seek(table)
        raw = file.read(size * count)
        if not count or len(raw) < size * count:
            return
        rows = [struct.unpack_from("<IIQQQQ", raw, number * size) for number in range(count)]
        file.seek(rows[names_at][4])
        names = file.read(min(rows[names_at][5], 1 << 20))
        for row in rows:
            if names[row[0] :].split(b"\0", 1)[0] in (b".nv_fatbin", b"__nv_relfatbin"):
                yield row[4], row[5]


def stub_driver() -> Path:
    """Write the driver that says "one A100" and can do nothing more; frameworks go as far as their libraries."""
    folder = CACHE / "driver"
    folder.mkdir(parents=True, exist_ok=True)
    for soname, functions in LIBRARIES.items():
        if not (folder / soname).exists():  # another runner may have it open
            (folder / soname).write_bytes(shared_object(soname, functions))
    return folder


def run_python(tree: Tree, code: str, *, driver: bool) -> tuple[int, str]:
    """Run Python in a tree; returns its exit code and all that it printed."""
    env = {"HOME": str(tree.home), "TMPDIR": str(tree.home), **tree.env}
    if driver:
        path = [env["LD_LIBRARY_PATH"]] if env.get("LD_LIBRARY_PATH") else []
        env["LD_LIBRARY_PATH"] = ":".join([*path, str(stub_driver())])
    result = subprocess.run(
        [str(tree.root / "bin/python3"), "-c", code],
        check=False,
        env=env,
        cwd=tree.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
    )
    return result.returncode, result.stdout.decode("utf-8", "replace")
