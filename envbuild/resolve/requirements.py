"""Check the direct requirements, which may be a stranger's, before any tool sees them."""

from __future__ import annotations

import re

from packaging.requirements import Requirement
from packaging.utils import InvalidName, canonicalize_name

from envbuild.data.package_tables import load_aliases
from envbuild.errors import UsageError
from envbuild.names import Texts, Variables
from envbuild.recipe.requirement import NO_REQUIREMENT
from envbuild.records import frozen_record
from envbuild.resolve.stubs import Stubs

LONGEST = 300
FORM = "write one package a line, such as numpy>=1.24,<2 or transformers[torch]"


@frozen_record
class Direct:
    """One direct requirement that applies to the base.

    ``added`` is an extra that nobody asked for (couplings.extras_for); ``instead`` is the name that
    was asked for where it is another one (couplings.built_for).
    """

    name: str
    written: str
    extras: Texts = ()
    specifier: str = ""
    added: str | None = None
    instead: str | None = None

    @property
    def unbound(self) -> str:
        """The name with all extras, without bounds."""
        extras = sorted({*self.extras, *filter(None, (self.added,))})
        return self.name + (f"[{','.join(extras)}]" if extras else "")

    @property
    def text(self) -> str:
        """The requirement as PEP 508, written anew from its parts."""
        return self.unbound + self.specifier


def read_directs(
    requirements: Texts, *, environment: Variables, stubs: Stubs
) -> tuple[tuple[Direct, ...], Texts]:
    """Return the direct requirements that apply to the base, and notes about those that do not.

    Raises UsageError for pip options, paths, addresses, control characters, anything that is not
    PEP 508, and for ``===`` on a package that the base protects.
    """
    found: list[Direct] = []
    notes: list[str] = []
    for written in requirements:
        requirement = _read_requirement(written)
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate(dict(environment)):
            notes.append(f"{written} does not apply to this base: its marker is false there")
            continue
        if stubs.hard(name) and any(
            specifier.operator == "===" for specifier in requirement.specifier
        ):
            raise _protected_error(written, name, stubs)
        extras = tuple(sorted({_known_extra(name, extra) for extra in requirement.extras}))
        held = stubs.by_name.get(name)
        # its very build, +cu118 too, is there: the stub's own mark would be another local part
        own = held is not None and held.hard and str(requirement.specifier) == f"=={held.real}"
        specifier = "" if own else str(requirement.specifier)
        found.append(Direct(name=name, written=written, extras=extras, specifier=specifier))
    return tuple(found), tuple(notes)


def _known_extra(name: str, extra: str) -> str:
    """Return the extra that brings the same from an index, where one does not."""
    return load_aliases().same_extra.get(name, {}).get(canonicalize_name(extra), extra)


def _read_requirement(written: str) -> Requirement:
    where = f"requirement {_shown_text(written)}"
    # a line break would begin another line of the file that uv reads
    if not written.isprintable():
        raise UsageError("holds a line break or a control character", where=where, hint=FORM)
    if len(written) > LONGEST:
        raise UsageError(f"is longer than {LONGEST} characters", where=where, hint=FORM)
    text = written.strip()
    # options could name other indexes, or files of this machine
    if text.startswith("-") or re.search(r"\s(--[a-z]|-[a-z]\s)", text):
        raise UsageError(
            "is an option of pip, not a requirement",
            where=where,
            hint=(
                "extra indexes are named under [python] indexes; other options have no place in a "
                "recipe"
            ),
        )
    try:
        requirement = Requirement(text)
        # packaging lets a name end with "_"; the index knows no such name
        for name in (requirement.name, *requirement.extras):
            canonicalize_name(name, validate=True)
    except (*NO_REQUIREMENT, InvalidName) as error:
        if re.match(r"[a-z+]+:|\.{0,2}/|\.$", text):
            raise _address_error(where) from error
        raise UsageError(
            "is not a requirement as PEP 508 has it", where=where, hint=FORM
        ) from error
    if requirement.url is not None:
        raise _address_error(where)
    return requirement


def _address_error(where: str) -> UsageError:
    return UsageError(
        "is an address or a path, and a lock names no host",
        where=where,
        hint=(
            "take the package from an index by name and version; other indexes are named under "
            "[python] indexes"
        ),
    )


def _protected_error(written: str, name: str, stubs: Stubs) -> UsageError:
    stub = stubs.by_name[name]
    held = f"{stub.alias_of or name} {stub.real}"
    return UsageError(
        f"asks by === for one exact build, but the base holds {held}, which is never replaced",
        where=f"requirement {_shown_text(written)}",
        hint=f"write {name}=={stub.public}, or only {name}, to take the base's",
    )


def _shown_text(text: str) -> str:
    shown = repr(text if len(text) <= 80 else f"{text[:77]}...")
    return shown if shown.isascii() else ascii(text[:77])
