"""Resolve with pip-compile, run by a Python of the base's own version: the second backend.

Everything but the choice of versions is the uv backend's: stubs of the base, couplings, passes,
files, explanations.  A question about a whole set goes to pip-compile; its pins are then put to uv,
which names the files.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from envbuild.errors import HostError, ToolFailedError
from envbuild.net.redact import redact
from envbuild.resolve.conflict.explain import ConflictError
from envbuild.resolve.model import Request
from envbuild.resolve.pip.index_proxy import IndexProxy
from envbuild.resolve.pip.pip_compile import SECONDS, find_compiler
from envbuild.resolve.pylock import Chosen
from envbuild.resolve.uv.passes import Task
from envbuild.resolve.uv.query import Question
from envbuild.resolve.uv.resolver import UvResolver
from envbuild.resolve.uv.session import Session
from envbuild.run import Result
from envbuild.store.atomic import os_errors_as

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
