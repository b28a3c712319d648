"""Cards, toolkits and drivers as NVIDIA's own pages have them (published.toml)."""

from __future__ import annotations

from pathlib import Path

from envbuild.base.gpu_names import capability_of
from envbuild.data import lookup
from envbuild.data.tables import load_cuda
from envbuild.errors import UsageError
from envbuild.toml import read_toml

PUBLISHED = read_toml(Path(__file__).with_name("published.toml"))[0]


def _capability(name: str) -> int | str:
    try:
        return capability_of(name) or "none"
    except UsageError:
        return "unknown"


def test_each_published_card_has_its_published_capability() -> None:
    told: dict[str, int | str] = {}
    right: dict[str, int | str] = {}
    for page in PUBLISHED["cards"]:
        for capability, names in page.items():
            if capability != "page":
                told |= {name: _capability(name) for name in names}
                right |= dict.fromkeys(names, int(capability.replace(".", "")))
    assert {name: found for name, found in told.items() if found != right[name]} == {}
    assert len(right) >= 375


def test_each_toolkit_has_its_published_driver() -> None:
    published = {name: text for name, text in PUBLISHED["drivers"].items() if name != "page"}
    assert load_cuda().drivers == published


def test_each_family_has_its_published_range() -> None:
    told = {name: lookup.numbers(text)[0] for name, text in load_cuda().families.items()}
    assert told == {name: int(text) for name, text in PUBLISHED["families"].items()}
