"""Trees are no containers: homes and toolkits that a probe sees are the machine's, so none is looked at."""

from __future__ import annotations

import pytest

from envbuild.check import plan


@pytest.fixture(autouse=True)
def nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look into no home folder and no toolkit outside a tree."""
    monkeypatch.setattr(plan, "HOMES", ())
    monkeypatch.setattr(plan, "TOOLKITS", ())
