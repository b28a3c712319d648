"""Couplings to a framework that the resolution itself brings: jax, keras, jaxlib."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from packaging.requirements import Requirement
from packaging.version import Version

from envbuild.resolve.aliases import stand_ins
from envbuild.resolve.couplings import Coupling, rows_for
from envbuild.resolve.stubs import Stubs, first_match


def broken_couplings(
    new: Mapping[str, str], stubs: Stubs, asked: Collection[str]
) -> tuple[Coupling, ...]:
    """Return the rows about new frameworks that the new packages (name to version) do not keep to.

    What a row asks for beside its package has to be there too, where that was asked for.
    Of two rows that say the same from both sides, the one about what nobody ``asked`` for by name
    counts.
    """
    public = {name: Version(version).public for name, version in new.items()}
    for wanted, patterns in stand_ins().items():
        if (
            wanted not in public
            and wanted not in stubs.by_name
            and (real := first_match(patterns, public)) is not None
        ):
            public[wanted] = public[real]
    versions = {name: stub.public for name, stub in stubs.by_name.items()} | public
    rows = [
        row for row in rows_for(set(public), versions, asked) if row.binding and row.package in new
    ]
    missing = [
        row for row in rows if row.package in asked and row.also and row.also not in versions
    ]
    broken = [row for row in rows if row in missing or not _is_kept(row, new)]
    return tuple([row for row in broken if row.package not in asked] or broken)


def _is_kept(row: Coupling, new: Mapping[str, str]) -> bool:
    specifier = Requirement(row.constraint).specifier
    return specifier.contains(new[row.package], prereleases=True)
