"""Ask uv: one folder with stubs and configuration, in which questions are put."""

from __future__ import annotations

import math
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from envbuild import limits
from envbuild.base.model import BaseFacts
from envbuild.context import Context
from envbuild.data.package_tables import load_aliases
from envbuild.errors import HostError, NetworkError
from envbuild.names import Pairs, Texts
from envbuild.progress import SilentStage, Stage
from envbuild.resolve.conflict.explain import (
    DEPENDS,
    MISSING,
    NO_RELEASE,
    WITHDRAWN,
    ConflictError,
    mentioned_names,
    name_of,
    translate_failure,
)
from envbuild.resolve.platform import python_minor
from envbuild.resolve.pylock import Chosen, read_pylock, refuse_local
from envbuild.resolve.sources.artifacts import About, describe_files
from envbuild.resolve.stubs import Stubs, kept_stubs, write_stubs
from envbuild.resolve.uv.answer_checks.squatted_names import (
    impostor_names,
    refused_page,
    registered_late,
)
from envbuild.resolve.uv.interpreter import build_python, write_mute
from envbuild.resolve.uv.query import (
    Question,
    building_environment,
    read_origins,
    uv_arguments,
    uv_environment,
    write_question,
)
from envbuild.resolve.uv.readings import Pin, Readings
from envbuild.resolve.uv.time_limit import TimeLimit, memory_exceeded
from envbuild.run import Command, Result
from envbuild.store.atomic import os_errors_as
from envbuild.tools import uv_program

WARNING = re.compile(r"^warning: (.+)$", re.MULTILINE)
ASKED = re.compile(r"^DEBUG Sending \w+ (?:GET )?request for: (\S+)$", re.MULTILINE)
READ = re.compile(r"DEBUG (?:Found (?:fresh response|modified|not-modified)|No cache)")
BUILDING = re.compile(r"DEBUG Preparing metadata for: (\S+)")
SPOKEN = re.compile(r"^(?:DEBUG|TRACE|INFO|WARN) .*\n?", re.MULTILINE)
BUILD_FAILED = re.compile(r"Failed to (?:\w+ and )?build `([A-Za-z0-9._-]+)==([^`\s]+)`")
MOST_PLACEHOLDERS = 3
"""Placeholders of one name after which none of its source archives is looked at."""
MOST_STATIC = 200
"""How many sdists may be read for one question: more means that something else is wrong."""
MOST_OF_ONE = 3  # of one name; its others then count as wheels only, if that leaves an answer
NOTHING = About(size=0)


@dataclass(kw_only=True)
class Session:
    """Where uv is asked, one question after the other.

    ``indexes`` maps names to URLs in order, "default" last; ``from_source`` are names whose wheels
    do not count; ``late`` are names with releases that no question's date hides; ``refresh`` asks
    the index again at the first question, which is about the direct requirements.
    """

    folder: Path
    facts: BaseFacts
    stubs: Stubs
    indexes: Mapping[str, str]
    context: Context
    from_source: Texts = ()
    archives: Pairs = ()
    late: Texts = ()
    refresh: bool = False
    limit: TimeLimit = field(default_factory=TimeLimit)
    stage: Stage = field(default_factory=SilentStage)

    def __post_init__(self) -> None:
        self.warnings: Texts = ()
        self._gone: set[str] = set()
        self._count = 0
        settings, store = self.context.settings, self.context.store
        self._uv = uv_program(settings)
        self.python = build_python(self.facts, settings)
        self.barred: dict[Pin, str] = {}
        self._told: set[str] = set()
        # a name that the base or a tree of the project has is the real one
        held = {*self.stubs.by_name, *map(canonicalize_name, self.from_source)}
        trees = {name.rpartition("-")[0].replace("_", "-") for name, _ in self.archives}
        self._wheels_only: Texts = impostor_names(held | trees)
        self._memory = Readings(store, self.facts, self.indexes)
        self._static: dict[Pin, About] = {}
        # sdists that were read before: uv need not fail on each of them again
        for pin, about in self._memory.load().items():
            self._learn_release(pin, about)
        self._may_build = settings.host_builds and self.python_minor == python_minor(self.facts)
        self._builder = self.python
        if not self._may_build:
            self._builder = str(write_mute(self.folder, sys.executable))
        with os_errors_as(self.folder):
            if self.archives:
                write_stubs(self.stubs, self.folder)
            else:
                kept = kept_stubs(self.stubs, store)
                for kind in ("hard", "soft"):
                    (self.folder / kind).symlink_to(kept / kind)
            for name, archive in self.archives:
                (self.folder / "hard" / name).symlink_to(archive)

    def ask(self, question: Question) -> dict[str, Chosen]:
        """Put one question; of sdists nothing is run: what they require is read from them.

        What others require and has no release at all before the date is taken from after it: it was
        deleted then, and uploaded again.  ``warnings`` are then what uv said beside its answer.
        Raises ConflictError when there is no solution, NetworkError, HostError.
        """
        try:
            return self._ask_uv(replace(question, fresh=(*question.fresh, *self.late)))
        except ConflictError as conflict:
            if not self._free_from_date(question, conflict):
                raise
        return self.ask(question)

    def newest(
        self, *requirements: str, as_of: str | None = None, constraints: Texts = ()
    ) -> dict[str, Chosen]:
        """Return the newest release of each requirement by itself.  Raises as ``ask``."""
        question = Question(
            requirements=requirements, constraints=constraints, deps=False, soft=False, as_of=as_of
        )
        return self.ask(question)

    def _free_from_date(self, question: Question, conflict: ConflictError) -> bool:
        """Free from the date what has no release before it but withdrawn ones; return whether any.

        What looks like somebody else's, who took a name that was given up, stays out: the conflict
        tells.
        """
        asked = {name_of(requirement) for requirement in question.requirements}
        gone = set(NO_RELEASE.findall(conflict.text)) & set(conflict.filtered)
        gone |= set(WITHDRAWN.findall(conflict.text)) if question.as_of else set()
        # what requires something itself has other releases than the withdrawn one
        usable = (name_of(package) for package, _ in DEPENDS.findall(conflict.text))
        gone -= {*asked, *self.late, *usable}
        for name in sorted(gone):
            late = (
                registered_late(name, question.as_of or "", self.indexes, self.context)
                if question.as_of
                else None
            )
            if late is not None and late.suspicious:
                conflict.first_reasons = (
                    *conflict.first_reasons,
                    f"{late}, after {question.as_of}: it may be somebody else's by now",
                )
                conflict.traps = (*conflict.traps, name)
                gone.discard(name)
        self.late = (*self.late, *sorted(gone))
        return bool(gone)

    def _ask_uv(self, question: Question) -> dict[str, Chosen]:
        seconds = math.inf if question.seconds is None else question.seconds
        end = time.monotonic() + seconds
        read: Counter[str] = Counter()
        most, wheels_only = MOST_OF_ONE, question.binary
        for _ in range(MOST_STATIC):
            left = end - time.monotonic()
            if left <= 0:
                raise HostError(f"uv did not finish within {seconds:.0f} s")
            timed = replace(question, seconds=left, refresh=self.refresh, binary=wheels_only)
            self.refresh = False
            place = self._question_folder(timed, self._static)
            result = self._call_uv(timed, place, self._uv_arguments(timed, place))
            if result.code == 0:
                self.warnings = tuple(WARNING.findall(result.stderr))
                answer = read_pylock((place / "pylock.toml").read_text("utf-8"))
                if all(url.startswith("http") for url in self.indexes.values()):
                    refuse_local(answer, self.archives)
                if not self._read_chosen(answer):
                    return answer
                continue
            # uv names the sdist that it would have to build: that one is read, and uv asked again
            failed = BUILD_FAILED.search(result.stderr)
            if not failed or failed.groups() in self._static:
                failure = translate_failure(result.stderr)
                if wheels_only == question.binary or not isinstance(failure, ConflictError):
                    raise self._explain_failure(failure)
                most, wheels_only = MOST_STATIC, question.binary
                continue
            read[failed[1]] += 1
            if read[failed[1]] > most:
                wheels_only = (*wheels_only, failed[1])
                continue
            self._read_statically((failed[1], failed[2]), question.as_of)
        raise HostError(f"more than {MOST_STATIC} source packages have to be read for one question")

    def _explain_failure(self, error: Exception) -> Exception:
        """Return a failure of uv with what it cannot know: taken names, a refusing index."""
        if not isinstance(error, ConflictError):
            return error
        missing = set(MISSING.findall(error.text)) - self._gone
        # uv takes a page that is refused (403) for a name that is not there
        refused = refused_page(sorted(missing), self.indexes, self.context) if missing else None
        if refused is not None:
            return refused
        self._gone |= missing
        names = mentioned_names(error.text)
        known = load_aliases().elsewhere
        reasons = {
            name: f"{name} {version} is {reason}" for (name, version), reason in self.barred.items()
        }
        reasons |= {
            name: f"{name} is not what an index has by that name: {known[name]}"
            for name in self._wheels_only
            if name in known
        }
        mentioned = [name for name in reasons if name in names]
        error.first_reasons = (*error.first_reasons, *(reasons[name] for name in mentioned))
        error.traps = (*error.traps, *mentioned)
        return error

    def _read_chosen(self, answer: Mapping[str, Chosen]) -> bool:
        """Read the chosen source archives; tell whether uv has to be asked again.

        So it is where one is no release of anything, or its setup.py requires more than PKG-INFO.
        """
        unread = {
            (one.name, one.version): one.sdist
            for one in answer.values()
            if one.sdist and not one.wheels and (one.name, one.version) not in self._static
        }
        abouts = describe_files(unread.values(), self.context) if unread else {}
        learnt = {pin: abouts[sdist.sha256] for pin, sdist in unread.items()}
        changed = {
            pin: about
            for pin, about in learnt.items()
            if about.stub or about.read_from == "setup.py"
        }
        for pin, about in changed.items():
            self._learn_release(pin, about)
        return bool(changed)

    def _bar_release(self, pin: Pin, reason: str) -> None:
        """Take a release off the list; after a few of one name, all that it has as source."""
        self.barred[pin] = reason
        name = pin[0]
        placeholders = sum(other == name for other, _ in self.barred)
        if placeholders >= MOST_PLACEHOLDERS and name not in self._wheels_only:
            self._wheels_only = (*self._wheels_only, name)

    @property
    def python_minor(self) -> tuple[int, int]:
        """The version of the Python in which backends may run here; (0, 0) if not known."""
        if self.python == sys.executable:
            return sys.version_info[:2]
        found = re.search(r"python(\d+)\.(\d+)$", self.python)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def read_from(self, name: str, version: str) -> str | None:
        """Return where an sdist's requirements were read, None for what uv read itself."""
        about = self._static.get((name, version))
        return about.read_from if about else None

    def origins(self, pins: Mapping[str, str]) -> dict[str, str]:
        """Return by package the extra index that it comes from; the default is left out."""
        question = Question(
            requirements=tuple(f"{name}=={version}" for name, version in pins.items()), deps=False
        )
        place = self._question_folder(question, self._static)
        # of uv's formats the requirements file alone names the index of each package
        given = [*self._uv_arguments(question, place), "--emit-index-annotation"]
        given[given.index("pylock.toml")] = "origins.txt"
        result = self._call_uv(question, place, tuple(given))
        if result.code:
            raise translate_failure(result.stderr)
        return read_origins((place / "origins.txt").read_text("utf-8"), self.indexes)

    def install(self, pins: Sequence[str], folder: Path) -> Result:
        """Install the wheels of exactly these packages into a folder, for this host's Python."""
        place = self._question_folder(Question(requirements=()), {})
        quiet = ("--quiet", "--no-deps", "--no-python-downloads", "--only-binary", ":all:")
        options = (*quiet, "--config-file", "uv.toml", "--target", str(folder))
        return self._call_uv(
            Question(requirements=()),
            place,
            ("pip", "install", "--python", self.python, *options, *pins),
        )

    def _question_folder(self, question: Question, static: Mapping[Pin, About]) -> Path:
        barred = tuple(f"{name}!={version}" for name, version in self.barred)
        question = replace(question, constraints=(*question.constraints, *barred))
        self._count += 1
        place = self.folder / f"question-{self._count}"
        with os_errors_as(place):
            place.mkdir()
            write_question(
                place,
                question,
                hard=(self.folder / "hard").resolve(),
                indexes=self.indexes,
                static={pin: about.requires for pin, about in static.items()},
                from_source=self.from_source,
            )
        return place

    def _uv_arguments(self, question: Question, place: Path) -> Texts:
        question = replace(question, binary=(*question.binary, *self._wheels_only))
        return uv_arguments(question, place, self.facts, self._builder, builds=self._may_build)

    def _call_uv(self, question: Question, place: Path, given: Texts) -> Result:
        # uv leaves a lock in TMPDIR for each source tree that it reads
        environment = uv_environment(self.context.settings) | {"TMPDIR": str(self.folder)}
        if self._may_build:
            environment = building_environment(self.context.settings, self.folder)
        seconds, whole = self.limit.seconds(question.seconds)
        command = Command(
            argv=(self._uv, *given),
            cwd=place,
            env=environment,
            timeout=seconds,
            on_line=self._read_line,
            memory=limits.RESOLVER_MEMORY,
        )
        result = self.context.runner(command, check=False)
        if result.too_large:
            raise memory_exceeded(ASKED.findall(result.stderr))
        if result.timed_out and whole:
            said = result.stderr
            self.limit.exceeded(ASKED.findall(said), BUILDING.findall(said), self.context.settings)
        if result.timed_out:
            raise HostError(f"uv did not finish within {seconds:.0f} s")
        return replace(result, stderr=SPOKEN.sub("", result.stderr))

    def _read_line(self, line: str) -> None:
        """Count a page or metadata that uv has read, and name a build on this machine."""
        self.stage.advance(bool(READ.match(line)))
        found = BUILDING.match(line)
        if found and found[1] not in self._told:
            self._told.add(found[1])
            self.context.report.say(
                f"{found[1]}: its build runs on this machine, to know what it requires"
            )

    def _learn_release(self, pin: Pin, about: About) -> None:
        if about.stub is not None:
            self._bar_release(pin, about.stub)
        self._static[pin] = about

    def _read_statically(self, pin: Pin, as_of: str | None) -> None:
        """Read an sdist's requirements from the sdist itself, to tell uv from now on.

        uv finds the file: with its requirements declared empty, and looked at alone, it has nothing
        to build.
        """
        name, version = pin
        question = Question(
            requirements=(f"{name}=={version}",), deps=False, soft=False, as_of=as_of
        )
        place = self._question_folder(question, {pin: NOTHING})
        result = self._call_uv(question, place, self._uv_arguments(question, place))
        if result.code:
            raise translate_failure(result.stderr)
        found = read_pylock((place / "pylock.toml").read_text("utf-8")).get(name)
        if found is None or found.sdist is None:
            raise NetworkError(
                f"{name} {version} is source only, and its archive was not found on the index"
            )
        about = describe_files([found.sdist], self.context)[found.sdist.sha256]
        self.context.report.detail(
            f"{name} {version}: its requirements are read from its source archive "
            f"({about.read_from})"
        )
        self._learn_release(pin, about)
        self._memory.keep(pin, about)
