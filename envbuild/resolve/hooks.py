"""Ask source archives what else their building needs (PEP 517, get_requires_for_build_wheel).

mpi4py wants Cython where its archive holds no generated C, scikit-build-core wants cmake where there is none: no file
says so, only the build backend itself.  It runs on this host, as uv runs it for metadata.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from envbuild.errors import EnvbuildError, IntegrityError, UsageError
from envbuild.resolve.pylock import Candidate, Chosen
from envbuild.resolve.session import Session
from envbuild.resolve.stubs import parsed
from envbuild.resolve.unpack import unpack_archive
from envbuild.run import Command
from envbuild.store.atomic import write_bytes
from envbuild.store.layout import Store
from envbuild.toml import read_toml

BACKEND = "setuptools.build_meta:__legacy__"
"""What PEP 517 prescribes for a source archive that names none."""
SECONDS = 60.0
MARK = "build requirements: "
SCRIPT = f"""\
import importlib, json, sys
backend, path = json.loads(sys.argv[1])
sys.path[:0] = path
module, _, attribute = backend.partition(":")
found = importlib.import_module(module)
for name in filter(None, attribute.split(".")):
    found = getattr(found, name)
ask = getattr(found, "get_requires_for_build_wheel", None)
print({MARK!r} + json.dumps([str(text) for text in (ask({{}}) if ask else [])]))
"""


def backend_of(project: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """Return the backend that a pyproject.toml names and where it lies; None where it names none properly."""
    system = project.get("build-system", {})
    backend, path = system.get("build-backend", BACKEND), system.get("backend-path", [])
    if not isinstance(backend, str) or not isinstance(path, list):
        return None
    return backend, [str(item) for item in path]


def asked(session: Session, archives: Mapping[str, Path], tools: Mapping[str, Chosen]) -> tuple[tuple[str, str], ...]:
    """Return (sdist, build requirement) beyond what the archives declare, with the chosen ``tools`` at hand.

    ``archives`` are by package name.  An archive whose backend fails on this host adds nothing: its own words come when
    it is built in the base.
    """
    pins = [f"{name}=={chosen.version}" for name, chosen in sorted(tools.items()) if not chosen.from_base]
    memory = Store(session.settings.store).folder("metadata")
    found: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="envbuild-hooks-", dir=session.settings.tmpdir) as name:
        place, installed = Path(name), False
        for package, archive in sorted(archives.items()):
            key = hashlib.sha256("\n".join([archive.name, session.python, *pins]).encode()).hexdigest()
            remembered = memory / f"asked-{key}.json"
            texts = _kept(remembered)
            if texts is None:
                if not installed:
                    installed = _install(session, pins, place / "tools")
                texts = _ask(session, archive, place) if installed else []
                with suppress(EnvbuildError):
                    write_bytes(remembered, msgspec.json.encode(texts))
            found += [(package, str(requirement)) for requirement in parsed(tuple(texts))]
    return tuple(found)


def _kept(path: Path) -> list[str] | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[str])
    except (OSError, msgspec.DecodeError):
        return None


def _install(session: Session, pins: Sequence[str], folder: Path) -> bool:
    """Put the build tools into a folder, for this host's Python; tell whether that was possible."""
    if not pins:
        return True
    result = session.install(pins, folder)
    if result.code:
        session.report.detail(f"the build tools cannot be had on this host: {result.last_lines()}")
    return result.code == 0


def _ask(session: Session, archive: Path, place: Path) -> list[str]:
    try:
        top = unpack_archive(archive, place / archive.name)
    except IntegrityError as error:
        session.report.detail(str(error))
        return []
    backend = _backend(top)
    if backend is None:
        return []
    kept = session.settings.environment
    env = {
        "PATH": f"{place / 'tools' / 'bin'}:{kept.get('PATH', '')}",
        "PYTHONPATH": str(place / "tools"),
        "PYTHONNOUSERSITE": "1",
        "HOME": str(place),
        "TMPDIR": str(place),
        "LC_ALL": "C.UTF-8",
    }
    argv = (session.python, "-c", SCRIPT, json.dumps(backend))
    result = session.runner(Command(argv=argv, cwd=top, env=env, timeout=SECONDS), check=False)
    said = [line for line in result.stdout.splitlines() if line.startswith(MARK)]
    if result.code or not said:
        session.report.detail(f"the build backend gave no answer on this host: {result.last_lines()}")
        return []
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(said[-1].removeprefix(MARK), type=list[str])
    return []


def _backend(top: Path) -> tuple[str, list[str]] | None:
    path = top / "pyproject.toml"
    project: Mapping[str, Any] = {}
    with suppress(UsageError):
        project = read_toml(path)[0] if path.is_file() else {}
    named = backend_of(project)
    return None if named is None else (named[0], [str(top / item) for item in named[1]])


def archives_of(files: Mapping[str, Candidate], settings_store: Path) -> dict[str, Path]:
    """Return where the sdists among the chosen files lie in the store, by package name."""
    store = Store(settings_store)
    return {name: store.artifact(file.sha256) for name, file in files.items() if not file.file.endswith(".whl")}
