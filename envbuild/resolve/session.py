"""Ask uv: one folder with stubs, configuration and preferences, in which several questions are put."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from envbuild.base.model import BaseFacts
from envbuild.errors import HostError
from envbuild.progress import Reporter
from envbuild.resolve.artifacts import About, describe
from envbuild.resolve.explain import NO_RELEASE, ConflictError, name_of, translate_failure
from envbuild.resolve.platform import python_minor
from envbuild.resolve.pylock import Chosen, read_pylock
from envbuild.resolve.question import Question, arguments, read_origins, uv_environment, write_question
from envbuild.resolve.stubs import Stubs, kept_stubs, write_stubs
from envbuild.run import Command, Result, Runner
from envbuild.settings import Settings
from envbuild.store.atomic import telling, write_bytes
from envbuild.store.layout import Store

WARNING = re.compile(r"^warning: (.+)$", re.MULTILINE)
BUILD_FAILED = re.compile(r"Failed to (?:\w+ and )?build `([A-Za-z0-9._-]+)==([^`\s]+)`")
MOST_STATIC = 60
"""How many sdists may need static metadata before giving up: more means that something else is wrong."""
Pin = tuple[str, str]


@dataclass(kw_only=True)
class Session:
    """Where uv is asked, one question after the other.

    ``indexes`` maps names to URLs in order, "default" last; ``from_source`` are names whose wheels do not count.
    """

    folder: Path
    facts: BaseFacts
    stubs: Stubs
    indexes: Mapping[str, str]
    settings: Settings
    runner: Runner
    report: Reporter
    from_source: tuple[str, ...] = ()
    archives: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        self.warnings: tuple[str, ...] = ()
        self.late: tuple[str, ...] = ()
        self._count = 0
        self._uv = uv_program(self.settings)
        self.python = build_python(self.facts, self.settings)
        self._memory = Unbuildable(Store(self.settings.store), self.python)
        self._static: dict[Pin, About] = self._memory.load()
        with telling(self.folder):
            if self.archives:
                write_stubs(self.stubs, self.folder)
            else:
                kept = kept_stubs(self.stubs, Store(self.settings.store))
                for kind in ("hard", "soft"):
                    (self.folder / kind).symlink_to(kept / kind)
            for name, archive in self.archives:
                (self.folder / "hard" / name).symlink_to(archive)
            lines = [f"{stub.name}!={stub.version}\n" for stub in self.stubs.by_name.values()]
            (self.folder / "build.txt").write_text("".join(lines))

    def ask(self, question: Question) -> dict[str, Chosen]:
        """Put one question; sdists whose metadata cannot be built on this host are read instead.

        What others require and has no release at all before the date is taken from after it: it was deleted then, and
        uploaded again.  ``warnings`` are then what uv said beside its answer.  Raises ConflictError when there is no
        solution, NetworkError, HostError.
        """
        try:
            return self._ask(replace(question, fresh=(*question.fresh, *self.late)))
        except ConflictError as conflict:
            if not self._freed(question, conflict):
                raise
        return self.ask(question)

    def _freed(self, question: Question, conflict: ConflictError) -> bool:
        """Free from the date what has no release before it, and nobody asks for by name; tell whether there was any."""
        asked = {name_of(requirement) for requirement in question.requirements}
        gone = set(NO_RELEASE.findall(conflict.text)) & set(conflict.filtered) - {*asked, *self.late}
        self.late = (*self.late, *sorted(gone))
        return bool(gone)

    def _ask(self, question: Question) -> dict[str, Chosen]:
        for _ in range(MOST_STATIC):
            static = {pin: about.requires for pin, about in self._static.items()}
            place = self._place(question, static)
            result = self._call(question, place, arguments(question, place, self.facts, self.python))
            if result.code == 0:
                self.warnings = tuple(WARNING.findall(result.stderr))
                return read_pylock((place / "pylock.toml").read_text("utf-8"))
            failed = BUILD_FAILED.search(result.stderr)
            if not failed or (failed[1], failed[2]) in static:
                raise translate_failure(result.stderr)
            self._read_statically((failed[1], failed[2]), question.as_of)
        raise HostError(f"more than {MOST_STATIC} source packages cannot be built on this host")

    def read_from(self, name: str, version: str) -> str | None:
        """Return where the requirements of an sdist were read that cannot be built here; None for any other."""
        about = self._static.get((name, version))
        return about.read_from if about else None

    def origins(self, pins: Mapping[str, str]) -> dict[str, str]:
        """Return by package the name of the extra index that it comes from; the default index is left out."""
        question = Question(requirements=tuple(f"{name}=={version}" for name, version in pins.items()), deps=False)
        place = self._place(question, {pin: about.requires for pin, about in self._static.items()})
        given = [*arguments(question, place, self.facts, self.python), "--emit-index-annotation"]
        given[given.index("pylock.toml")] = "origins.txt"
        result = self._call(question, place, tuple(given))
        if result.code:
            raise translate_failure(result.stderr)
        return read_origins((place / "origins.txt").read_text("utf-8"), self.indexes)

    def install(self, pins: Sequence[str], folder: Path) -> Result:
        """Put exactly these packages into a folder, for this host's Python and from the same indexes."""
        place = self._place(Question(requirements=()), {})
        options = ("--quiet", "--no-deps", "--no-python-downloads", "--config-file", "uv.toml", "--target", str(folder))
        return self._call(
            Question(requirements=()), place, ("pip", "install", "--python", self.python, *options, *pins)
        )

    def _place(self, question: Question, static: Mapping[Pin, tuple[str, ...]]) -> Path:
        self._count += 1
        place = self.folder / f"question-{self._count}"
        with telling(place):
            place.mkdir()
            write_question(
                place,
                question,
                hard=(self.folder / "hard").resolve(),
                indexes=self.indexes,
                static=static,
                from_source=self.from_source,
            )
        return place

    def _call(self, question: Question, place: Path, given: tuple[str, ...]) -> Result:
        environment = uv_environment(self.settings)
        command = Command(argv=(self._uv, *given), cwd=place, env=environment, timeout=question.seconds)
        result = self.runner(command, check=False)
        if result.timed_out:
            raise HostError(f"uv did not finish within {question.seconds:.0f} s")
        return result

    def _read_statically(self, pin: Pin, as_of: str | None) -> None:
        """Read an sdist's requirements from the sdist itself, to tell uv from now on.

        uv finds the file: with its requirements declared empty, and looked at alone, it has nothing to build.
        """
        name, version = pin
        question = Question(requirements=(f"{name}=={version}",), deps=False, soft=False, as_of=as_of)
        place = self._place(question, {pin: ()})
        result = self._call(question, place, arguments(question, place, self.facts, self.python))
        if result.code:
            raise translate_failure(result.stderr)
        found = read_pylock((place / "pylock.toml").read_text("utf-8")).get(name)
        if found is None or found.sdist is None:
            raise HostError(f"{name} {version} cannot be built on this host, and its sdist was not found")
        about = describe([found.sdist], settings=self.settings, report=self.report)[found.sdist.sha256]
        self.report.detail(f"{name} {version} cannot be built on this host: its requirements are read from its sdist")
        self._static[pin] = about
        self._memory.keep(pin, about)


class Unbuildable:
    """What could not be built with one interpreter of this host, so that it is not tried at every resolution."""

    def __init__(self, store: Store, python: str) -> None:
        self.path = store.folder("metadata") / f"unbuildable-{Path(python).resolve().name}.json"

    def load(self) -> dict[Pin, About]:
        """Return what is known."""
        try:
            known = msgspec.json.decode(self.path.read_bytes(), type=dict[str, About])
        except (OSError, msgspec.DecodeError):
            return {}
        return {_pin(key): about for key, about in known.items()}

    def keep(self, pin: Pin, about: About) -> None:
        """Add one; what another process adds at the same moment is found out again."""
        known = {"==".join(key): value for key, value in (self.load() | {pin: about}).items()}
        write_bytes(self.path, msgspec.json.encode(known))


def _pin(key: str) -> Pin:
    name, _, version = key.partition("==")
    return name, version


def uv_program(settings: Settings) -> str:
    """Return the path of uv: the one installed with envbuild, else the one on PATH."""
    import uv

    try:
        return str(uv.find_uv_bin())
    except FileNotFoundError as error:
        found = shutil.which("uv", path=settings.environment.get("PATH"))
        if found is None:
            raise HostError("uv was not found", hint="run: envbuild doctor") from error
        return found


def build_python(facts: BaseFacts, settings: Settings) -> str:
    """Return the host's interpreter nearest to the base's, in which uv builds metadata of sdists.

    A version manager's shim is passed over: it costs 0.4 s a call and may point to nothing.
    """
    minor = python_minor(facts)
    if sys.version_info[:2] == minor:
        return sys.executable
    found = shutil.which(f"python{minor[0]}.{minor[1]}", path=settings.environment.get("PATH"))
    return found if found and "shims" not in Path(found).parts else sys.executable
