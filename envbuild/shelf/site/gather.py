"""Read a shelf into pages; what cannot be verified is shown as refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import squarify

from envbuild.errors import EnvbuildError
from envbuild.lock.changes import lock_changes
from envbuild.lock.model import Lock, PythonPackage
from envbuild.lock.read import parse_lock
from envbuild.names import DIRECT, Texts
from envbuild.shelf.client import ShelfClient, StoredEntry
from envbuild.shelf.fetch import VerifiedEntry, fetch_entry
from envbuild.shelf.model import Entry
from envbuild.shelf.site.model import (
    CheckProof,
    DependencyNode,
    EntryPage,
    HistoryEntry,
    PageCommand,
    TreemapTile,
)
from envbuild.store.hashing import short_digest

DEEPEST = 12
"""Levels of the dependency tree that are drawn."""
MOST_CHANGES = 200


def entry_pages(
    library: ShelfClient, commands: Callable[[Entry], Sequence[PageCommand]]
) -> Iterator[EntryPage]:
    """Return the newest entry of every name of a shelf; ``commands`` says how to use one."""
    return (
        _page_or_refusal(name, library, commands)
        for name in sorted({*library.numbers, *library.last_verified.read_heads()})
    )


def _page_or_refusal(
    name: str, library: ShelfClient, commands: Callable[[Entry], Sequence[PageCommand]]
) -> EntryPage:
    try:
        taken = fetch_entry(library, name)
        return _page_of(taken, library.history(name), library, tuple(commands(taken.stored.entry)))
    except EnvbuildError as error:
        return EntryPage(name=name, refused=str(error))


def _page_of(
    taken: VerifiedEntry,
    history: Sequence[StoredEntry],
    library: ShelfClient,
    commands: tuple[PageCommand, ...],
) -> EntryPage:
    """Return what the page of a verified entry shows."""
    entry, about, lock = taken.stored.entry, taken.stored.entry.about, taken.lock
    layers = layer_sizes(lock)
    sizes = []
    for layer, rows in _layer_packages(lock).items():
        largest_first = sorted(rows, key=lambda row: -row[2])
        sizes += [(layer, name, version, size) for name, version, size in largest_first]
    signer = ""
    if taken.signer is not None:
        signer = taken.signer.principal or f"{taken.signer.key} (not pinned)"
    size, size_of, image = sum(row[3] for row in sizes), "packages", ""
    if entry.image is not None:
        size, size_of, image = entry.image.size, "image", entry.image.digest
    return EntryPage(
        name=entry.name,
        digest=taken.stored.digest,
        number=entry.number,
        summary=about.summary,
        framework=about.framework or "",
        cuda=about.cuda or "",
        python=about.python,
        base=about.base,
        platform=about.platform,
        who=entry.who,
        day=entry.when[:10],
        signer=signer,
        size=size,
        size_of=size_of,
        lock=entry.locked,
        image=image,
        direct=about.direct,
        proofs=_list_proofs(history),
        roots=dependency_tree(lock),
        tiles=lay_out_treemap(layers),
        sizes=tuple(sizes),
        history=tuple(_list_history(history, library)),
        commands=commands,
        recipe=taken.recipe_text,
        post=taken.recipe.system.post,
    )


def _list_proofs(history: Sequence[StoredEntry]) -> tuple[CheckProof, ...]:
    """Return the newest lock's verdicts by GPU, driver, target and level, newest first."""
    locked = history[-1].entry.locked
    found: dict[tuple[str, str, str, str], CheckProof] = {}
    for stored in history:
        for one in stored.entry.verdicts if stored.entry.locked == locked else ():
            key = (", ".join(one.gpu), one.driver or "", one.target or "", one.level)
            found[key] = CheckProof(
                outcome=one.outcome,
                level=one.level,
                day=one.when[:10],
                gpu=key[0],
                driver=key[1],
                target=key[2],
            )
    return tuple(sorted(found.values(), key=lambda proof: proof.day, reverse=True))


def _list_history(history: Sequence[StoredEntry], library: ShelfClient) -> Iterator[HistoryEntry]:
    """Yield the history of a name, newest first, with what changed in the lock each time."""
    locks: dict[str, Lock] = {}

    def lock_of(entry: Entry) -> Lock:
        if entry.lock not in locks:
            locks[entry.lock] = parse_lock(
                library.read_object(entry.lock, "lock").decode(), entry.slot
            )
        return locks[entry.lock]

    for number in range(len(history) - 1, -1, -1):
        stored, before = history[number], history[number - 1] if number else None
        notes: Texts = ()
        if before is not None and before.entry.locked != stored.entry.locked:
            notes = tuple(
                str(change) for change in lock_changes(lock_of(before.entry), lock_of(stored.entry))
            )
        yield HistoryEntry(
            number=stored.entry.number,
            digest=stored.digest,
            day=stored.entry.when[:10],
            who=stored.entry.who,
            changes=notes[:MOST_CHANGES],
            same_lock=before is not None and before.entry.locked == stored.entry.locked,
        )


def _layer_packages(lock: Lock) -> dict[str, list[tuple[str, str, int]]]:
    rows: dict[str, list[tuple[str, str, int]]] = {
        "base": [],
        "system": [],
        "framework": [],
        "packages": [],
    }
    if not lock.is_bootstrap:
        rows["base"].append((lock.base.reference, short_digest(lock.base.digest), lock.base.size))
    for deb in lock.installed_debian:
        layer = "base" if deb.group == "base" else "system"
        rows[layer].append((deb.name, deb.version, deb.size))
    for conda in lock.conda:
        rows.setdefault("conda", []).append((conda.name, conda.version, conda.size))
    for package in lock.installed:
        layer = "framework" if package.group == "framework" else "packages"
        rows[layer].append((package.name, package.version, package.size))
    return rows


def layer_sizes(lock: Lock) -> dict[str, list[tuple[str, int]]]:
    """Return (name, bytes to download) of everything in an image, by layer."""
    return {
        layer: [(name, size) for name, _, size in rows]
        for layer, rows in _layer_packages(lock).items()
    }


def dependency_tree(lock: Lock) -> tuple[DependencyNode, ...]:
    """Return the direct requirements as trees; a package's needs are drawn once."""
    packages = {p.name: p for p in lock.installed}
    needs: dict[str, list[PythonPackage]] = {}
    for package in packages.values():
        for source in package.via:
            needs.setdefault(source, []).append(package)
    drawn: set[str] = set()

    def branch(package: PythonPackage, depth: int) -> DependencyNode:
        again = package.name in drawn and bool(needs.get(package.name))
        drawn.add(package.name)
        below = []
        if not again and depth < DEEPEST:
            below = sorted(needs.get(package.name, ()), key=lambda p: p.name)
        return DependencyNode(
            name=package.name,
            version=package.version,
            size=package.size,
            needs=tuple(branch(one, depth + 1) for one in below),
            again=again,
        )

    roots = sorted(needs.get(DIRECT, ()), key=lambda p: p.name)
    return tuple(branch(package, 0) for package in roots)


WIDTH, HEIGHT = 1000.0, 500.0
SMALLEST = 0.004
"""Share of the whole below which packages go into one tile."""


def lay_out_treemap(layers: Mapping[str, Sequence[tuple[str, int]]]) -> tuple[TreemapTile, ...]:
    """Lay out (name, bytes) of each layer, largest first; layers without bytes are left out."""
    sums = {layer: sum(size for _, size in rows) for layer, rows in layers.items()}
    whole = sum(sums.values())
    order = sorted(filter(sums.get, sums), key=sums.__getitem__, reverse=True)
    boxes = _lay_out_boxes([sums[layer] for layer in order], 0, 0, WIDTH, HEIGHT)
    tiles: list[TreemapTile] = []
    for layer, box in zip(order, boxes, strict=True):
        rows = _group_small(layers[layer], whole)
        inner = _lay_out_boxes([size for _, size in rows], **box)
        for (name, size), place in zip(rows, inner, strict=True):
            rounded = {key: round(value, 1) for key, value in place.items()}
            tiles.append(TreemapTile(**rounded, layer=layer, label=name, size=size))
    return tuple(tiles)


def _group_small(rows: Sequence[tuple[str, int]], whole: int) -> list[tuple[str, int]]:
    large = [(name, size) for name, size in rows if size >= whole * SMALLEST and size > 0]
    rest = [size for _, size in rows if 0 < size < whole * SMALLEST]
    if rest:
        large.append((f"{len(rest)} smaller", sum(rest)))
    return sorted(large, key=lambda row: (-row[1], row[0]))


def _lay_out_boxes(
    sizes: Sequence[int], x: float, y: float, width: float, height: float
) -> list[dict[str, float]]:
    """Return a rectangle for each size, which are in descending order."""
    if not sizes:
        return []
    scaled = squarify.normalize_sizes(sizes, width, height)
    found: list[dict[str, float]] = squarify.squarify(scaled, x, y, width, height)
    names = {"x": "x", "y": "y", "dx": "width", "dy": "height"}
    return [{name: box[key] for key, name in names.items()} for box in found]
