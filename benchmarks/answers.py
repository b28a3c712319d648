"""Lock requirement sets of public projects and compare the answers with what was expected before (answers.toml).

    python benchmarks/answers.py [--work FOLDER] [--no-warm] [--trees] [--json FILE] [--limit S] [SET ...]

Each set is locked twice as a user would, with the whole command.  Cold: nothing of Python's index is in the store or
in uv's cache; Debian's root, made once for each release, is.  Warm: the same question again.  An answer is right when
it keeps every bound of `expect` and `near`, partly right when only a bound of `near` is missed, and wrong otherwise.
It is "LOST" when the base's framework was replaced, or a second copy of one of its CUDA libraries lies over the first.
With --trees the locked files are unpacked by uv into a throwaway folder, and the modules of `imports` are imported
there with a Python of the base's version, without a GPU: an import that fails makes the answer wrong.  What is not
imported is judged by names and versions only, and the table says so.  Seconds are of the wall, and in brackets of the
processor.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.base.facts import load_facts
from envbuild.context import open_context
from envbuild.data.package_tables import load_aliases
from envbuild.net.index import index_url
from envbuild.progress import Silent
from envbuild.resolve.couplings import protected_names
from envbuild.run import Command, LocalRunner, Result
from envbuild.settings import load_settings
from envbuild.tools import uv_program

HERE = Path(__file__).resolve().parent
CASES = HERE.parent / "tests" / "resolve" / "cases"
RUN = LocalRunner()
SETTINGS = load_settings()
UV = uv_program(SETTINGS)
INDEX = index_url(open_context(SETTINGS, RUN, Silent()))
LEARNT = ("answers", "locks", "metadata", "stubs")
"""Folders of a store that hold what was learnt of Python's index."""
CUDA_WHEEL = re.compile(r"(nvidia-(?!cutlass-dsl-).+)-cu(11|12|13)")
RIGHT, PARTLY, WRONG, LOST = "right", "partly", "wrong", "LOST"
REFUSED, WRONGLY = "rightly refused", "wrongly refused"
VERDICTS = (RIGHT, PARTLY, WRONG, LOST, REFUSED, WRONGLY)


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The exit code of a right refusal, and a regular expression for what its message must name."""

    exit: int
    why: str


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One set of requirements on a base, with the answer that is expected."""

    name: str
    repo: str
    base: str
    wants: tuple[str, ...]
    expect: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    refused: Refusal | None = None
    either: bool = False
    imports: tuple[str, ...] = ()


class Cases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole of answers.toml."""

    schema: int
    set: tuple[Case, ...]


@dataclass
class Outcome:
    """What came of one set."""

    case: Case
    verdict: str = ""
    reasons: list[str] = field(default_factory=list)
    code: int = 0
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    message: str = ""
    imported: str = "-"


def main() -> None:
    """Lock every set that is asked for and print what was right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", nargs="*")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "envbuild-answers"
    )
    parser.add_argument("--no-warm", action="store_true")
    parser.add_argument(
        "--trees",
        action="store_true",
        help="import in a tree of the answer, where a set names modules",
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for one lock")
    options = parser.parse_args()
    known = msgspec.toml.decode((HERE / "answers.toml").read_text("utf-8"), type=Cases).set
    chosen = [case for case in known if not options.set or case.name in options.set]
    outcomes = []
    for case in chosen:
        outcome = Bench(case, options.work, options.limit).measure(
            warm=not options.no_warm, trees=options.trees
        )
        outcomes.append(outcome)
        print(line_of(outcome), flush=True)
        if options.json:
            options.json.write_bytes(
                msgspec.json.encode([msgspec.to_builtins(one) for one in outcomes])
            )
    print(summary(outcomes))


class Bench:
    """One set with a recipe, a store and a cache below ``work``."""

    def __init__(self, case: Case, work: Path, limit: float) -> None:
        self.case, self.limit = case, limit
        self.store, self.cache, self.trees = work / "store", work / "uv", work / "uv-trees"
        self.folder = work / "projects" / case.name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        suite, _, framework = case.base.partition(" ")
        self.facts = CASES / f"{framework}.json" if suite == "facts" else None
        base = 'image = "example/base:1"' if self.facts else f'bootstrap = "debian:{suite}"'
        if framework and not self.facts:
            base += f'\nframework = "{framework}"'
        python = f"[python]\ndependencies = {json.dumps(case.wants)}"
        recipe = f'[recipe]\nname = "case"\n[base]\n{base}\n{python}\n'
        (self.folder / "case.toml").write_text(recipe, "utf-8")

    def measure(self, *, warm: bool, trees: bool) -> Outcome:
        """Return the verdict on the answer, and its seconds."""
        outcome = Outcome(self.case)
        self._forget()
        result = self._lock(outcome, "cold")
        if warm:
            result = self._lock(outcome, "warm")
        outcome.code, outcome.message = result.code, told(result)
        if result.code:
            self._judge_refusal(outcome, result)
            return outcome
        answer = json.loads(result.stdout)
        outcome.versions = {p["name"]: p["version"] for p in answer["packages"]}
        self._judge(outcome, result.stdout + result.stderr)
        if trees and self.case.imports and outcome.verdict in (RIGHT, PARTLY):
            self._judge_imports(outcome, answer)
        return outcome

    def _forget(self) -> None:
        """Leave of the store what is Debian's."""
        shutil.rmtree(self.cache, ignore_errors=True)
        for folder in self.store.glob("*/*"):
            if folder.name in LEARNT:
                shutil.rmtree(folder)

    def _lock(self, outcome: Outcome, name: str) -> Result:
        argv = [sys.executable, "-m", "envbuild", "lock", "case.toml", "--json"]
        if self.facts:
            argv += ["--facts", str(self.facts)]
        env = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("UV_", "ENVBUILD_", "PYTHONDONT"))
        }
        env |= {
            "ENVBUILD_STORE": str(self.store),
            "UV_CACHE_DIR": str(self.cache),
            "ENVBUILD_INDEX": INDEX,
        }
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        result = RUN(
            Command(argv=tuple(argv), cwd=self.folder, env=env, timeout=self.limit), check=False
        )
        after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - started
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        outcome.seconds[name] = (round(took, 2), round(processor, 2))
        return result

    def _judge_refusal(self, outcome: Outcome, result: Result) -> None:
        wanted = self.case.refused
        named = wanted is not None and re.search(wanted.why, result.stderr) is not None
        right = wanted is not None and result.code == wanted.exit and named
        outcome.verdict = REFUSED if right else WRONGLY
        if not right:
            why = "" if wanted is None else f", expected {wanted.exit} naming {wanted.why}"
            outcome.reasons.append(f"exit {result.code}{why}: {outcome.message}")

    def _judge(self, outcome: Outcome, said: str) -> None:
        """Compare an answer with what was expected of it."""
        case, versions = self.case, outcome.versions
        lost = self._lost(versions)
        missed = [f"{r}: {held(r, versions)}" for r in case.expect if not keeps(r, versions)]
        missed += [f"{name} {versions[name]} is there" for name in case.absent if name in versions]
        missed += [f"not said: {pattern}" for pattern in case.says if not re.search(pattern, said)]
        if case.refused and not case.either:
            missed.append(
                f"answered, where {case.refused.why} has none; {held(case.wants[0], versions)}"
            )
        near = [f"{r}: {held(r, versions)}" for r in case.near if not keeps(r, versions)]
        outcome.reasons = lost + missed + near
        verdicts = ((lost, LOST), (missed, WRONG), (near, PARTLY))
        outcome.verdict = next((verdict for found, verdict in verdicts if found), RIGHT)

    def _lost(self, versions: dict[str, str]) -> list[str]:
        """Return what is put over the base's framework or beside its CUDA libraries."""
        here = dict(versions)
        found = []
        if self.facts:
            facts = load_facts(self.facts)
            found = [
                f"{name} of the base is replaced"
                for name in sorted(protected_names(facts) & versions.keys())
            ]
            here |= {canonicalize_name(dist.name): dist.version for dist in facts.dists}
        kinds: dict[str, set[str]] = {}
        for name in here:
            if wheel := CUDA_WHEEL.fullmatch(name):
                kinds.setdefault(wheel[1], set()).add(name)
        found += [f"{' and '.join(sorted(names))}" for names in kinds.values() if len(names) > 1]
        for module, members in load_aliases().exclusive.items():
            names = sorted(name for name in here if any(fnmatchcase(name, one) for one in members))
            if len(names) > 1:
                found.append(f"{' and '.join(names)} write over each other's {module}")
        return found

    def _judge_imports(self, outcome: Outcome, answer: dict[str, Any]) -> None:
        """Import the set's modules in a tree of the locked files."""
        minor = ".".join(answer["base"]["python"].split(".")[:2])
        with tempfile.TemporaryDirectory(prefix="tree-", dir=self.folder) as tree:
            torch = (
                "torch" in outcome.versions
            )  # linked with NVIDIA's libraries; others open them when they are asked to
            kept = [p for p in answer["packages"] if torch or not p["name"].startswith("nvidia-")]
            # what the base itself has is not in an answer
            kept += [p for p in answer["provided"] if not p["alias_of"]]
            lines = [f"{p['name']}=={p['version']}" for p in kept]
            (self.folder / "tree.txt").write_text("\n".join(lines) + "\n", "utf-8")
            argv = (
                UV,
                "pip",
                "install",
                "-q",
                "--no-deps",
                "--target",
                tree,
                "--python",
                python_of(minor),
            )
            index = (
                "--default-index",
                INDEX,
                "--no-config",
                "-r",
                "tree.txt",
                "--cache-dir",
                str(self.trees),
            )
            made = RUN(Command(argv=argv + index, cwd=self.folder, timeout=1200), check=False)
            if made.code:
                outcome.imported = "not made"
                outcome.reasons.append(f"tree: {told(made)}")
                return
            failed = [
                f"import {module}: {fault}"
                for module in self.case.imports
                if (fault := _import(module, tree, minor))
            ]
        outcome.imported = "no" if failed else "yes"
        if failed:
            outcome.verdict = WRONG
            outcome.reasons += failed


def _import(module: str, tree: str, minor: str) -> str | None:
    """Return the last line of an import that fails."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": tree, "HOME": tree, "CUDA_VISIBLE_DEVICES": ""}
    env["JAX_PLATFORMS"] = "cpu"  # else its plugin looks for CUDA's libraries, which are left out
    argv = (python_of(minor), "-s", "-c", f"import {module}")
    result = RUN(Command(argv=argv, env=env, cwd=Path(tree), timeout=300), check=False)
    return told(result) if result.code else None


def python_of(minor: str) -> str:
    """Return the path of a Python of a version."""
    roots = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = next(iter(sorted(roots.glob(f"{minor}.*/bin/python{minor}"))), None)
    path = str(found) if found else shutil.which(f"python{minor}")
    if path is None:
        sys.exit(f"no Python {minor} is here: trees of that version cannot be tried")
    return path


def keeps(bound: str, versions: dict[str, str]) -> bool:
    """Whether an answer holds a package within a bound; a bound from above holds for what is not there."""
    wanted = Requirement(bound)
    version = versions.get(canonicalize_name(wanted.name))
    if version is None:
        return not any(one.operator in (">", ">=", "==", "~=") for one in wanted.specifier)
    return wanted.specifier.contains(version, prereleases=True)


def held(requirement: str, versions: dict[str, str]) -> str:
    """Return the version that an answer has of a requirement's package."""
    name = canonicalize_name(Requirement(requirement).name)
    return f"{name} {versions.get(name, 'is not there')}"


def told(result: Result) -> str:
    """Return the line that matters of a failure."""
    if result.timed_out:
        return "stopped at the limit of seconds"
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("- ", "envbuild: error", "error"))]
    return " | ".join(errors[:4] or lines[-1:])[:400]


def line_of(outcome: Outcome) -> str:
    """Return one row of the table."""
    seconds = ", ".join(f"{name} {wall} s [{cpu}]" for name, (wall, cpu) in outcome.seconds.items())
    reasons = "; ".join(outcome.reasons)
    cells = (
        outcome.case.name,
        outcome.case.base,
        outcome.verdict,
        outcome.imported,
        seconds,
        reasons,
    )
    return "| " + " | ".join(cells) + " |"


def summary(outcomes: list[Outcome]) -> str:
    """Return how many answers were right, and how long they took."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    good = counts[RIGHT] + counts[REFUSED]
    lines = [
        f"{len(outcomes)} sets: "
        + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    ]
    lines.append(f"right or rightly refused: {100 * good / max(len(outcomes), 1):.0f} %")
    tried = Counter(outcome.imported for outcome in outcomes)
    lines.append(f"judged by import: {tried['yes'] + tried['no']}, of them {tried['no']} failed")
    for name in ("cold", "warm"):
        measured = [outcome.seconds[name] for outcome in outcomes if name in outcome.seconds]
        if measured:
            walls, cpus = zip(*measured, strict=True)
            lines.append(
                f"{name}: median {statistics.median(walls):.1f} s, most {max(walls):.1f} s; "
                f"of the processor {statistics.median(cpus):.1f} s, most {max(cpus):.1f} s"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
