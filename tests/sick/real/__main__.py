"""Try all trees of real wheels and print the figures: python -m tests.sick.real [--stack NAME] [--rows FILE] [--minutes N] [WORD ...].

A toolkit of the machine's own is seen by Numba and others: hide it, as in
unshare -m sh -c 'mount -t tmpfs none /usr/local/cuda-13.0; python -m tests.sick.real'.

Each tree is made, proved by running the framework, then checked with its recipe and alone.  One line a tree goes to
standard output (JSON) and into FILE, the figures to standard error.  Trees that stand in FILE are not tried again: take a
line out to try its tree once more.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from envbuild.check import plan
from envbuild.check.model import Report
from envbuild.errors import EnvbuildError
from tests.sick.real.blind_cases import BLIND_HEALTHY, BLIND_SICK
from tests.sick.real.cases import HEALTHY, SICK, Case
from tests.sick.real.fifth_cases import FIFTH_HEALTHY, FIFTH_SICK
from tests.sick.real.first_cases import FIRST_HEALTHY, FIRST_SICK
from tests.sick.real.follow import follow_hints
from tests.sick.real.fourth_cases import FOURTH_HEALTHY, FOURTH_SICK
from tests.sick.real.judge import check_tree
from tests.sick.real.mends import MENDS
from tests.sick.real.more_cases import MORE_HEALTHY, MORE_SICK
from tests.sick.real.round_cases import ROUND_HEALTHY, ROUND_SICK
from tests.sick.real.sight_cases import ORDER_HEALTHY, ORDER_SICK, SIGHT_HEALTHY, SIGHT_SICK
from tests.sick.real.sixth_cases import SIXTH_HEALTHY, SIXTH_SICK
from tests.sick.real.third_cases import THIRD_HEALTHY, THIRD_SICK
from tests.sick.real.thread_cases import THREAD_HEALTHY, THREAD_SICK
from tests.sick.real.toml_cases import READ_HEALTHY, READ_SICK
from tests.sick.real.trees import (
    WheelTree,
    loader_cache,
    make_room,
    make_tree,
    remove_tree,
    run_python,
)
from tests.sick.real.use_cases import USE_HEALTHY, USE_SICK
from tests.sick.real.wide_cases import WIDE_HEALTHY, WIDE_SICK

EVERY = (
    *(*SICK, *MORE_SICK, *THREAD_SICK),
    *(*SIGHT_SICK, *ORDER_SICK, *ROUND_SICK, *BLIND_SICK, *WIDE_SICK, *FIRST_SICK),
    *(*HEALTHY, *MORE_HEALTHY, *THREAD_HEALTHY, *SIGHT_HEALTHY, *ORDER_HEALTHY),
    *(*ROUND_HEALTHY, *BLIND_HEALTHY, *WIDE_HEALTHY, *FIRST_HEALTHY),
    *(*USE_SICK, *USE_HEALTHY, *THIRD_SICK, *THIRD_HEALTHY, *FOURTH_SICK, *FOURTH_HEALTHY),
    *(*FIFTH_SICK, *FIFTH_HEALTHY, *SIXTH_SICK, *SIXTH_HEALTHY),
    *(*READ_SICK, *READ_HEALTHY),
)

NEW_SICK = (
    *(*SIGHT_SICK, *ORDER_SICK, *ROUND_SICK, *BLIND_SICK, *WIDE_SICK, *FIRST_SICK),
    *(*USE_SICK, *THIRD_SICK, *FOURTH_SICK, *FIFTH_SICK, *SIXTH_SICK, *READ_SICK),
)
"""Trees that are proved and followed in one go."""
NEW_HEALTHY = (
    *(*SIGHT_HEALTHY, *ORDER_HEALTHY, *ROUND_HEALTHY, *BLIND_HEALTHY, *WIDE_HEALTHY),
    *(*FIRST_HEALTHY, *USE_HEALTHY, *THIRD_HEALTHY, *FOURTH_HEALTHY),
    *(*FIFTH_HEALTHY, *SIXTH_HEALTHY, *READ_HEALTHY),
)


def interpreter(version: str = "3.11") -> Path:
    """Return the newest CPython of a version that pyenv has."""
    found = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python3"))
    if not found:
        raise SystemExit(f"there is no CPython {version} below ~/.pyenv/versions")
    return found[-1]


def failures(report: Report) -> dict[str, str]:
    return {one.check: one.reason for one in report.findings if one.outcome == "failed"}


def hints(report: Report) -> str:
    return "\n".join(one.hint or "" for one in report.findings if one.outcome == "failed")


def try_follow(case: Case) -> dict[str, object]:
    """Make one sick tree, then do what the hints say until check passes; trees never tried are proved before."""
    tree = make_tree(case.tree, interpreter(case.tree.python))
    row: dict[str, object] = {"name": case.name, "stack": case.stack, "sick": True}
    if case in NEW_SICK:
        _, said = run_python(tree, case.proof, driver=case.driver)
        row["proved"] = re.search(case.says, said) is not None
        row["said"] = said[-300:]
    row |= follow_hints(case, tree)
    seen, check, words = row["recipe"], *(case.found or ("", ""))
    assert isinstance(seen, dict)
    row["recipe_ok"] = any(
        re.fullmatch(check, name) and re.search(words, why) for name, why in seen.items()
    )
    row["hint_ok"] = re.search(case.hint, str(row["recipe_hint"])) is not None
    return row


def try_case(case: Case, *, briefly: bool = False) -> dict[str, object]:
    """Make, prove and check one tree; ``briefly`` with its recipe only, and no hint is followed."""
    tree = make_tree(case.tree, interpreter(case.tree.python))
    code, said = run_python(tree, case.proof, driver=case.driver)
    proved = re.search(case.says, said) is not None
    row: dict[str, object] = {
        "name": case.name,
        "stack": case.stack,
        "sick": case.found is not None,
        "proved": proved,
    }
    if not proved:
        row["said"] = [code, said[-600:]]
    for mode in ("recipe",) if case.project or briefly else ("recipe", "alone"):
        report = check_tree(case, tree, alone=mode == "alone")
        seen = failures(report)
        row[mode] = seen
        if case.found is None:
            row[f"{mode}_ok"] = not seen
            continue
        check, words = case.found
        row[f"{mode}_ok"] = any(
            re.fullmatch(check, name) and re.search(words, why) for name, why in seen.items()
        )
        row[f"{mode}_hint"] = hints(report)
        if mode == "recipe":
            row["hint_ok"] = re.search(case.hint, hints(report)) is not None
    if not briefly and (case.mended is not None or case.name in MENDS):
        row["mends"] = mends(case)
    return row


def mends(case: Case) -> bool:
    """Tell whether the tree after the hint is proved healthy, and passes."""
    recipe, words = (case.mended, case.fine) if case.mended else MENDS[case.name]
    tree: WheelTree = make_tree(recipe, interpreter(recipe.python))
    code, said = run_python(tree, case.proof, driver=case.driver)
    fine = re.search(words, said) is not None if words else code == 0
    return fine and not failures(check_tree(case, tree))


def main(words: list[str]) -> None:
    plan.HOMES, plan.TOOLKITS = (), ()  # type: ignore[assignment]
    parser = argparse.ArgumentParser(prog="python -m tests.sick.real")
    parser.add_argument("--stack", action="append", help="trees of this stack only")
    parser.add_argument("--rows", type=Path, help="file that the results are kept in")
    parser.add_argument("--minutes", type=float, help="begin no further tree after this time")
    parser.add_argument("--briefly", action="store_true", help="with the recipe only")
    parser.add_argument(
        "--follow", action="store_true", help="do what the hints say, and check again"
    )
    parser.add_argument("word", nargs="*", help="trees whose name has one of these words")
    asked = parser.parse_args(words)
    kept = asked.rows.read_text().splitlines() if asked.rows and asked.rows.exists() else []
    rows = [json.loads(line) for line in kept]
    known = {row["name"] for row in rows}
    started = time.monotonic()
    # a tree whose mended twin is in the table was followed by hand before: the others come first
    for case in sorted(EVERY, key=lambda one: (one.stack, bool(one.mended or one.name in MENDS))):
        if (
            case.name in known
            or (asked.stack and case.stack not in asked.stack)
            or (asked.word and not any(word in case.name for word in asked.word))
            or (asked.follow and case.found is None and case not in NEW_HEALTHY)
        ):
            continue
        if asked.minutes and time.monotonic() - started > 60 * asked.minutes:
            break
        row = try_safely(case, briefly=asked.briefly, follow=asked.follow)
        rows.append(row)
        print(json.dumps(row), flush=True)
        if asked.rows:
            with asked.rows.open("a") as file:
                file.write(f"{json.dumps(row)}\n")
        for one in [case.tree, case.mended]:
            if one:
                remove_tree(one, interpreter(one.python))
        make_room()
    print(figures(rows), file=sys.stderr)


def try_safely(case: Case, *, briefly: bool, follow: bool) -> dict[str, object]:
    """Try a tree; one that cannot be made is told as such."""
    started = time.monotonic()
    try:
        with loader_cache(case.tree, interpreter(case.tree.python)):
            row = (
                try_follow(case)
                if follow and case.found
                else try_case(case, briefly=briefly or follow)
            )
    except (OSError, ValueError, subprocess.SubprocessError, EnvbuildError) as error:
        row = {
            "name": case.name,
            "stack": case.stack,
            "sick": case.found is not None,
            "error": repr(error)[:600],
        }
    return {**row, "seconds": round(time.monotonic() - started)}


def figures(rows: list[dict[str, object]]) -> str:
    proved = [row for row in rows if row.get("proved")]
    sick = [row for row in proved if row["sick"]]
    healthy = [row for row in proved if not row["sick"]]
    mended = [row for row in sick if "mends" in row]
    ends = [row.get("end") for row in rows if "end" in row]
    if ends:
        counted = ", ".join(f"{end} {ends.count(end)}" for end in sorted(set(ends), key=str))
        return f"{len(ends)} trees whose hints were followed: {counted}; found {count(sick, 'recipe_ok')}"
    return (
        f"{len(rows)} trees, {len(proved)} proved; sick {len(sick)}: found with recipe {count(sick, 'recipe_ok')}, alone "
        f"{count(sick, 'alone_ok')}, right hint {count(sick, 'hint_ok')}, mended {count(mended, 'mends')}; "
        f"healthy {len(healthy)}: not accused with recipe {count(healthy, 'recipe_ok')}, alone {count(healthy, 'alone_ok')}"
    )


def count(rows: list[dict[str, object]], key: str) -> str:
    asked = [row for row in rows if key in row]
    return f"{sum(bool(row[key]) for row in asked)} of {len(asked)}"


if __name__ == "__main__":
    main(sys.argv[1:])
