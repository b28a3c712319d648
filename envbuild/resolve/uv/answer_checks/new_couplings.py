"""Couplings to a framework that the resolution itself brings: jax, keras, jaxlib."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from packaging.version import Version

from envbuild.resolve.aliases import stand_ins
from envbuild.resolve.couplings import Coupling, rows_for
from envbuild.resolve.stubs import Stubs, first_match
from envbuild.resolve.uv.answer_checks.undeclared_imports import added_partners


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
        row
        for row in rows_for(set(versions), versions, asked)
        if row.binding and row.package in new
    ]
    # the bounds of what the base holds are kept to from the beginning
    about_new = rows_for(set(public), versions, asked)
    bounds = [row for row in rows if row in about_new and not row.partner_only]
    alone = [row for row in rows if row.lacks_partner(versions)]
    broken = [row for row in alone if row.partner_only or row.package in asked]
    broken += [row for row in bounds if row not in broken and not row.admits(new[row.package])]
    broken += added_partners({name: public[name] for name in new}, versions)
    return tuple([row for row in broken if row.package not in asked] or broken)
