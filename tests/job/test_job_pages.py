"""docs/site.md names every key and every shipped site; docs/systems.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from envbuild.job.sites.find import site_files
from envbuild.job.sites.site import Site
from envbuild.settings import load_settings

ROOT = Path(__file__).parents[2]


def test_every_key_of_a_site_file_is_described() -> None:
    text = (ROOT / "docs/site.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z-]+)`", text))
    for section in msgspec.structs.fields(Site):
        assert re.search(rf"\[{section.encode_name}\]", text), section.name
        kind = (
            section.type if hasattr(section.type, "__struct_fields__") else section.type.__args__[0]
        )
        missing = {field.encode_name for field in msgspec.structs.fields(kind)} - named
        assert not missing, f"[{section.name}] {missing}"


def test_every_shipped_site_is_listed() -> None:
    text = (ROOT / "docs/site.md").read_text("utf-8")
    shipped = {
        name for name, path in site_files(load_settings({}, Path("/"))).items() if path is None
    }
    assert (
        set(
            re.findall(
                r"^\| `([\w-]+)` \| (?:Slurm|Grid Engine|PBS|none) \|", text, flags=re.MULTILINE
            )
        )
        == shipped
    )


def test_the_table_of_systems_is_whole_and_its_tests_exist() -> None:
    text = (ROOT / "docs/systems.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d\.\d+) \| .* \| (.*) \| (.*) \|$", text, flags=re.MULTILINE)
    expected = [
        f"{seed}.{row}"
        for seed, last in ((0, 12), (1, 8), (2, 8), (3, 8), (4, 11))
        for row in range(1, last + 1)
    ]
    assert [row[0] for row in rows] == expected
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py"))
    for number, state, names in rows:
        assert state in ("tested", "golden", "in part", "not ours", "not done"), number
        found = re.findall(r"`([a-z_]+[a-z_0-9]+|[\w-]+(?:\.[\w-]+\.(?:sh|diff)|\.txt))`", names)
        assert found or state in ("not ours", "not done"), number
        for name in found:
            golden = (ROOT / "tests/golden/job" / name).exists()
            assert golden or f"def {name}(" in tests, f"{number}: {name}"


def test_the_counts_of_the_systems_are_those_of_the_rows() -> None:
    text = (ROOT / "docs/systems.md").read_text("utf-8")
    states = re.findall(r"^\| (\d)\.\d+ \| .* \| (.*) \| .* \|$", text, flags=re.MULTILINE)
    told = re.findall(r"^\| (\d) [^|]+((?:\| \d+ ){5})\|", text, flags=re.MULTILINE)
    for system, numbers in told:
        mine = [state for number, state in states if number == system]
        expected = [
            len(mine),
            *(mine.count(state) for state in ("tested", "golden", "in part", "not ours")),
        ]
        assert [int(number) for number in numbers.split("|")[1:]] == expected, system
    assert len(told) == 5
