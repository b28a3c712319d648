"""Packages that import another one which their metadata does not require (data/undeclared.toml)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from envbuild.data.lookup import framework_of, matches
from envbuild.data.package_tables import UndeclaredImport, load_aliases, load_undeclared
from envbuild.data.tables import load_frameworks
from envbuild.resolve.aliases import stand_ins
from envbuild.resolve.couplings import Coupling, requirement_admits
from envbuild.resolve.stubs import first_match
from envbuild.store.units import minor_version


def added_partners(new: Mapping[str, str], held: Collection[str]) -> tuple[Coupling, ...]:
    """Return couplings that bring what new packages (name to version) import and nothing holds.

    A GPU framework is not among it, nor what is compiled for one: which one, and of which release,
    is the user's to say.
    """
    present = {*new, *held}
    rows = [row for row in _rows_about(new) if not _is_only_told(row)]
    wanted = [row for row in rows if _is_missing(row, present) or _is_outside(row, new)]
    return tuple(
        Coupling(
            package=row.imports,
            constraint=row.ask,
            reason=f"{row.name} {new[row.name]} (data/undeclared.toml)",
            also=row.imports,
            note=f"{row.name} {new[row.name]} imports it, and its metadata does not require it",
        )
        for row in wanted
    )


def missing_imports(
    new: Mapping[str, str], held: Collection[str], environment: Mapping[str, str]
) -> Iterator[str]:
    """Yield notes about new packages whose import ends for want of what is not added.

    ``environment`` are variables of the image: one may name another framework.
    """
    present = {*new, *held}
    told = [row for row in _rows_about(new) if _is_only_told(row)]
    for row in told:
        if _is_missing(row, present) and row.variable not in environment:
            yield from _missing_note(row, new[row.name], _keras_backend(present))


def _missing_note(row: UndeclaredImport, version: str, backend: str | None) -> Iterator[str]:
    """Yield what to do about an import; ``backend`` is another framework that is here."""
    said = f"{row.name} {version} imports {row.imports}"
    if row.variable is None:
        ask = row.ask.format(minor=minor_version(version))
        where = load_aliases().elsewhere.get(row.imports)
        add = f'add "{ask}" to [python] dependencies'
        if where is not None:
            add = f"bring {row.imports} ({where})"
        yield (
            f"{said}, which its metadata does not require and nothing here brings: {add}, or "
            f"leave {row.name} out if nothing imports it"
        )
    elif backend is not None:
        yield (
            f"{said} unless {row.variable} names another one, and {backend} is here: put "
            f'{row.variable} = "{backend}" under [run] environment'
        )


def _rows_about(new: Mapping[str, str]) -> list[UndeclaredImport]:
    """Return the rows about new packages (name to version)."""
    named = [row for row in load_undeclared().undeclared if row.name in new]
    return [row for row in named if requirement_admits(row.package, new[row.name])]


def _is_only_told(row: UndeclaredImport) -> bool:
    return row.only_told or framework_of(row.imports) is not None


def _is_missing(row: UndeclaredImport, present: Collection[str]) -> bool:
    """Whether neither what is imported is there, nor what stands for it."""
    return first_match((row.imports, *stand_ins().get(row.imports, ())), present) is None


def _is_outside(row: UndeclaredImport, new: Mapping[str, str]) -> bool:
    """Whether what is imported comes along in a release that has it no more."""
    return row.imports in new and not requirement_admits(row.ask, new[row.imports])


def _keras_backend(held: Collection[str]) -> str | None:
    """Return the first framework here that Keras computes with, by the name that Keras gives it."""
    for framework in load_frameworks().framework:
        if framework.keras and any(matches(name, framework.dists) for name in held):
            return framework.name
    return None
