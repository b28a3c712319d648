"""The guard of layered images.

A runtime that drops a layer says nothing, so the image itself has to notice. Apptainer 1.4 drops
overlay partitions silently with --unsquash, --underlay, "enable overlay = no", without squashfuse,
when the file is cut off or a layer's header is damaged, and in every build that starts from the
image. The lowest layer therefore lists the others, each of which carries a mark; a start without
one of the marks ends with code 78.
"""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.formats.block_codec import STORED
from envbuild.formats.file_copy import write_at
from envbuild.formats.file_tree import Part, TreeEntry
from envbuild.formats.squashfs.writer import Copy
from envbuild.script_files import read_script
from envbuild.store.hashing import hash_bytes

SCRIPT = ".singularity.d/env/00-envbuild-layers.sh"
"""Sourced first by every way to start: exec, run, shell, test, instances."""
MARKS = ".envbuild"


def guard_part(keys: Sequence[str]) -> tuple[Part, Copy]:
    """Return the part that refuses to start without the layers of these keys."""
    text = read_script("envbuild.build.image", "scripts/require_layers.sh", keys=" ".join(keys))
    return _plain_part({SCRIPT: (text.encode(), 0o755)})


def mark_part(key: str) -> tuple[Part, Copy]:
    """Return the part by which a layer tells that it is there."""
    return _plain_part({f"{MARKS}/layer/{key}": (b"\n", 0o644)})


def is_guard(path: str) -> bool:
    """Tell whether a path belongs to the guard and not to the image."""
    return path in (MARKS, SCRIPT) or path.startswith(f"{MARKS}/")


def _plain_part(files: dict[str, tuple[bytes, int]]) -> tuple[Part, Copy]:
    """Return a part of a few small files in one block, stored as it is."""
    # a block of its own, stored as it is: it needs no library that packs
    entries, content = [], b""
    for path, (text, mode) in files.items():
        sha256 = hash_bytes(text)
        entries.append(
            TreeEntry(
                path, "f", mode, size=len(text), sha256=sha256, fragment=0, offset=len(content)
            )
        )
        content += text
    part = Part(
        key="",
        entries=tuple(entries),
        fragments=((0, len(content) | STORED),),
        size=len(content),
        sha256=hash_bytes(content),
    )

    def copy(target: int, at: int) -> None:
        write_at(target, content, at)

    return part, copy
