"""Gather what is published together: recipe, lock, definition, check script, image and verdicts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

import msgspec
from msgspec import structs

from envbuild import __version__
from envbuild.base.gpu import conda_cuda
from envbuild.check.model import Report
from envbuild.errors import UsageError
from envbuild.limits import SCRIPT, read_whole
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.lock.write import write_lock
from envbuild.plan.apptainer import render_definition
from envbuild.plan.definition import plan_definition
from envbuild.recipe.model import Recipe, Source
from envbuild.shelf.backend import BIGGEST_TEXT
from envbuild.shelf.model import CheckSummary, Entry, EntrySummary, ImageDescriptor
from envbuild.shelf.policy import refuse_lock, refuse_recipe
from envbuild.store.hashing import digest_of
from envbuild.store.units import human_bytes

MOST_VERDICTS = 50
CUDA_WHEEL = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")
"""The wheel whose version is that of the CUDA which a framework from wheels brings along."""


@dataclass(kw_only=True, slots=True)
class EntryDraft:
    """An entry that has no number yet, and the bytes that it names."""

    entry: Entry
    objects: dict[str, bytes] = field(default_factory=dict)


def draft_entry(
    source: Source,
    lock: Lock,
    *,
    who: str,
    image: ImageDescriptor | None = None,
    reports: Sequence[Report] = (),
) -> EntryDraft:
    """Return the draft of a recipe with its lock.

    ``reports`` are about the image.  Raises UsageError for what may not be on a shelf,
    IntegrityError for a lock that is not the recipe's.
    """
    recipe, where = source.recipe, str(source.path)
    refuse_recipe(source.text, where)
    refuse_lock(recipe, lock, str(source.lock))
    objects: dict[str, bytes] = {}

    def keep(data: bytes, what: str) -> str:
        if len(data) > BIGGEST_TEXT:
            raise UsageError(
                f"the {what} takes {human_bytes(len(data))}; a shelf takes {human_bytes(BIGGEST_TEXT)}"
            )
        objects[digest_of(data)] = data
        return digest_of(data)

    kept = tuple(
        (keep(_report_text(report, recipe.name), "check report"), report) for report in reports
    )
    entry = Entry(
        schema=1,
        name=recipe.name,
        number=1,
        previous=None,
        who=who,
        when=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        envbuild=__version__,
        recipe=keep(source.text.encode(), "recipe"),
        lock=keep(write_lock(lock).encode(), "lock"),
        locked=lock_digest(lock),
        definition=keep(render_definition(plan_definition(recipe, lock)).encode(), "definition"),
        script=keep(_read_script(source), "check script") if recipe.check.script else None,
        image=image,
        verdicts=tuple(summarize_report(digest, report) for digest, report in kept),
        about=summarize_entry(recipe, lock),
    )
    return EntryDraft(entry=entry, objects=objects)


def summarize_entry(recipe: Recipe, lock: Lock) -> EntrySummary:
    """Return what a search looks at."""
    base = lock.base
    wheels = [p.version for p in lock.python if CUDA_WHEEL.fullmatch(p.name)]
    of_conda = conda_cuda({package.name: package.version for package in lock.conda})
    framework = base.framework[:400] if base.framework else None
    cuda = of_conda or base.cuda or next(iter(wheels), None)
    return EntrySummary(
        summary=recipe.recipe.summary,
        base=base.reference[:400],
        framework=framework,
        cuda=cuda,
        python=lock.python_version,
        platform=lock.platform,
        direct=tuple(line[:400] for line in (*lock.direct, *lock.conda_direct)),
        packages=len(lock.installed) + len(lock.conda),
    )


def summarize_report(digest: str, report: Report) -> CheckSummary:
    """Return the gist of a report whose text has that digest."""
    return CheckSummary(
        report=digest,
        outcome=report.verdict,
        level=report.level,
        when=report.when,
        gpu=report.gpu,
        driver=report.driver,
        target=report.target,
    )


def with_earlier_checks(entry: Entry, earlier: Entry | None) -> Entry:
    """Return an entry with the earlier checks of the same image, oldest first."""
    if (
        earlier is None
        or earlier.image is None
        or entry.image is None
        or earlier.image.digest != entry.image.digest
    ):
        return entry
    new = {one.report for one in entry.verdicts}
    kept = tuple(one for one in earlier.verdicts if one.report not in new)
    return structs.replace(entry, verdicts=(*kept, *entry.verdicts)[-MOST_VERDICTS:])


def _report_text(report: Report, name: str) -> bytes:
    """Return a report as it is published: without the publisher's own path of the image."""
    public = structs.replace(report, image=f"{name}.sif")
    return msgspec.json.encode(public, order="sorted") + b"\n"


def _read_script(source: Source) -> bytes:
    path = source.path.parent / str(source.recipe.check.script)
    top = source.path.parent
    below = [place for place in (path, *path.parents) if place != top and place.is_relative_to(top)]
    if any(place.is_symlink() for place in below):
        raise UsageError("is a link; a shelf takes the file itself", where=path)
    try:
        data = read_whole(path, SCRIPT)
        data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read as text: {error}", where=path) from error
    return data
