"""Resolve with pip-compile, run by a Python of the base's own version: the second backend.

Everything but the choice of versions is the uv backend's: stubs of the base, couplings, passes, files, explanations.  A
question about a whole set goes to pip-compile; its pins are then put to uv, which names the files.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from envbuild.errors import HostError, UsageError
from envbuild.resolve.explain import ConflictError, translate_failure
from envbuild.resolve.model import Request, Resolution
from envbuild.resolve.platform import python_minor
from envbuild.resolve.pylock import Chosen
from envbuild.resolve.question import Question, uv_environment
from envbuild.resolve.search import Task
from envbuild.resolve.session import Session, uv_program
from envbuild.resolve.uv import UvResolver
from envbuild.run import Command, Result
from envbuild.store.atomic import telling
from envbuild.store.layout import Store
from envbuild.store.web import redact

PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;]+)", re.MULTILINE)
NO_SOLUTION = (
    "ResolutionImpossible",
    "Could not find a version",
    "No matching distribution",
    "conflicting dependencies",
)
SECONDS = 3600.0
"""pip-compile took 868 s on a real set of eight requirements behind a mirror without metadata files."""


class PipToolsResolver(UvResolver):
    """The pip-tools backend: a resolve.model.Resolver."""

    def __call__(self, request: Request) -> Resolution:
        """Resolve.

        Raises UsageError for what pip-tools cannot express (a date, extra indexes), HostError where there is no Python
        of the base's version, and what the uv backend raises.
        """
        if request.as_of is not None:
            raise UsageError(
                f"pip-tools cannot resolve as of {request.as_of}: it knows no dates",
                hint='write as-of = "none" under [python] (or --as-of none), or leave out --resolver',
            )
        if request.indexes:
            raise UsageError(
                f"pip-tools mixes indexes, so that a package of {', '.join(request.indexes)} could come from another",
                where="[python] indexes",
                hint="leave out --resolver",
            )
        return super().__call__(request)

    def _session(self, request: Request, task: Task, folder: Path) -> Session:
        with telling(folder):
            folder.mkdir()
        return _PipSession(
            folder=folder,
            facts=request.facts,
            stubs=task.context.stubs,
            indexes=self._indexes(request),
            settings=self.settings,
            runner=self.runner,
            report=self.report,
            from_source=request.from_source,
        )


class _PipSession(Session):
    """A session whose whole sets are chosen by pip-compile; parts and explanations are asked of uv."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._compiler = self._prepare()

    def ask(self, question: Question) -> dict[str, Chosen]:
        """Put one question.  Raises as Session.ask; a conflict is told in uv's words, which name who wants what."""
        if not question.deps or question.lowest or question.seconds is not None:
            return super().ask(question)
        place = self._place(question, {})
        result = self._compile(question, place)
        if result.code == 0:
            pins = PIN.findall((place / "pinned.txt").read_text("utf-8"))
            exact = Question(requirements=tuple(f"{name}=={version}" for name, version in pins), deps=False)
            return super().ask(exact) if pins else {}
        if not any(sign in result.stderr for sign in NO_SOLUTION):
            raise translate_failure(_plain(result))
        with suppress(ConflictError):
            super().ask(question)
            raise ConflictError(f"pip-tools finds no solution, though uv does: {_plain(result)}")
        return super().ask(question)

    def _compile(self, question: Question, place: Path) -> Result:
        """Run pip-compile on a question's files; the seed is its output file, whose pins it prefers."""
        fixed = [f"{stub.name}=={stub.version}" for stub in self.stubs.by_name.values() if stub.hard]
        with telling(place):
            (place / "constraints.txt").write_text("\n".join([*question.constraints, *fixed, ""]), "utf-8")
            (place / "pinned.txt").write_text("".join(f"{n}=={v}\n" for n, v in question.seed), "utf-8")
        links = [
            "--find-links",
            str(self.folder / "hard"),
            *(["--find-links", str(self.folder / "soft")] if question.soft else []),
        ]
        argv = (
            self._compiler, "-m", "piptools", "compile", "--no-config", "--quiet", "--no-header", "--no-annotate",
            "--allow-unsafe", "--strip-extras", "--resolver", "backtracking", "--no-emit-index-url",
            "--no-emit-find-links", "--index-url", self.indexes["default"], *links,
            "--constraint", "constraints.txt", "--output-file", "pinned.txt", "requirements.in",
        )  # fmt: skip
        with telling(self.folder):
            (self.folder / "pip-home").mkdir(exist_ok=True)
        command = Command(argv=argv, cwd=place, env=self._environment(), timeout=SECONDS)
        result = self.runner(command, check=False)
        if result.timed_out:
            raise HostError(f"pip-compile did not finish within {SECONDS:.0f} s", hint="leave out --resolver")
        return result

    def _environment(self) -> dict[str, str]:
        """Return an environment in which no configuration of pip counts but certificates and proxies."""
        env = uv_environment(self.settings.environment) | {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INPUT": "1"}
        cache = Store(self.settings.store).folder("pip-tools")
        env |= {"PIP_CACHE_DIR": str(cache / "pip"), "PIP_TOOLS_CACHE_DIR": str(cache / "pip-tools")}
        return env | ({"PIP_CERT": str(self.settings.certificates)} if self.settings.certificates else {})

    def _prepare(self) -> str:
        """Return a Python of the base's version that has pip-tools: this one, or one in the store, made once."""
        minor = ".".join(map(str, python_minor(self.facts)))
        found = self.runner(Command(argv=(self.python, "-c", PROBE)), check=False).stdout.split()
        if found[:1] != [minor]:
            raise HostError(
                f"pip-tools resolves with the base's own Python, and there is no Python {minor} here",
                hint=f"install python{minor}, or leave out --resolver",
            )
        if "piptools" in found:
            return self.python
        store = Store(self.settings.store)
        folder = store.folder("pip-tools") / f"python{minor}"
        python = folder / "bin" / "python"
        with store.lock(f"pip-tools-{minor}", self.report):
            if not (folder / "complete").is_file():
                self._install(folder, python)
        return str(python)

    def _install(self, folder: Path, python: Path) -> None:
        """Put pip-tools into a virtual environment of its own."""
        program, env = uv_program(self.settings), uv_environment(self.settings.environment)
        make = (program, "venv", "--quiet", "--clear", "--no-python-downloads", "--python", self.python, str(folder))
        fill = (
            program, "pip", "install", "--quiet", "--python", str(python), "--default-index", self.indexes["default"],
            "pip-tools", "pip", "setuptools", "wheel",
        )  # fmt: skip
        for argv in (make, fill):
            self.runner(Command(argv=argv, env=env))
        with telling(folder):
            (folder / "complete").touch()


PROBE = (
    "import importlib.util, sys; print('%d.%d' % sys.version_info[:2], "
    "*[name for name in ('piptools',) if importlib.util.find_spec(name)])"
)
"""Tells the version of a Python and whether it has pip-tools."""


def _plain(result: Result) -> str:
    """Return what pip-compile said, without the stub's own mark and without passwords."""
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip() and "Traceback" not in line]
    return redact("\n".join(lines[-12:])) or result.last_lines()
