"""The same questions to every backend, on a small synthetic index: the same answers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import tomli

from envbuild.errors import HostError, NoSolutionError
from envbuild.progress import SilentStage
from envbuild.resolve.backends import RESOLVERS
from envbuild.resolve.model import Request, Resolution
from envbuild.settings import Settings
from tests.project import Project
from tests.resolve.conftest import SyntheticIndex, base, versions
from tests.support import needs, quiet_context

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
Ask = Callable[..., Resolution]


@pytest.fixture(params=sorted(RESOLVERS))
def ask(request: pytest.FixtureRequest, settings: Settings) -> Ask:
    if request.param == "pip-tools" and importlib.util.find_spec("piptools") is None:
        pytest.skip("pip-tools is not installed here: pip install pip-tools")

    def question(
        *requirements: str,
        pins: tuple[str, ...] = (),
        requires: object = None,
        addresses: Mapping[str, str] | None = None,
        **other: object,
    ) -> Resolution:
        here = replace(settings, indexes={**settings.indexes, **(addresses or {})})
        resolver = RESOLVERS[request.param](quiet_context(here), SilentStage())
        facts = base(*pins, requires=requires, python=f"{HERE}.5")
        return resolver(Request(facts=facts, requirements=requirements, **other))  # type: ignore[arg-type]

    return question


def test_newest_with_its_requirements(ask: Ask, index: SyntheticIndex) -> None:
    index.wheel("app", "1.0", "1.2", requires=("lib>=2",))
    index.wheel("lib", "1.0", "2.0", "2.1")
    answer = ask("app")
    assert versions(answer) == {"app": "1.2", "lib": "2.1"}
    assert {found.name: found.via for found in answer.packages} == {
        "app": ("(direct)",),
        "lib": ("app",),
    }
    assert all(found.file.sha256 and found.file.size for found in answer.packages)


def test_the_framework_of_the_base_survives(ask: Ask, index: SyntheticIndex) -> None:
    """The base's torch is a vendor's pre-release; the index has newer ones, and none is taken."""
    index.wheel("torch", "2.3.0", "2.4.0", "2.6.0")
    index.wheel("accelerate", "0.9", requires=("torch>=2.3",))
    answer = ask("accelerate", "torch>=2.4", pins=("torch==2.4.0a0+nv24.6",))
    assert versions(answer) == {"accelerate": "0.9"}
    assert [(one.name, one.version) for one in answer.provided] == [("torch", "2.4.0a0+nv24.6")]


def test_an_alias_is_satisfied_by_what_the_base_holds(ask: Ask, index: SyntheticIndex) -> None:
    index.wheel("tensorflow", "2.1.4")
    index.wheel("keras-bert", "0.80", requires=("tensorflow>=2.0,<2.2",))
    answer = ask("keras-bert", pins=("tensorflow-gpu==2.1.0",))
    assert versions(answer) == {"keras-bert": "0.80"}
    assert ("tensorflow", "tensorflow-gpu") in [(one.name, one.alias_of) for one in answer.provided]


def test_a_framework_that_does_not_fit_is_a_conflict_in_the_users_words(
    ask: Ask, index: SyntheticIndex
) -> None:
    index.wheel("torch", "2.6.0")
    index.wheel("vllm", "0.8.5", requires=("torch==2.6.0",))
    with pytest.raises(NoSolutionError) as caught:
        ask("vllm", pins=("torch==2.4.0",))
    assert "vllm needs torch==2.6.0; the base holds torch 2.4.0" in caught.value.what


def test_the_bases_versions_are_preferred_and_moves_are_told(
    ask: Ask, index: SyntheticIndex
) -> None:
    index.wheel("numpy", "1.24.4", "1.26.0")
    index.wheel("pillow", "9.0", "10.0")
    index.wheel("app", "1.0", requires=("numpy>=1.20", "pillow>=10"))
    answer = ask("app", pins=("numpy==1.24.4", "pillow==9.0"))
    assert versions(answer) == {"app": "1.0", "pillow": "10.0"}
    assert [(one.name, one.before, one.after) for one in answer.moved] == [
        ("pillow", "9.0", "10.0")
    ]


def test_an_old_locks_versions_are_kept(ask: Ask, index: SyntheticIndex) -> None:
    index.wheel("app", "1.0", requires=("lib",))
    index.wheel("lib", "1.0", "2.0")
    assert versions(ask("app", keep=(("lib", "1.0"),)))["lib"] == "1.0"
    assert versions(ask("app", keep=(("lib", "1.0"),), upgrade=("lib",)))["lib"] == "2.0"


def test_bounds_are_no_requirements(ask: Ask, index: SyntheticIndex) -> None:
    index.wheel("app", "1.0", requires=("lib",))
    index.wheel("lib", "1.0", "2.0")
    index.wheel("other", "1.0")
    assert versions(ask("app", bounds=("lib<=1.0", "other<1"))) == {"app": "1.0", "lib": "1.0"}


def test_extras_and_markers(ask: Ask, index: SyntheticIndex) -> None:
    index.wheel("app", "1.0", requires=("lib; extra == 'fast'", "old; python_version < '3'"))
    index.wheel("lib", "1.0")
    assert versions(ask("app[fast]", "lib; sys_platform == 'win32'")) == {
        "app": "1.0",
        "lib": "1.0",
    }


def test_a_name_that_no_index_has(ask: Ask, index: SyntheticIndex) -> None:
    with pytest.raises(NoSolutionError, match="nobody-has-this"):
        ask("nobody-has-this")


def test_a_date_hides_what_came_later(ask: Ask, index: SyntheticIndex) -> None:
    index.wheel("app", "1.0", requires=("lib",), day="2023-01-01")
    index.wheel("lib", "1.0", day="2023-01-20")
    index.wheel("lib", "2.0", day="2023-06-10")
    index.wheel("app", "2.0", requires=("lib>=2",), day="2023-06-11")
    assert versions(ask("app", as_of="2023-06-10")) == {"app": "1.0", "lib": "2.0"}
    assert versions(ask("app", as_of="2023-06-09")) == {"app": "1.0", "lib": "1.0"}
    assert versions(ask("app", as_of="2023-06-11")) == {"app": "2.0", "lib": "2.0"}
    with pytest.raises(NoSolutionError, match="2022-12-31"):
        ask("app", as_of="2022-12-31")


def test_a_date_moves_on_to_the_first_release_of_what_is_asked_for(
    ask: Ask, index: SyntheticIndex
) -> None:
    index.wheel("app", "1.0", day="2023-01-01")
    answer = ask("app", as_of="2022-12-01", latest="2024-01-01")
    assert versions(answer) == {"app": "1.0"}
    assert "resolved as of 2023-04-01, not 2022-12-01" in answer.notes[0]


def test_a_release_for_another_python_is_passed_over(ask: Ask, index: SyntheticIndex) -> None:
    index.wheel("app", "1.0")
    index.wheel("app", "2.0", python=">=3.99")
    assert versions(ask("app")) == {"app": "1.0"}


def test_the_first_index_that_has_a_project_is_the_only_one_asked(
    ask: Ask, index: SyntheticIndex, tmp_path: Path
) -> None:
    """Anybody could put a higher version of the lab's package on the public index."""
    lab = SyntheticIndex(tmp_path / "lab")
    lab.wheel("tool", "1.0", requires=("lib",))
    index.wheel("tool", "9.9")
    index.wheel("lib", "1.0")
    answer = ask("tool", indexes=("lab",), addresses={"lab": lab.url})
    assert versions(answer) == {"tool": "1.0", "lib": "1.0"}
    assert {found.name: found.file.index for found in answer.packages} == {
        "tool": "lab",
        "lib": None,
    }


RUNS = "import os; open(os.environ['HOME'] + '/ran', 'w')\n"


def test_what_an_sdist_requires_is_read_and_nothing_of_it_runs(
    ask: Ask, index: SyntheticIndex, tmp_path: Path
) -> None:
    index.wheel("lib", "1.0")
    files = {
        "backend.py": RUNS,
        "setup.py": f"{RUNS}import setuptools\nsetuptools.setup(install_requires=['lib'])\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    }
    index.sdist("old", "1.0", files=files)
    assert versions(ask("old")) == {"lib": "1.0", "old": "1.0"}
    index.wheel("old", "1.0", requires=("lib",))
    answer = ask("old", from_source=("old",))
    assert {found.name: found.is_sdist for found in answer.packages} == {"lib": False, "old": True}
    assert not list(tmp_path.rglob("ran"))


def test_pip_tools_needs_the_bases_python(settings: Settings, index: SyntheticIndex) -> None:
    index.wheel("app", "1.0")
    resolver = RESOLVERS["pip-tools"](quiet_context(settings), SilentStage())
    with pytest.raises(
        HostError, match=r"there is no Python 3\.4 here, and the base cannot run|neither apptainer"
    ):
        resolver(Request(facts=base(python="3.4.9"), requirements=("app",)))


@pytest.mark.live
@needs("apptainer", "mmdebstrap")
def test_pip_tools_runs_in_the_base_where_the_host_has_no_such_python(tmp_path: Path) -> None:
    """Debian 11 has Python 3.9, which this machine need not have; the date is of before click 8.1.4."""
    project = Project(tmp_path / "p")
    project.write("recipes/old.toml", RECIPE)
    project.succeed("lock", "old", "--resolver", "pip-tools", timeout=600)
    lock = tomli.loads((project.folder / "lockfiles/old.lock").read_text())
    chosen = {one["name"]: one["version"] for one in lock["python"] if one["group"] == "project"}
    assert chosen == {"click": "8.1.3", "flask": "2.2.3", "importlib-metadata": "6.0.0"} | chosen
    assert lock["base"]["python"].startswith("3.9")


RECIPE = """
[recipe]
name = "old"

[base]
bootstrap = "debian:bullseye"

[python]
dependencies = ["click<9", "flask<3"]
as-of = "2023-02-20"
"""
