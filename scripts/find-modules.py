"""Write envbuild/data/modules.txt anew: modules by the distribution that is meant by them.

    python scripts/find-modules.py MODULES.sqlite3 DOWNLOADS.json BIOCONDA.json

MODULES.sqlite3 has the modules at the top of every distribution of the index: the database in the wheel of pigar.
DOWNLOADS.json has the most downloaded distributions: top-pypi-packages.json of hugovk/top-pypi-packages.
BIOCONDA.json has bioconda's packages by the distributions in them: prefix-dev/parselmouth.  No index is asked.

Only a distribution that somebody vouches for is taken: conda's or bioconda's people, or those who download it.  What
conda has by the module's own name (conda_same.txt) needs no row: init asks the index for it.  A
name that many distributions have as a module is one that projects give to modules of their own, and says nothing.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from envbuild.data.package_tables import load_conda_same, load_names  # noqa: E402
from envbuild.project.names import is_standard  # noqa: E402

TARGET = ROOT / "envbuild" / "data" / "modules.txt"
HEAD = """\
# Modules by the distribution that is meant by them, one a line; names.toml goes before it.  Written by
# scripts/find-modules.py.  Source: modules of each distribution as the wheel of pigar {pigar} lists them (BSD-3-Clause);
# distributions of conda_same.txt, of bioconda (prefix-dev/parselmouth at 345e9bfb), or of the 15,000 most downloaded
# at {day} (hugovk/top-pypi-packages).
"""
MANY = 60
"""Distributions with a module of one name, from which on it is a word of everybody: tests, utils."""
KNOWN, POPULAR = 5_000, 15_000
"""Ranks by downloads: what is known to all, and the least that is counted."""
OTHERS = {KNOWN: 30, POPULAR: 8, POPULAR + 1: 2}
"""How many others may have a module of the name, by the rank of the one that is taken."""
NO_USE = re.compile(r"(types|pyobjc|aa|allianceauth|django|robotframework|xontrib)-.*")
"""Distributions that a program here does not import: stubs for type checkers, macOS, parts of web sites."""
SHORT = 5
"""Letters of a name that many may have chosen."""
CLEARLY = 3
"""How many times better the rank has to be where several are vouched for."""


class Choice:
    """Chooses the distribution of a module among those that have it."""

    def __init__(
        self, modules: Mapping[str, set[str]], ranks: Mapping[str, int], other: Collection[str]
    ) -> None:
        self.ranks, self.conda, self.other = ranks, load_conda_same(), other
        self.owners: dict[str, set[str]] = defaultdict(set)
        for name, held in modules.items():
            for module in held:
                self.owners[module].add(name)
        self.main = {
            name: {one for one in held if self._is_telling(one)} for name, held in modules.items()
        }

    def _is_telling(self, module: str) -> bool:
        plain = module.isidentifier() and not re.match(r"_|tests?_", module)
        return plain and len(self.owners[module]) < MANY

    def rank(self, name: str) -> int:
        """Return the rank by downloads; one more than the last for what is not among them."""
        return self.ranks.get(name, POPULAR + 1)

    def distribution_of(self, module: str) -> str | None:
        """Return the one distribution that is surely meant by a module, None where none is."""
        owners = self.owners[module]
        own = canonicalize_name(module)
        if not self._is_telling(module) or is_standard(module) or own in owners & self.conda:
            return None
        fitting = [one for one in owners if self._is_vouched(one, owners)]
        fitting = [one for one in fitting if self.main[one] == {module} or are_alike(module, one)]
        fitting.sort(key=lambda one: (self.rank(one), one not in self.conda, one))
        if not fitting or not self._is_clear(fitting):
            return None
        best, known = fitting[0], self.rank(fitting[0]) <= KNOWN
        others = len(owners) - len(fitting)
        most = next(most for limit, most in OTHERS.items() if self.rank(best) <= limit)
        return best if others <= most and (known or self._is_sure(module, best, others)) else None

    def _is_sure(self, module: str, name: str, others: int) -> bool:
        """Whether a distribution that not all know is meant, and no module of a project's own."""
        own = canonicalize_name(module)
        if name == own and others and module.isalpha():
            return False
        if len(module) <= SHORT or (own in self.main and own != name):
            # such a name may be meant otherwise: both have to vouch for it
            return name in self.conda and name in self.ranks and not self._is_shared(module)
        return not self._is_shared(module)

    def _is_vouched(self, name: str, owners: set[str]) -> bool:
        known = name in self.conda or name in self.ranks or name in self.other
        return known and name in owners and not NO_USE.fullmatch(name)

    def _is_clear(self, fitting: list[str]) -> bool:
        """Whether the first is far before the second, and conda has no other one."""
        if len(fitting) == 1:
            return True
        first, second = fitting[:2]
        if self.rank(second) < CLEARLY * self.rank(first):
            return False
        return first in self.conda or not self.conda.intersection(fitting)

    def _is_shared(self, module: str) -> bool:
        """Whether several distributions fill one folder: flufl.bounce and flufl.lock."""
        start = f"{canonicalize_name(module)}-"
        return sum(one.startswith(start) for one in self.owners[module]) > 1


def are_alike(module: str, name: str) -> bool:
    """Whether a module and a distribution have a part of their names in common."""
    plain = re.sub(r"[^a-z0-9]", "", module.lower())
    whole = name.replace("-", "")
    parts = [one for one in re.split(r"[-_]", f"{name}_{module.lower()}") if len(one) > 2]
    return plain in whole or whole in plain or any(one in plain and one in whole for one in parts)


def read_modules(path: str) -> dict[str, set[str]]:
    """Return the modules at the top of each distribution."""
    found: dict[str, set[str]] = defaultdict(set)
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        for name, module in database.execute(
            "SELECT d.name, m.name FROM distributions d JOIN top_level_module_names m ON m.distribution_id = d.id"
        ):
            found[canonicalize_name(name)].add(module)
    return found


def main() -> None:
    """Write the table and say how many rows it has."""
    database, downloads, bioconda = sys.argv[1:]
    listed = msgspec.json.decode(Path(downloads).read_bytes())
    ranks: dict[str, int] = {}
    for at, row in enumerate(listed["rows"], 1):
        ranks[canonicalize_name(row["project"])] = at
    packages = msgspec.json.decode(Path(bioconda).read_bytes())
    other = {name for name, held in packages.items() if name in (held or ())}
    choice = Choice(read_modules(database), ranks, other)
    names = load_names()
    decided = {*names.module, *names.same.names, *names.own.names}
    rows = {one: choice.distribution_of(one) for one in choice.owners if one not in decided}
    lines = sorted(f"{module} {name}" for module, name in rows.items() if name)
    head = HEAD.format(pigar="2.2.0", day=listed["last_update"][:10])
    TARGET.write_text(head + "\n".join(lines) + "\n", "utf-8")
    print(f"{len(lines)} rows")


if __name__ == "__main__":
    main()
