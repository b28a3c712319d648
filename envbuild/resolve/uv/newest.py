"""The newest releases of an index for a base's Python and machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from envbuild.base.model import BaseFacts
from envbuild.context import Context
from envbuild.resolve.conflict.explain import MISSING, ConflictError, mentioned_names
from envbuild.resolve.stubs import Stubs
from envbuild.resolve.uv.session import Session


def newest_releases(
    names: Collection[str], facts: BaseFacts, *, indexes: Mapping[str, str], context: Context
) -> dict[str, str]:
    """Return the newest version of each name; one that the index no longer has is left out.

    ``indexes`` maps names to URLs in the order in which they are asked, "default" last.
    """
    with context.store.outside(context.settings.tmpdir) as place:
        session = Session(
            folder=place, facts=facts, stubs=Stubs({}), indexes=indexes, context=context
        )
        return _ask_newest(session, sorted(names))


def _ask_newest(session: Session, names: list[str]) -> dict[str, str]:
    try:
        found = session.newest(*names)
    except ConflictError as conflict:
        # uv ends at what is missing: that is left out, and the rest is asked for again
        gone = {*MISSING.findall(conflict.text), *mentioned_names(conflict.text)} & set(names)
        return _ask_newest(session, [name for name in names if name not in gone]) if gone else {}
    return {name: chosen.version for name, chosen in found.items()}
