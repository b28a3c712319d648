"""Ask check about a tree of real wheels, as a user would: by a recipe, with the project beside, or the image alone."""

from __future__ import annotations

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
        project.mkdir(exist_ok=True)
        (project / "train.py").write_text(case.project)
    recipe = None if alone else make_recipe(*case.direct)
    return tree.check(recipe, project=None if alone else project, level=level)
