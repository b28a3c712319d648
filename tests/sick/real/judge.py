"""Ask check about a tree of real wheels, as a user would: by a recipe, with the project beside, or the image alone."""

from __future__ import annotations

import shutil

from envbuild.check.model import Level, Report
from tests.check.tree import make_recipe
from tests.sick.real.cases import Case
from tests.sick.real.trees import WheelTree


def check_tree(
    case: Case, tree: WheelTree, *, alone: bool = False, level: Level = "quick"
) -> Report:
    """Check a tree by its case's recipe; ``alone`` as an image of which nothing is known."""
    project = None
    if case.project:
        project = tree.root.with_name(f"{tree.root.name}-project")
        shutil.rmtree(project, ignore_errors=True)
        for name, text in {"train.py": case.project, **case.beside}.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text)
    recipe = None if alone else make_recipe(*case.direct)
    return tree.check(recipe, project=None if alone else project, level=level)
