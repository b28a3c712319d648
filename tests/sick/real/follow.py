"""Do what the hints of a verdict say, in a copy of the tree, until check passes or nothing can be done here."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from envbuild.check.model import Finding
from tests.sick.real.cases import Case
from tests.sick.real.judge import check_tree
from tests.sick.real.mends import MENDS
from tests.sick.real.trees import CACHE, UV, WheelTree, prepare_wheels, run_python, uv_environment

MOST_STEPS = 6
"""Hints that a user follows before he gives up."""
FRAMEWORKS = ("torch", "tensorflow", "jax")
ELSEWHERE = re.compile(
    r"base with|own index|index of|nothing mends|another release of Python|older Python mends"
)
"""Hints that name what no change of packages or variables gives."""


@dataclass
class Patient:
    """A copy of a tree that hints are followed in; ``case`` changes with what the hints change."""

    case: Case
    tree: WheelTree
    asked: set[str] = field(default_factory=set)
    """Requirements that hints have named already: asked for again, they are resolved anew."""

    def pip(self, verb: str, *words: str) -> None:
        argv = [str(UV), "pip", verb, "-q", "--python", str(self.tree.root / "bin/python3"), *words]
        subprocess.run(
            argv, check=True, env=uv_environment(), timeout=1800, capture_output=True, text=True
        )
        prepare_wheels(CACHE / "uv", self.tree.python)

    def versions(self) -> dict[str, str]:
        """Return the version of each distribution by its name."""
        argv = [str(UV), "pip", "freeze", "--python", str(self.tree.root / "bin/python3")]
        said = subprocess.run(argv, check=True, env=uv_environment(), stdout=subprocess.PIPE)
        lines = [line.split("==") for line in said.stdout.decode().splitlines() if "==" in line]
        return dict(lines)


Answer = str | None
"""What was done, in words; None where a hint is not of this kind."""


def follow_hints(case: Case, tree: WheelTree) -> dict[str, object]:
    """Follow the first hint, check again, and so on; returns the steps and how it ended."""
    steps: list[list[str]] = []
    row: dict[str, object] = {"steps": steps}
    with copy_tree(case, tree) as patient:
        for _ in range(MOST_STEPS):
            report = check_tree(patient.case, patient.tree)
            failed = [one for one in report.findings if one.outcome == "failed"]
            if not steps:
                row["recipe"] = {one.check: one.reason for one in failed}
                row["recipe_hint"] = "\n".join(one.hint or "" for one in failed)
            if not failed:
                return {**row, "end": "mended" if _is_proved(patient) else "passes, sick"}
            first = failed[0]
            try:
                done = _follow(patient, first)
            except subprocess.CalledProcessError as error:
                done = f"cannot: {str(error.stderr)[-300:]}"
            steps.append([first.check, first.reason[:300], first.hint or "", done])
            if done.startswith(("cannot", "elsewhere", "no way")):
                return {**row, "end": done.split(":")[0]}
    return {**row, "end": "in a circle"}


def _is_proved(patient: Patient) -> bool:
    """Tell whether the framework itself no longer shows the fault."""
    case = patient.case
    code, said = run_python(patient.tree, case.proof, driver=case.driver)
    if "libcuda.so.1: cannot open" in said:
        # a newer release is linked with the driver, which no image holds
        code, said = run_python(patient.tree, case.proof, driver=True)
    fine = case.fine if case.mended else MENDS.get(case.name, (None, ""))[1]
    if fine and re.search(fine, said):
        return True
    return code == 0 or re.search(case.says, said) is None


@contextmanager
def copy_tree(case: Case, tree: WheelTree) -> Iterator[Patient]:
    """Copy a tree by hard links: uv writes new files, and never into old ones."""
    root = tree.root.with_name(f"{tree.root.name}-followed")
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["cp", "-al", str(tree.root), str(root)], check=True)
    copy = WheelTree(root, python=tree.python, version=tree.version)
    for name, value in case.tree.environment.items():
        copy.env[name] = value.format(site=copy.site, tree=root)
    try:
        yield Patient(case, copy)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _follow(patient: Patient, finding: Finding) -> str:
    """Carry a finding's hint out, line by line."""
    done: list[str] = []
    for line in (finding.hint or "").splitlines():
        for kind in KINDS:
            answer = kind(patient, finding, line)
            if answer:
                done.append(answer)
                break
    return "; ".join(done) or "no way"


def _set_path(patient: Patient, _: Finding, hint: str) -> Answer:
    said = re.search(r'LD_LIBRARY_PATH = "([^"]+)"', hint)
    if said:
        patient.tree.env["LD_LIBRARY_PATH"] = said[1]
        return "LD_LIBRARY_PATH set"
    return None


def _clear_path(patient: Patient, _: Finding, hint: str) -> Answer:
    said = re.search(r"take (/\S+) out of (LD_LIBRARY_PATH|PYTHONPATH)", hint)
    if not said:
        return None
    folders = patient.tree.env.get(said[2], "").split(":")
    patient.tree.env[said[2]] = ":".join(one for one in folders if one != said[1])
    return f"{said[1]} out of {said[2]}"


def _unset(patient: Patient, finding: Finding, hint: str) -> Answer:
    if not re.search(
        r"environment$|out of XLA_FLAGS|take \w+ away$|out of the .*environment", hint
    ):
        return None
    gone = [
        name for name in patient.case.tree.environment if name in f"{finding.reason} {finding.hint}"
    ]
    for name in gone:
        patient.tree.env.pop(name, None)
    return f"unset {', '.join(gone)}" if gone else None


def _set_variable(patient: Patient, _: Finding, hint: str) -> Answer:
    said = re.search(r'set ([A-Z_]+) = "([^"]*)"', hint)
    if said:
        patient.tree.env[said[1]] = said[2]
        return f"{said[1]}={said[2]}"
    return None


def _split(patient: Patient, _: Finding, hint: str) -> Answer:
    """Make the image of the first framework alone: the second leaves, the first is asked for again."""
    if "one image for each" not in hint:
        return None
    versions, (kept, *others) = patient.versions(), patient.case.direct
    gone = [
        name
        for name in versions
        if name in others or name.startswith(("nvidia-", "triton", *(f"{one}-" for one in others)))
    ]
    patient.pip("uninstall", *gone)
    patient.pip("install", f"{kept}=={versions[kept]}", "--reinstall")
    patient.case = replace(patient.case, direct=(kept,), proof=f"import {kept}", says="Error")
    return f"{kept} alone"


def _keep_one(patient: Patient, finding: Finding, hint: str) -> Answer:
    if not re.search(r"keep one of them|one of them only", hint):
        return None
    versions = patient.versions()
    text = f"{finding.reason} {hint}"
    rivals = [
        name for name in versions if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
    ]
    asked = hint.partition("keep one of them: ")[2] or hint.partition("usually the one")[2]
    kept = next((name for name in rivals if name in asked), None) or next(
        (name for name in rivals if name in patient.case.direct), rivals[0]
    )
    if not asked and kept not in patient.case.direct:
        # what another package asks for is kept: the one that came in addition leaves
        kept = rivals[0]
    gone = [name for name in rivals if name != kept]
    patient.pip("uninstall", *gone)
    patient.pip("install", "--reinstall", "--no-deps", f"{kept}=={versions[kept]}")
    return f"{kept} kept, {', '.join(gone)} out"


def _install(patient: Patient, _: Finding, hint: str) -> Answer:
    """Add the requirement that a hint names; one that was named before is resolved anew, as a new lock does it."""
    asked = re.search(r'add "([^"]+)" to (?:\[python\] dependencies|the dependencies)', hint)
    named = asked or re.search(
        r'\b(?:add|put|take|with|ask for) "?((?<=")[^"\s]+|[a-z][\w-]*\[[\w-]+\])', hint
    )
    if named is None or (asked is None and "[system] packages" in hint):
        return None
    wish, versions = named[1], patient.versions()
    if wish in patient.asked and ELSEWHERE.search(hint):
        return None
    bare = re.split(r"[\[<>=!~]", wish)[0]
    # a new lock keeps the framework, and may move the rest
    kept = (
        f"=={versions[bare]}"
        if "[" in wish and bare in FRAMEWORKS and bare in versions and ">" not in wish
        else ""
    )
    options = ["-U"] if wish in patient.asked else []
    options += ["--reinstall"] if "another index" in hint else []
    patient.asked.add(wish)
    patient.pip("install", *options, f"{wish}{kept}")
    direct = dict.fromkeys((*patient.case.direct, bare))
    patient.case = replace(patient.case, direct=tuple(direct))
    return f"installed {' '.join((*options, wish + kept))}"


def _newest_of_both(patient: Patient, _: Finding, hint: str) -> Answer:
    both = re.search(r'put "([^"]+)" and "([^"]+)" without bounds', hint)
    if both is None:
        return None
    versions = patient.versions()
    pins = [f"{name}=={versions[name]}" for name in FRAMEWORKS if name in versions]
    patient.pip("install", "-U", both[1], both[2], *pins)
    return f"newest {both[1]} and {both[2]} with {' '.join(pins)}"


def _take_out(patient: Patient, _: Finding, hint: str) -> Answer:
    said = re.match(r"take ([\w.-]+) out\b", hint)
    if said:
        patient.pip("uninstall", said[1])
        case = patient.case
        direct = tuple(name for name in case.direct if name != said[1])
        if said[1].replace("-", "_") in case.proof:
            # what is left has to work without it
            case = replace(case, proof="import " + ", ".join(direct), says="Error")
        patient.case = replace(case, direct=direct)
        return f"{said[1]} out"
    return None


def _rebuild(patient: Patient, finding: Finding, hint: str) -> Answer:
    if not re.search(r"envbuild make|take the wheel for Python", hint):
        return None
    versions = patient.versions()
    named = finding.evidence.get("distributions") or finding.evidence.get("missing") or {}
    names = [name for name in named if name in versions]
    if not names:
        names = [name for name in patient.case.direct if name in versions]
    patient.pip(
        "install", "--reinstall", "--no-deps", *[f"{one}=={versions[one]}" for one in names]
    )
    return f"made again: {', '.join(names)}"


def _other_release(patient: Patient, finding: Finding, hint: str) -> Answer:
    """Take another release of the package that the finding names, under the same framework."""
    if not re.search(r"release|newer", hint) or ELSEWHERE.search(hint):
        return None
    versions = patient.versions()
    text = f"{hint} {finding.reason}".lower().replace("_", "-")
    others = [
        name for name in patient.case.direct[::-1] if name.lower() in text and name in versions
    ]
    if not others:
        return None
    name, kept = others[0], [one for one in patient.case.direct if one != others[0]]
    pins = [f"{one}=={versions[one]}" for one in kept if one in versions]
    patient.pip("install", "-U", name, *pins)
    return f"newest {name} with {' '.join(pins)}: {patient.versions()[name]}"


def _change_line(patient: Patient, _: Finding, hint: str) -> Answer:
    if "change that line" not in hint:
        return None
    patient.case = replace(
        patient.case, project="import sys\n", beside={}, proof="print('changed')", says="^$"
    )
    return "the project's line changed"


def _add_compiler(patient: Patient, _: Finding, hint: str) -> Answer:
    named = re.search(r"\[system\] packages = \[(.*)\]", hint)
    here = importlib.util.find_spec("sysconfig") is not None and shutil.which("gcc")
    if not named:
        packages = re.search(r'add "([\w.+-]+)" to \[system\] packages', hint)
        return f"elsewhere: {packages[1]} is not on this machine" if packages else None
    if not here:
        return None
    patient.tree.env["PATH"] = "/usr/bin:/bin"
    return f"{named[1]} of this machine"


def _elsewhere(_: Patient, __: Finding, hint: str) -> Answer:
    return f"elsewhere: {hint}" if ELSEWHERE.search(hint) else None


KINDS: tuple[Callable[[Patient, Finding, str], Answer], ...] = (
    _set_path,
    _clear_path,
    _set_variable,
    _unset,
    _split,
    _keep_one,
    _newest_of_both,
    _install,
    _take_out,
    _rebuild,
    _change_line,
    _add_compiler,
    _other_release,
    _elsewhere,
)
