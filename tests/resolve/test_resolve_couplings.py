from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from envbuild.progress import Silent
from envbuild.resolve.artifacts import describe
from envbuild.resolve.couplings import (
    TEMPLATE,
    Companions,
    Row,
    Rule,
    couplings,
    extras_for,
    load_aliases,
    load_companions,
    protected_names,
)
from envbuild.resolve.pylock import Candidate
from envbuild.resolve.standins import stand_ins
from envbuild.resolve.stubs import Stubs, parsed, plan_stubs
from envbuild.run import LocalRunner
from envbuild.settings import Settings
from envbuild.store.index import Link, index_url, read_links
from envbuild.store.web import make_client
from tests.resolve.conftest import base

if TYPE_CHECKING:
    import httpx

RULES = [(rule, row) for rule in load_companions().rule for row in rule.rows]


def stubs_of(*pins: str, **facts: str) -> Stubs:
    held = base(*pins, **facts)
    return plan_stubs(held, protected=protected_names(held), aliases=stand_ins())


def constraints(*pins: str, **facts: str) -> list[str]:
    rows = couplings(base(*pins, **facts), stubs_of(*pins, **facts))
    return [row.constraint for row in rows if row.binding]


# ------------------------------------------------------------------ the data itself


@pytest.mark.parametrize(("rule", "row"), RULES, ids=lambda value: getattr(value, "constrain", ""))
def test_every_row_is_well_formed(rule: Rule, row: Row) -> None:
    assert rule.source
    assert rule.declared in ("yes", "partly", "extra", "name", "no")
    assert {rule.sure, row.sure or rule.sure} <= {"verified", "documented", "reported", "memory"}
    assert Requirement(row.when).name == rule.framework
    named = Requirement(TEMPLATE.sub("1", row.constrain)).name
    assert named in (rule.package, *rule.packages) or rule.packages or named == "mmcv-full"
    assert all(found[1] == rule.framework for found in TEMPLATE.finditer(row.constrain))


def test_rows_of_a_rule_do_not_overlap() -> None:
    releases = [f"{major}.{minor}.{patch}" for major in range(4) for minor in range(25) for patch in (0, 5)]
    for rule in load_companions().rule:
        if rule.package == "mmcv":
            continue  # one row is about mmcv, the other about mmcv-full
        ranges = [(row.when, Requirement(row.when).specifier) for row in rule.rows]
        for release in releases:
            hits = [when for when, bounds in ranges if bounds.contains(release)]
            assert len(hits) <= 1, (rule.package, release, hits)


def test_sources_are_named() -> None:
    aliases = load_aliases()
    assert aliases.source
    assert all(rule.source for rule in aliases.extras.values())


# ------------------------------------------------------------------ what holds for a base


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        (
            ("tensorflow==2.10.1",),
            {"keras==2.10.*", "tensorflow-io==0.27.*", "tensorflow-probability<0.19", "tensorflow-text==2.10.*"},
        ),
        (
            ("tensorflow-gpu==2.1.0",),
            {"keras<2.4", "keras-bert<0.85", "h5py<3", "numpy<2", "protobuf<4", "tensorflow-hub<0.16"},
        ),
        (
            ("torch==2.4.0a0+f70bd71a48.nv24.6",),
            {"torchvision==0.19.*", "torchaudio==2.4.*", "torchtext==0.18.*", "transformers<5.15"},
        ),
        (("torch==1.12.1",), {"torchvision==0.13.*", "torchaudio==0.12.*", "torchtext==0.13.*", "numpy<2"}),
        (("jaxlib==0.4.31",), {"jax-cuda12-plugin==0.4.31"}),
    ],
)
def test_companions_of_a_base(pins: tuple[str, ...], expected: set[str]) -> None:
    assert expected <= set(constraints(*pins))


def test_no_row_for_a_base_without_a_framework() -> None:
    assert constraints("six==1.16.0") == []


def test_what_the_base_protects_or_breaks_is_no_constraint() -> None:
    found = constraints("torch==2.4.0", "torchvision==0.18.0", "transformers==5.20.0")
    assert not any(text.startswith(("torchvision", "transformers")) for text in found)


def test_numpy_major_is_frozen_for_every_base() -> None:
    assert constraints("numpy==1.24.4") == ["numpy<2"]
    assert constraints("numpy==2.0.1")[-1] == "numpy<3"


def test_beside_numpy_2_nothing_comes_that_was_compiled_against_numpy_1() -> None:
    found = constraints("numpy==2.0.1")
    assert {"pandas>=2.2.2", "scipy>=1.13.0", "opencv-python>=4.10.0.84", "thinc>=8.3"} <= set(found)
    assert constraints("numpy==2.0.1", "pandas==2.0.3").count("pandas>=2.2.2") == 0


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        (("tensorflow-gpu==2.3.0",), {"tensorflow-addons>=0.11,<0.14", "tensorflow-probability<0.12"}),
        (("tensorflow==2.6.0",), {"tensorflow-addons>=0.14,<0.17", "tensorflow-probability<0.15"}),
        (("torch==1.13.1",), {"transformers<4.48"}),
        (("torch==2.0.1",), {"transformers<4.52"}),
        (("mxnet-cu112==1.9.1",), {"numpy<1.24"}),
        (("torchvision==0.4.2",), {"pillow<7"}),
    ],
)
def test_older_bases_have_their_rows(pins: tuple[str, ...], expected: set[str]) -> None:
    assert expected <= set(constraints(*pins))


def test_cuda_chooses_one_of_the_tagged_distributions() -> None:
    found = constraints(cuda="12.4")
    assert "cupy-cuda11x<0" in found
    assert "cupy-cuda13x<0" in found
    assert "cupy-cuda12x<0" not in found
    assert "onnxruntime-gpu<1.27,>=1.19" in {str(Requirement(text)) for text in found}
    assert "cupy-cuda110<0" not in constraints(cuda="11.0.3")


def test_a_row_from_memory_only_does_not_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(when="tensorflow>=2.9", constrain="tensorflow-model-optimization==0.7.*")
    rule = Rule(framework="tensorflow", declared="no", sure="memory", source="nobody", rows=(row,), package="x")
    monkeypatch.setattr("envbuild.resolve.couplings.load_companions", lambda: Companions(schema=1, rule=(rule,)))
    (found,) = couplings(base("tensorflow==2.9.3"), stubs_of("tensorflow==2.9.3"))
    assert not found.binding
    assert found.reason == "tensorflow 2.9.3 (nobody)"


def test_transformers_keeps_its_tensorflow_models_where_there_is_no_torch() -> None:
    assert "transformers<5" in constraints("tensorflow==2.17.0")
    found = constraints("tensorflow==2.17.0", "torch==2.6.0")
    assert not any(text.startswith("transformers") for text in found)
    held = base("tensorflow==2.17.0")
    rows = couplings(held, stubs_of("tensorflow==2.17.0"), {"transformers", "torch"})
    assert not any(row.package == "transformers" for row in rows)


# ------------------------------------------------------------------ protected, extras, groups


def test_protected_are_framework_companions_cuda_and_what_the_framework_pins() -> None:
    facts = base(
        "tensorflow==2.15.1",
        "keras==2.15.0",
        "numpy==1.26.4",
        "h5py==3.11.0",
        "nvidia-cudnn-cu12==8.9.4.25",
        "nvidia-ml-py==12.535",
        "requests==2.31.0",
        "ml_dtypes==0.3.2",
        requires={
            "tensorflow": ("numpy<2.0.0,>=1.23.5", "h5py>=2.9.0", "ml-dtypes~=0.3.1", "requests<3 ; extra == 'x'")
        },
    )
    assert protected_names(facts) == {"tensorflow", "keras", "numpy", "nvidia-cudnn-cu12", "ml-dtypes"}


def test_rapids_pins_count_where_there_is_no_greater_framework() -> None:
    requires = {"cuml": ("scikit-learn==1.5", "dask-cudf==24.6.*", "scipy>=1.8")}
    pins = ("cuml==24.6.0", "dask-cudf==24.6.0", "scikit-learn==1.5.0", "scipy==1.13.1")
    assert protected_names(base(*pins, requires=requires)) == {"cuml", "dask-cudf", "scikit-learn"}
    assert "scikit-learn" not in protected_names(base(*pins, "torch==2.1.0a0", requires=requires))


def test_framework_of_the_facts_and_of_the_caller_are_protected() -> None:
    facts = base("mindspore==2.2", "six==1.16", "rich==13", framework="MindSpore 2.2")
    assert protected_names(facts, extra=("six", "absent")) == {"mindspore", "six"}


def test_extras_are_asked_for_only_beside_their_framework() -> None:
    assert extras_for({"transformers", "rich"}, stubs_of("torch==2.4.0")) == {"transformers": "torch"}
    assert extras_for({"transformers"}, stubs_of("tensorflow==2.15.0")) == {}
    assert extras_for({"transformers"}, stubs_of("torch==2.4.0", "transformers==4.40")) == {}


# ------------------------------------------------------------------ the data against published metadata

VERIFIED = [(rule, row) for rule, row in RULES if (row.sure or rule.sure) == "verified" and rule.framework != "cuda"]
READ_ELSEWHERE = re.compile(r"CODE|#\d+|file list|requires\.txt|from the other side|plugin ->")
"""Sources other than the metadata of the newest wheels: these rows need no agreeing bound there."""


class Published:
    """What the index says of projects and of their newest wheels."""

    def __init__(self, settings: Settings, client: httpx.Client) -> None:
        self.settings, self.client = settings, client
        self.index = index_url(settings, LocalRunner())
        self.pages: dict[str, dict[Version, Link]] = {}

    def wheels(self, name: str) -> dict[Version, Link]:
        """Return a wheel for Linux on x86_64 of each final release of a project; those for other machines say less."""
        if name not in self.pages:
            found: dict[Version, Link] = {}
            for link in read_links(self.index, name, self.client):
                with contextlib.suppress(InvalidWheelFilename):
                    version = parse_wheel_filename(link.file)[1]
                    fits = re.search(r"-any\.whl$|manylinux\w*x86_64\.whl$", link.file)
                    if fits and link.sha256 and not version.is_prerelease:
                        found[version] = link
            self.pages[name] = found
        return self.pages[name]

    def newest(self, wanted: Requirement) -> Version | None:
        """Return the newest release that a requirement admits."""
        return max((v for v in self.wheels(wanted.name) if wanted.specifier.contains(v)), default=None)

    def bounds(self, name: str, version: Version, on: str) -> list[SpecifierSet]:
        """Return the bounds that a release's metadata puts on another project; those of extras where there are no others.

        Extras exclude each other (jax has one for its own CI): any of them will do.
        """
        link = self.wheels(name)[version]
        candidate = Candidate(file=link.file, url=link.url, sha256=link.sha256 or "")
        about = describe([candidate], settings=self.settings, report=Silent())[candidate.sha256]
        found = [r for r in parsed(about.requires) if canonicalize_name(r.name) == on and r.specifier]
        plain = [r.specifier for r in found if r.marker is None or "extra" not in str(r.marker)]
        return plain or [r.specifier for r in found]


def disagreements(rule: Rule, row: Row, published: Published) -> list[str] | None:
    """Return what published metadata says against a row, from either side; None where it says nothing about it."""
    framework = published.newest(Requirement(row.when))
    if framework is None:
        return None
    text = TEMPLATE.sub(lambda found: filled(found, str(framework)), row.constrain)
    wanted = Requirement(text)
    package = published.newest(wanted)
    said, wrong = False, []
    if package is not None:
        bounds = published.bounds(wanted.name, package, rule.framework)
        releases = [v for v in published.wheels(rule.framework) if Requirement(row.when).specifier.contains(v)]
        said = bool(bounds)
        if bounds and not any(bound.contains(v) for bound in bounds for v in releases):
            wrong.append(f"{wanted.name} {package} admits no {row.when}, only {', '.join(map(str, bounds))}")
    for bound in published.bounds(rule.framework, framework, wanted.name):
        if not published.wheels(wanted.name):
            break  # there as source only: nothing to compare with
        said = True
        if not any(bound.contains(v) and wanted.specifier.contains(v) for v in published.wheels(wanted.name)):
            wrong.append(f"{rule.framework} {framework} wants {wanted.name}{bound}, the row {text}")
    return wrong if said else None


@pytest.mark.live
def test_every_verified_row_agrees_with_published_metadata(user_settings: Settings) -> None:
    """From both sides: the newest package that a row admits, and the newest framework that it is about."""
    checked, wrong, silent = 0, [], []
    with make_client(user_settings) as client:
        published = Published(user_settings, client)
        for rule, row in VERIFIED:
            found = disagreements(rule, row, published)
            if found is None:
                silent.append((rule, row))
            else:
                checked += 1
                wrong += found
    assert wrong == []
    assert checked >= 40
    assert [
        row.constrain for rule, row in silent if not READ_ELSEWHERE.search(rule.source) and "<0" not in row.constrain
    ] == []


def filled(found: re.Match[str], release: str) -> str:
    numbers = [*release.split("."), "0"]
    if found[2] == "minor2":
        return str(int(numbers[1]) + int(found[3] or 0))
    return ".".join(numbers[:2]) if found[2] == "minor" else release


def test_no_row_is_from_memory_only() -> None:
    assert [(rule.package, row.when) for rule, row in RULES if (row.sure or rule.sure) == "memory"] == []
