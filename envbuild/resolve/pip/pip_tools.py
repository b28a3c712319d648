"""Resolve with pip-compile, run by a Python of the base's own version: the second backend.

Everything but the choice of versions is the uv backend's: stubs of the base, couplings, passes,
files, explanations.  A question about a whole set goes to pip-compile; its pins are then put to uv,
which names the files.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from envbuild.base.model import BaseFacts
from envbuild.base.runnable_root import runnable_root
from envbuild.context import Context
from envbuild.errors import HostError, ToolFailedError, UsageError
from envbuild.failures import explain_failure
from envbuild.names import Texts, Variables
from envbuild.net.redact import redact
from envbuild.records import frozen_record, replace
from envbuild.resolve.conflict.explain import ConflictError
from envbuild.resolve.model import Request
from envbuild.resolve.pip.index_proxy import IndexProxy
from envbuild.resolve.platform import python_minor
from envbuild.resolve.pylock import Chosen
from envbuild.resolve.uv.passes import Task
from envbuild.resolve.uv.query import Question, uv_environment
from envbuild.resolve.uv.resolver import UvResolver
from envbuild.resolve.uv.session import Session
from envbuild.run import OWN_PATH, Command, Result, Runner
from envbuild.runtime import ExecOptions, Runtime
from envbuild.store.atomic import os_errors_as
from envbuild.store.units import join_numbers

PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;]+)", re.MULTILINE)
NO_SOLUTION = (
    "ResolutionImpossible",
    "Could not find a version",
    "No matching distribution",
    "conflicting dependencies",
    "There are incompatible versions",
)
WISHES = (
    "--no-config", "--quiet", "--no-header", "--no-annotate", "--allow-unsafe", "--strip-extras",
    "--resolver=backtracking", "--no-emit-index-url", "--no-emit-find-links", "--no-emit-options",
)  # fmt: skip
"""Options that are given where this version of pip-tools has them."""


class PipToolsResolver(UvResolver):
    """The pip-tools backend: a resolve.model.Resolver.

    Raises HostError where no Python of the base's version can run, and what the uv backend raises.
    """

    def _open_session(self, request: Request, task: Task, folder: Path) -> Session:
        with os_errors_as(folder):
            folder.mkdir()
        return _PipSession(
            folder=folder,
            facts=request.facts,
            stubs=task.problem.stubs,
            indexes=self._index_urls(request),
            context=self.context,
            from_source=request.from_source,
            stage=self.stage,
        )


class _PipSession(Session):
    """A session whose whole sets are chosen by pip-compile; uv answers all the rest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        hard = [name for name, stub in self.stubs.by_name.items() if stub.hard]
        self._proxy = IndexProxy(
            self.indexes, self.context, hidden=hard, from_source=self.from_source
        )
        self._compiler = find_compiler(
            self.facts,
            self.folder,
            python=self.python,
            uv=self._uv,
            index=self.indexes["default"],
            context=self.context,
        )
        help_text = self._compiler(("compile", "--help"), self.folder, "").stdout
        self._options = tuple(
            wish for wish in WISHES if _names_option(help_text, wish.partition("=")[0])
        )

    def ask(self, question: Question) -> dict[str, Chosen]:
        """Put one question.  Raises as Session.ask; uv's words tell a conflict."""
        if not question.deps or question.lowest or question.seconds is not None:
            return super().ask(question)
        place = self._question_folder(question, {})
        result = self._run_pip_compile(question, place)
        if result.code == 0:
            pins = PIN.findall((place / "pinned.txt").read_text("utf-8"))
            # pip-compile chose the versions, uv names their files
            exact = replace(
                question,
                requirements=tuple(f"{name}=={version}" for name, version in pins),
                constraints=(),
                seed=(),
                deps=False,
            )
            return super().ask(exact) if pins else {}
        if self._proxy.failure is not None:
            raise self._proxy.failure
        if not any(sign in result.stderr for sign in NO_SOLUTION):
            raise ToolFailedError(
                f"pip-compile failed: {_plain_output(result)}",
                exit_code=result.code,
                stdout=result.stdout,
                stderr=redact(result.stderr),
                hint="leave out --resolver: uv can do with sources that cannot be built here",
            )
        with suppress(ConflictError):
            super().ask(question)
            raise ConflictError(
                f"pip-tools finds no solution, though uv does: {_plain_output(result)}"
            )
        return super().ask(question)

    def _run_pip_compile(self, question: Question, place: Path) -> Result:
        """Run pip-compile on a question; the seed is its output file, whose pins it prefers."""
        # pip asks all indexes for every name: protected ones are pinned to their stubs
        fixed = [
            f"{stub.name}=={stub.version}" for stub in self.stubs.by_name.values() if stub.hard
        ]
        with os_errors_as(place):
            (place / "constraints.txt").write_text(
                "\n".join([*question.constraints, *fixed, ""]), "utf-8"
            )
            (place / "pinned.txt").write_text(
                "".join(f"{n}=={v}\n" for n, v in question.seed), "utf-8"
            )
            # a line of the file, for older versions have no option for constraints
            wanted = "".join(f"{line}\n" for line in ("-c constraints.txt", *question.requirements))
            (place / "requirements.in").write_text(wanted, "utf-8")
        links = ["--find-links", "../hard", *(["--find-links", "../soft"] if question.soft else [])]
        words = (
            "compile",
            *self._options,
            *links,
            "--output-file",
            "pinned.txt",
            "requirements.in",
        )
        with self._proxy.serving(question.as_of, question.fresh) as index:
            result = self._compiler(words, place, index)
        if result.timed_out:
            raise HostError(
                f"pip-compile did not finish within {SECONDS:.0f} s", hint="leave out --resolver"
            )
        return result


def _names_option(help_text: str, option: str) -> bool:
    """Whether the help names an option."""
    return re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", help_text) is not None


def _plain_output(result: Result) -> str:
    """Return what pip-compile said, without the stub's own mark and without passwords."""
    lines = [
        line.strip()
        for line in result.stderr.splitlines()
        if line.strip() and "Traceback" not in line
    ]
    return redact("\n".join(lines[-12:])) or result.last_lines()


TOOLS = ("pip-tools", "pip", "setuptools", "wheel")
INSIDE = "/mnt"
"""Where the session's folder is seen inside: Debian's and Ubuntu's images have it."""
SECONDS = 3600.0
"""pip-compile took 868 s on a real set of eight requirements behind a mirror without metadata
files."""
NOT_INHERITED = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")
"""Its one index is on this machine."""
ALWAYS = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
PROBE = (
    f"{OWN_PATH}; import importlib.util; print('%d.%d' % sys.version_info[:2], "
    "*[name for name in ('piptools',) if importlib.util.find_spec(name)])"
)
"""Tells the version of a Python and whether it has pip-tools."""


class Compiler(Protocol):
    """What runs pip-tools, in a folder below the session's."""

    def __call__(self, words: Texts, place: Path, index: str) -> Result:
        """Run ``python -m piptools`` with these words; paths in them are relative to ``place``."""


@frozen_record
class _OnHost:
    """A Python of this host; ``tools`` is a folder with pip-tools where it lacks them."""

    python: str
    tools: Path | None
    folder: Path
    environment: Variables
    runner: Runner

    def __call__(self, words: Texts, place: Path, index: str) -> Result:
        """Run ``python -m piptools`` here."""
        env = {
            name: value
            for name, value in self.environment.items()
            if name.lower() not in NOT_INHERITED
        }
        env |= _pip_variables(str(self.folder), index) | {"HOME": str(self.folder / "home")}
        if self.tools is not None:
            env["PYTHONPATH"] = str(self.tools)
        argv = (self.python, "-m", "piptools", *words)
        return self.runner(Command(argv=argv, cwd=place, env=env, timeout=SECONDS), check=False)


@frozen_record
class _InBase:
    """The base's own Python, in a sealed container that writes to the question's folder only."""

    image: Path
    python: str
    folder: Path
    runtime: Runtime
    runner: Runner

    def __call__(self, words: Texts, place: Path, index: str) -> Result:
        """Run ``python -m piptools`` inside."""
        env = _pip_variables(INSIDE, index) | {
            "PYTHONPATH": f"{INSIDE}/tools",
            "PYTHONNOUSERSITE": "1",
        }
        cwd = f"{INSIDE}/{place.relative_to(self.folder)}" if place != self.folder else INSIDE
        own = [(self.folder / "home", f"{INSIDE}/home", True)]
        if place != self.folder:
            with os_errors_as(place):
                (place / "pinned.txt").chmod(0o666)  # root's containers are another user
            own.append((place, cwd, True))
        command = self.runtime.exec_command(
            self.image,
            (self.python, "-m", "piptools", *words),
            ExecOptions(
                binds=((self.folder, INSIDE, False), *own), env=env, timeout=SECONDS, cwd=cwd
            ),
        )
        return self.runner(command, check=False)


def _pip_variables(folder: str, index: str) -> dict[str, str]:
    """Return what configures pip; the index is no argument, for other users see those."""
    own = {"TMPDIR": f"{folder}/home", "PIP_INDEX_URL": index}
    caches = {
        "PIP_CACHE_DIR": f"{folder}/home/pip",
        "PIP_TOOLS_CACHE_DIR": f"{folder}/home/pip-tools",
    }
    return {**ALWAYS, **own, **caches, "no_proxy": "*"}


def find_compiler(
    facts: BaseFacts, folder: Path, *, python: str, uv: str, index: str, context: Context
) -> Compiler:
    """Return what runs pip-compile: ``python`` where it is of the base's version, else the base's.

    ``folder`` is the session's; pip-tools are put into it by ``uv`` from ``index``, in the newest
    version for that Python.  Raises HostError where there is neither such a Python here nor a base
    that can run.
    """
    minor = join_numbers(python_minor(facts))
    settings, runner = context.settings, context.runner
    with os_errors_as(folder):
        (folder / "home").mkdir(exist_ok=True)
    found = runner(Command(argv=(python, "-c", PROBE)), check=False).stdout.split()
    # a resolver must be of the base's Python: pip evaluates markers in the Python that runs it
    on_host = found[:1] == [minor]
    tools = None if on_host and "piptools" in found else folder / "tools"
    if not on_host:
        image = _runnable_base(facts, folder, context)
    if tools is not None:
        argv = (
            uv, "pip", "install", "--quiet", "--no-config", "--target", str(tools),
            "--python", python, "--python-version", minor, "--only-binary", ":all:", *TOOLS,
        )  # fmt: skip
        # the address may hold a password, and other users see arguments
        env = uv_environment(settings) | {"UV_DEFAULT_INDEX": index}
        # elsewhere uv would start the Python of a .venv of the folder, which may be a stranger's
        runner(Command(argv=argv, env=env, cwd=folder))
    if on_host:
        return _OnHost(
            python=python,
            tools=tools,
            folder=folder,
            environment=uv_environment(settings),
            runner=runner,
        )
    return _InBase(
        image=image,
        python=facts.python_path or "python3",
        folder=folder,
        runtime=context.runtime,
        runner=runner,
    )


def _runnable_base(facts: BaseFacts, folder: Path, context: Context) -> Path:
    """Return a base whose Python answers here."""
    minor = join_numbers(python_minor(facts))
    hint = f"install python{minor}, or leave out --resolver"
    why = (
        f"pip-tools resolves with the base's own Python: there is no Python {minor} here, and the "
        "base cannot run"
    )
    root = folder / "root"
    with os_errors_as(folder):
        root.mkdir()
    python = facts.python_path or "python3"
    settings, runner, report = context.settings, context.runner, context.report
    with report.stage(f"no Python {minor} here: pip-tools runs in {facts.image}"):
        try:
            image = runnable_root(
                facts,
                root,
                Context(settings=settings, runner=runner, store=context.store, report=report),
            )
        except (HostError, UsageError) as error:
            raise HostError(f"{why}: {error}", hint=hint) from error
        answer = runner(
            context.runtime.exec_command(
                image, (python, "-c", PROBE), ExecOptions(timeout=SECONDS)
            ),
            check=False,
        )
    if answer.stdout.split()[:1] != [minor]:
        raise HostError(f"{why}: {explain_failure(answer).what}", hint=hint)
    return image
