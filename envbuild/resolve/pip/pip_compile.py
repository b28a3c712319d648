"""Run pip-compile by a Python of the base's version: this host's, else the base's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from envbuild.base.model import BaseFacts
from envbuild.base.runnable_root import runnable_root
from envbuild.context import Context
from envbuild.errors import HostError, UsageError
from envbuild.failures import explain_failure
from envbuild.names import Texts, Variables
from envbuild.resolve.platform import python_minor
from envbuild.resolve.uv.query import uv_environment
from envbuild.run import OWN_PATH, Command, Result, Runner
from envbuild.runtime import ExecOptions, Runtime
from envbuild.store.atomic import os_errors_as
from envbuild.store.units import join_numbers

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


@dataclass(frozen=True, kw_only=True, slots=True)
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


@dataclass(frozen=True, kw_only=True, slots=True)
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
            uv, "pip", "install", "--quiet", "--no-config", "--target", str(tools), "--python-version", minor,
            "--only-binary", ":all:", "--default-index", index, *TOOLS,
        )  # fmt: skip
        runner(Command(argv=argv, env=uv_environment(settings)))
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
