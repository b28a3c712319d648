"""init: a name becomes a dependency only where somebody vouches for it."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement as Pep508

from envbuild.project.draft.draft import draft_recipe
from envbuild.project.draft.package_index import Offline
from envbuild.project.gather import gather_findings
from envbuild.project.model import RecipeDraft, Release, Requirement
from envbuild.project.names import conda_name, distribution_of, shared_name
from tests.init.projects import notebook, text_of, write

THERE = Release(day=None, pythons=("3.11",), exact=False)


class Registered(Offline):
    """An index where somebody has every name but ``absent``, each with a module of that name."""

    def __init__(self, *absent: str) -> None:
        self.absent = absent
        self.asked: set[str] = set()

    def look_up(
        self,
        requirements: tuple[Requirement, ...],
        wanted: frozenset[str] = frozenset(),
    ) -> tuple[Mapping[str, Release], Mapping[str, str]]:
        names = [one.name for one in requirements]
        self.asked.update(names)
        gone = Release(day=None, pythons=(), exact=False, there=False)
        modules = {name.replace("-", "_"): name for name in names if name not in self.absent}
        return {name: gone if name in self.absent else THERE for name in names}, modules


def _is_vouched_for(name: str) -> bool:
    return bool(conda_name(name) or distribution_of(name) or shared_name(name))


def _drafted(folder: Path, index: Registered) -> RecipeDraft:
    return draft_recipe(gather_findings(folder), index)


def _names(made: RecipeDraft) -> set[str]:
    return {Pep508(line).name for line in made.recipe.python.dependencies}


def _unheard_of(rng: random.Random) -> str:
    """Return a word that no table has."""
    while True:
        word = "".join(rng.choices(string.ascii_lowercase, k=rng.randrange(4, 9)))
        if not _is_vouched_for(word):
            return word


PLACES = {
    "a program": lambda one: {"train.py": f"import torch\nimport {one}\n"},
    "a part of a program's import": lambda one: {"train.py": f"from {one}.{one} import x\n"},
    "a notebook": lambda one: {"model.ipynb": notebook(f"import torch\nimport {one} as x\n")},
    "a namespace": lambda one: {"train.py": f"import google.{one}, azure.{one}, azureml.{one}\n"},
    "conda": lambda one: {"environment.yml": f"dependencies:\n  - {one}\n  - numpy\n"},
    "conda with a pin": lambda one: {"env.yml": f"dependencies:\n  - {one}=1.0\n  - numpy\n"},
    "a channel": lambda one: {"environment.yml": f"dependencies:\n  - a::{one}\n  - numpy\n"},
    "conda's command": lambda one: {
        "Dockerfile": f"FROM debian:12\nRUN conda install -y numpy {one}=1.2\n"
    },
    "pixi": lambda one: {
        "pixi.toml": f'[workspace]\nchannels = ["a"]\n[dependencies]\n{one} = "*"\nnumpy = "*"\n'
    },
    "a README's item": lambda one: {
        "README.md": f"- {one} == 1.2\n- numpy == 1.26\n",
        "train.py": f"import numpy, {one}\n",
    },
    "a module of a listed name": lambda one: {
        "requirements.txt": "torch\nnumpy\n",
        "train.py": f"import torch, {one}\n",
    },
}
"""Where a project can name what it does not list for pip, as files by the name."""


@pytest.mark.parametrize("place", PLACES)
def test_no_name_that_anybody_could_register_becomes_a_dependency(
    tmp_path: Path, place: str
) -> None:
    rng = random.Random(place)  # noqa: S311
    for number in range(20):
        word = _unheard_of(rng)
        index = Registered()
        folder = write(tmp_path / str(number), PLACES[place](word))
        made = _drafted(folder, index)
        assert not [name for name in _names(made) if word in name]
        assert not [name for name in index.asked if word in name]
        assert word in text_of(made)


def test_a_name_of_a_list_that_the_index_has_not_becomes_a_comment(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "numpy\nlab-made==1.0\nour-kit @ git+https://git.invalid/o/k@"
        + "0" * 40
        + "\n",
        "train.py": "import torch\n",
    }
    folder = write(tmp_path, files)
    made = _drafted(folder, Registered("lab-made", "our-kit"))
    assert _names(made) == {"numpy", "our-kit"}
    assert "not taken: lab-made (requirements.txt, line 2): the index has no package" in text_of(
        made
    )


def test_an_index_that_has_nothing_takes_nothing_away(tmp_path: Path) -> None:
    folder = write(tmp_path, {"requirements.txt": "numpy\nlab-made==1.0\n"})
    assert _names(_drafted(folder, Registered("numpy", "lab-made"))) == {"numpy", "lab-made"}


def test_what_conda_alone_has_becomes_a_comment(tmp_path: Path) -> None:
    lines = "".join(f"  - {name}\n" for name in ("numpy", "libmambapy", "menuinst"))
    folder = write(tmp_path, {"environment.yml": f"dependencies:\n{lines}"})
    made = _drafted(folder, Registered("libmambapy", "menuinst"))
    assert _names(made) == {"numpy"}
    assert "menuinst" in text_of(made)


def test_a_list_that_names_the_projects_own_module_means_no_package(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "numpy\nextractor==0.5\nwhisper==1.1.10\neinops\n",
        "speech/extractor.py": "import numpy\n",
        "einops.py": "import numpy\n",
        "train.py": "import torch\nfrom speech import extractor\n",
    }
    made = _drafted(write(tmp_path, files), Registered())
    # einops is in the tables: the project has a copy of it
    assert _names(made) == {"numpy", "openai-whisper", "einops"}
    assert "openai-whisper==" not in text_of(made)
    assert "not taken: extractor: a module of this project is called so" in text_of(made)


class SourceOnly(Registered):
    """An index that has of every name but ``absent`` source archives alone."""

    def look_up(
        self,
        requirements: tuple[Requirement, ...],
        wanted: frozenset[str] = frozenset(),
    ) -> tuple[Mapping[str, Release], Mapping[str, str]]:
        return super().look_up(requirements, wanted)[0], {}


def test_what_conda_has_by_the_modules_name_may_be_source_only(tmp_path: Path) -> None:
    folder = write(tmp_path, {"train.py": "import torch, pyhocon, ourlab_tools\n"})
    assert distribution_of("pyhocon") is None
    assert _names(_drafted(folder, SourceOnly())) == {"pyhocon"}
    assert _names(_drafted(folder, SourceOnly("pyhocon"))) == set()


def test_a_wheel_without_the_module_is_another_package(tmp_path: Path) -> None:
    class Another(Registered):
        """An index whose wheel of pyhocon holds a module of another name."""

        def look_up(
            self,
            requirements: tuple[Requirement, ...],
            wanted: frozenset[str] = frozenset(),
        ) -> tuple[Mapping[str, Release], Mapping[str, str]]:
            releases, _ = super().look_up(requirements, wanted)
            return releases, dict.fromkeys(("other",), "pyhocon")

    folder = write(tmp_path, {"train.py": "import torch, pyhocon\n"})
    assert _names(_drafted(folder, Another())) == set()
