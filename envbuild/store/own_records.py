"""Records that were written from here: one that came along with a copied project is not believed.

The record of a development layer, or of a job, binds folders and names code that runs.
"""

from __future__ import annotations

from envbuild.store.atomic import write_bytes
from envbuild.store.gc import mark_used
from envbuild.store.hashing import hash_bytes
from envbuild.store.layout import Store

OWN_FOLDER = "dev"
"""The folder of a store that holds the notes; this user must be able to write it."""


def note_own(raw: bytes, store: Store) -> None:
    """Let the store know a record that is written from here (``is_own``)."""
    write_bytes(store.folder(OWN_FOLDER) / f"{hash_bytes(raw)}.record", b"")


def is_own(raw: bytes, store: Store) -> bool:
    """Tell whether the store knows a record that was written from here."""
    note = store.dev(f"{hash_bytes(raw)}.record")
    known = note.is_file()
    if known:
        mark_used(note)
    return known
