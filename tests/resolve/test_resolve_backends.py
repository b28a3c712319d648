"""The same questions to every backend, on a small synthetic index: the same answers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable

import pytest

from envbuild.errors import HostError, NoSolutionError, UsageError
from envbuild.progress import Silent
from envbuild.resolve.backends import RESOLVERS
from envbuild.resolve.model import Request, Resolution
from envbuild.run import LocalRunner
from envbuild.settings import Settings
from tests.resolve.conftest import SyntheticIndex, base

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
Ask = Callable[..., Resolution]


@pytest.fixture(params=sorted(RESOLVERS))
def ask(request: pytest.FixtureRequest, settings: Settings) -> Ask:
    if request.param == "pip-tools" and importlib.util.find_spec("piptools") is None:
        pytest.skip("pip-tools is not installed here: pip install pip-tools")
    resolver = RESOLVERS[request.param](settings, LocalRunner(), Silent())

    def question(
        *requirements: str, pins: tuple[str, ...] = (), requires: object = None, **other: object
    ) -> Resolution:
        facts = base(*pins, requires=requires, python=f"{HERE}.5")
        return resolver(Request(facts=facts, requirements=requirements, **other))  # type: ignore[arg-type]

    return question


def versions(answer: Resolution) -> dict[str, str]:
    return {found.name: found.version for found in answer.packages}


def test_newest_with_its_requirements(ask: Ask, index: SyntheticIndex) -> None:
    index.wheel("app", "1.0", "1.2", requires=("lib>=2",))
    index.wheel("lib", "1.0", "2.0", "2.1")
    answer = ask("app")
    assert versions(answer) == {"app": "1.2", "lib": "2.1"}
    assert {found.name: found.via for found in answer.packages} == {"app": ("(direct)",), "lib": ("app",)}
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


def test_a_framework_that_does_not_fit_is_a_conflict_in_the_users_words(ask: Ask, index: SyntheticIndex) -> None:
    index.wheel("torch", "2.6.0")
    index.wheel("vllm", "0.8.5", requires=("torch==2.6.0",))
    with pytest.raises(NoSolutionError) as caught:
        ask("vllm", pins=("torch==2.4.0",))
    assert "vllm needs torch==2.6.0; the base holds torch 2.4.0" in caught.value.what


def test_the_bases_versions_are_preferred_and_moves_are_told(ask: Ask, index: SyntheticIndex) -> None:
    index.wheel("numpy", "1.24.4", "1.26.0")
    index.wheel("pillow", "9.0", "10.0")
    index.wheel("app", "1.0", requires=("numpy>=1.20", "pillow>=10"))
    answer = ask("app", pins=("numpy==1.24.4", "pillow==9.0"))
    assert versions(answer) == {"app": "1.0", "pillow": "10.0"}
    assert [(one.name, one.before, one.after) for one in answer.moved] == [("pillow", "9.0", "10.0")]


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
    assert versions(ask("app[fast]", "lib; sys_platform == 'win32'")) == {"app": "1.0", "lib": "1.0"}


def test_a_name_that_no_index_has(ask: Ask, index: SyntheticIndex) -> None:
    with pytest.raises(NoSolutionError, match="nobody-has-this"):
        ask("nobody-has-this")


def test_pip_tools_refuses_what_it_cannot_express(settings: Settings) -> None:
    resolver = RESOLVERS["pip-tools"](settings, LocalRunner(), Silent())
    facts = base(python=f"{HERE}.5")
    with pytest.raises(UsageError, match="pip-tools cannot resolve as of 2024-01-01: it knows no dates"):
        resolver(Request(facts=facts, requirements=("app",), as_of="2024-01-01"))
    with pytest.raises(UsageError, match="pip-tools mixes indexes, so that a package of lab could come from another"):
        resolver(Request(facts=facts, requirements=("app",), indexes=("lab",)))


def test_pip_tools_needs_the_bases_python(settings: Settings, index: SyntheticIndex) -> None:
    index.wheel("app", "1.0")
    resolver = RESOLVERS["pip-tools"](settings, LocalRunner(), Silent())
    with pytest.raises(HostError, match=r"resolves with the base's own Python, and there is no Python 3\.4 here"):
        resolver(Request(facts=base(python="3.4.9"), requirements=("app",)))
