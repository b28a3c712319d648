"""Run ``envbuild init`` on the public projects of init.toml and judge each draft by what was expected of it.

    python benchmarks/init.py FOLDER [--offline] [--update] [--only TEXT]

FOLDER holds the files of each project, called OWNER+NAME, at the commit of its row.  ``--offline`` asks no package
index.  Prints a line for each project and the sums; ``--update`` writes what was found into init.toml.

A row's expectations were written from the project's files and README, before any draft was looked at.  ``base`` is the
framework and the releases that a careful person would take ("none" for a project without one), ``image`` an image that
will do as well, ``python`` the Python versions, ``names`` the direct dependencies without the framework, ``may`` names
that do no harm, ``never`` names that would be another project's package, or this project itself.  All opencv's count as
one.  The rows of the second and third ``set`` were added after the code had been mended for the first ones, and tried
once before it was mended for them: that first trial is what an unknown project gets.

good: no name is missing or too many, and the base fits.  partly: at most a quarter of the names is missing or too many,
or only the base does not fit.  wrong: more than that, a name of ``never``, another framework, or a secret.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import tomli
from packaging.requirements import Requirement as Pep508
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envbuild.base.catalogue import catalogue_entries
from envbuild.base.suggest import framework_name
from envbuild.cli.context import make_context
from envbuild.cli.init import choose_index
from envbuild.project.draft.draft import draft_recipe
from envbuild.project.gather import gather_findings
from envbuild.project.model import RecipeDraft
from envbuild.recipe.model import BaseSection
from envbuild.recipe.write import write_recipe
from envbuild.toml import quote, write_value

TABLE = Path(__file__).with_suffix(".toml")
KEYS = ("repository", "commit", "set", "base", "image", "python", "names", "may", "never",
        "verdict", "found", "missed", "extra", "seconds", "note")  # fmt: skip
SECRET = re.compile(
    r"(sk-|ghp_|hf_|AKIA)[A-Za-z0-9]{16,}|://[^/\s\"]+@|LD_PRELOAD *=|[A-Z_]*(TOKEN|SECRET|PASSW|API_KEY)[A-Z_]* *="
)


def names(made: RecipeDraft) -> set[str]:
    """Return the canonicalize_name names of a draft's dependencies; every opencv is "opencv"."""
    found = {canonicalize_name(Pep508(line).name) for line in made.recipe.python.dependencies}
    return {"opencv" if name.startswith("opencv-") else name for name in found}


def held(base: BaseSection) -> tuple[str | None, str, str]:
    """Return the framework that a base holds, its version and its Python; empty where nobody knows."""
    named = framework_name(base.framework) if base.framework else None
    for entry in catalogue_entries():
        if base.image is None and entry.reference == base.bootstrap and named == entry.framework:
            asked = Pep508(base.framework or "x").specifier
            version = f"{entry.version}.0"
            if any(asked.contains(f"{entry.version}.{patch}") for patch in range(60)):
                exact = next((one.version for one in asked if "*" not in one.version), version)
                return named, exact, entry.python or ""
        elif base.image == entry.reference:
            return entry.framework, entry.version or "", entry.python or ""
    return named, "", ""


def fits(row: dict[str, Any], base: BaseSection) -> bool:
    """Whether a base is one that the row expects."""
    if base.image is not None and base.image == row.get("image"):
        return True
    wanted = Pep508(row["base"])
    framework, version, python = held(base)
    if wanted.name == "none":
        return base.image is None and framework is None
    minor = re.match(r"\d+\.\d+", python)
    good = (
        framework == framework_name(wanted.name)
        and bool(version)
        and wanted.specifier.contains(version)
    )
    pythons = SpecifierSet(row.get("python", ""))
    return good and (not row.get("python") or bool(minor and pythons.contains(f"{minor[0]}.9")))


def judge(row: dict[str, Any], made: RecipeDraft) -> dict[str, Any]:
    """Compare one draft with its row."""
    found, base = names(made), made.recipe.base
    text = write_recipe(made.recipe, head=made.head, beside=made.beside, below=made.below)
    wanted = set(row.get("names", []))
    # the address of a repository names that one, whoever has the name on the index
    addresses = [line for line in made.recipe.python.dependencies if " @ " in line]
    never = set(row.get("never", [])) - {canonicalize_name(Pep508(one).name) for one in addresses}
    missed = sorted(wanted - found)
    # an image that nothing is known of may hold the framework or not: then the draft asks for it
    framework = {framework_name(row["base"])} if base.image else set()
    extra = sorted(found - wanted - set(row.get("may", [])) - framework)
    framework, _, _ = held(base)
    asked = framework_name(row["base"])
    lost = framework not in (None, asked) or (
        asked is not None and framework is None and base.image is None
    )
    wrong = bool(never & found) or bool(SECRET.search(text)) or lost
    share = len(missed) + len(extra)
    if wrong or share > max(1, len(wanted) / 4):
        verdict = "wrong"
    else:
        verdict = "partly" if share or not fits(row, base) else "good"
    shown = base.image or f"{base.bootstrap}, {base.framework or 'no framework'}"
    return {**row, "verdict": verdict, "found": shown, "missed": missed, "extra": extra}


def drafted(folder: Path, *, offline: bool) -> tuple[RecipeDraft, float]:
    """Draft one project; also return the seconds it took."""
    context = make_context(verbose=0, quiet=True, color="never")
    started = time.monotonic()
    made = draft_recipe(gather_findings(folder), choose_index(context, offline=offline))
    return made, time.monotonic() - started


def write(rows: list[dict[str, Any]]) -> None:
    """Write the rows back, below the comment at the top."""
    head = TABLE.read_text("utf-8").partition("\n[[project]]")[0]
    blocks = [
        "\n[[project]]\n" + "".join(_line(key, row[key]) for key in KEYS if row.get(key))
        for row in rows
    ]
    TABLE.write_text(head + "".join(blocks), "utf-8")


def _line(key: str, value: Any) -> str:
    return f"{key} = {quote(value) if isinstance(value, str) else write_value(value)}\n"


def main() -> None:
    """Judge all projects."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    rows = []
    for row in tomli.loads(TABLE.read_text("utf-8"))["project"]:
        folder = given.folder / row["repository"].replace("/", "+")
        if given.only not in row["repository"] or not folder.is_dir():
            rows.append(row)
            continue
        made, seconds = drafted(folder, offline=given.offline)
        rows.append(judge(row, made) | {"seconds": f"{seconds:.1f}"})
        new = rows[-1]
        print(f"{new['verdict']:<7} {new['repository']:<40} {new['seconds']:>5} s  {new['found']}")
        for key in ("missed", "extra"):
            if new[key]:
                print(f"          {key}: {' '.join(new[key])}")
    verdicts = Counter(row.get("verdict", "not run") for row in rows)
    right = sum(len(row.get("names", [])) - len(row.get("missed", [])) for row in rows)
    missed = sum(len(row.get("missed", [])) for row in rows)
    extra = sum(len(row.get("extra", [])) for row in rows)
    print(
        f"{len(rows)} projects: {dict(verdicts)}; names: {right} right, {missed} missed, {extra} too many"
    )
    if given.update:
        write(rows)


if __name__ == "__main__":
    main()
