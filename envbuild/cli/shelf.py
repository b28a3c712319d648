"""``envbuild shelf``: put locked recipes where the lab finds them; take what proves true."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from envbuild.app.shelf.entry import find_library, open_reachable, signed_by, write_entry
from envbuild.app.shelf.pages import write_pages
from envbuild.app.shelf.publish import Published, gather_publication, publish, refuse_failed
from envbuild.cli.complete import complete_shelf
from envbuild.cli.group import CommandGroup
from envbuild.cli.options import flag, path_option, recipe_argument, value_option
from envbuild.cli.output import (
    json_option,
    print_json,
    print_result,
    print_rows,
    print_table,
    print_text,
)
from envbuild.context import Context
from envbuild.errors import EnvbuildError, UsageError
from envbuild.shelf.config import (
    ShelfConfig,
    add_shelf,
    backend_of,
    normal_url,
    open_shelf,
    read_shelves,
    remove_shelf,
    require_name,
)
from envbuild.shelf.fetch import VerifiedEntry, fetch_entry
from envbuild.shelf.last_verified import last_verified_of
from envbuild.shelf.model import CheckSummary, EntrySummary
from envbuild.shelf.sanitize import sanitize_text
from envbuild.shelf.search import SearchResult, search_entries
from envbuild.shelf.signatures import read_signers
from envbuild.store.hashing import short_digest
from envbuild.store.units import count_noun, human_bytes


@click.group("shelf", cls=CommandGroup)
def command() -> None:
    """Share locked recipes, their verdicts and images with the lab: a folder or a git repository.

    NAME is a name on any of your shelves, or SHELF/NAME; NAME@DIGEST is one entry of its history.
    """


@command.command("add")
@click.argument("name")
@click.argument("url", metavar="URL")
@path_option(
    "--allowed-signers signers",
    "Pin who may sign (ssh-keygen's allowed_signers format); a copy is kept.",
    metavar="FILE",
)
@flag("--require-signed", "Accept only entries that a pinned key has signed.")
@json_option
@click.pass_obj
def add_command(
    context: Context,
    *,
    name: str,
    url: str,
    signers: Path | None,
    require_signed: bool,
    as_json: bool,
) -> None:
    """Give a shelf a name here, to use it; an empty folder or repository becomes a shelf.

    URL is a folder, or a bare git repository: git+file:///PATH, git+ssh://HOST/PATH,
    ssh://HOST/PATH, USER@HOST:PATH.
    """
    settings = context.settings
    require_name(name)
    if require_signed and signers is None:
        raise UsageError(
            "--require-signed needs to know whose signatures count",
            where="--require-signed",
            hint="--allowed-signers FILE",
        )
    place = normal_url(url, settings)
    known = read_shelves(settings).get(name)
    if known is not None and known.url != place:
        raise UsageError(f'"{name}" is {known.url} already', hint=f"envbuild shelf remove {name}")
    if signers is not None:
        read_signers(settings.cwd / signers)
    made = backend_of(place, context).create()
    shelf = ShelfConfig(url=place, pinned=signers is not None, require_signed=require_signed)
    add_shelf(name, shelf, settings.cwd / signers if signers else None, settings)
    if as_json:
        print_json({"shelf": name, "new": made, **msgspec.to_builtins(shelf)})
    context.report.say(f"{name}: {place}{' (made just now, empty)' if made else ''}")
    if signers is None:
        context.report.say(
            "no signature is asked for: whoever can write there decides what you get "
            "(--allowed-signers FILE)"
        )


@command.command("remove")
@click.argument("name", shell_complete=complete_shelf)
@flag("--forget", "Also forget which entries were verified there.")
@json_option
@click.pass_obj
def remove_command(context: Context, *, name: str, forget: bool, as_json: bool) -> None:
    """Stop using a shelf; the shelf itself stays as it is."""
    shelf = remove_shelf(name, context.settings)
    if forget:
        last_verified_of(shelf.url, context.settings).forget_all()
    if as_json:
        print_json({"shelf": name, "url": shelf.url, "forgotten": forget})
    context.report.say(f"{name} is no longer used; {shelf.url} is untouched")


@command.command("list")
@json_option
@click.pass_obj
def list_command(context: Context, *, as_json: bool) -> None:
    """List your shelves, how many names each holds, and whether signatures are required."""
    rows = []
    for name, shelf in read_shelves(context.settings).items():
        try:
            held: int | str = len(open_shelf(name, context).numbers)
        except EnvbuildError as error:
            held = f"not there: {error.what}"
        trust = "signatures checked" if shelf.pinned else "unsigned"
        if shelf.require_signed:
            trust = "signed only"
        rows.append((name, held, trust, shelf.url))
    columns, none = ("shelf", "names", "trust", "url"), "no shelves: envbuild shelf add SHELF URL"
    print_rows(columns, rows, as_json=as_json, none=none)


@command.command("publish")
@recipe_argument
@flag("--image with_image", "Also publish the image (./NAME.sif).")
@path_option("--sign key", "Sign with this ssh key.", metavar="KEY")
@value_option("--to shelf", "SHELF", "The shelf, if you have several.", complete_shelf)
@flag("--failed", "Publish although the check failed, without a question.")
@json_option
@click.pass_obj
def publish_command(
    context: Context,
    *,
    name: str | None,
    with_image: bool,
    key: Path | None,
    shelf: str | None,
    failed: bool,
    as_json: bool,
) -> None:
    """Put a recipe with its lock, definition, image digest and verdict on a shelf.

    Nothing is overwritten: the name points to the new entry, and the older entries stay.
    """
    publication = gather_publication(name, context, shelf=shelf, with_image=with_image, key=key)
    if publication.failed and not failed:
        question = f"its check failed ({publication.failed}). Publish all the same?"
        if not (sys.stdin.isatty() and click.confirm(question, err=True)):
            refuse_failed(publication)
    _print_published(publish(publication, context), context, as_json=as_json)


def _print_published(published: Published, context: Context, *, as_json: bool) -> None:
    shelf, stored = published.library.name, published.stored
    name, number = stored.entry.name, stored.entry.number
    if as_json:
        row = {"shelf": shelf, "name": name, "digest": stored.digest, "new": published.added}
        print_json({**row, "size": published.size})
        return
    title = f"{shelf}/{name}@{short_digest(stored.digest)}"
    if not published.added:
        context.report.say(f"{title} has this entry already")
        return
    after = f", after {number - 1} earlier" if number > 1 else ""
    print_text(f"{title}: published{after}, {human_bytes(published.size)} new")
    if not published.has_image:
        what = "no image of this lock is here, so no verdict is published"
        context.report.say(f"{what} (envbuild make {name})")


@command.command("search")
@click.argument("words", metavar="[WORD…]", nargs=-1)
@value_option(
    "--framework", "NAME[==VERSION]", "Only with this framework: torch, tensorflow==2.15."
)
@value_option("--gpu", "CARD", "Only what passed its check on such a GPU: A100.")
@value_option("--cuda", "VERSION", "Only with this CUDA: 12, 12.4.")
@json_option
@click.pass_obj
def search_command(
    context: Context,
    *,
    words: Sequence[str],
    framework: str | None,
    gpu: str | None,
    cuda: str | None,
    as_json: bool,
) -> int:
    """Find recipes by words in their name, summary, base, framework and direct requirements.

    Exit code 1 when nothing was found.
    """
    rows = search_entries(open_reachable(context), words, framework=framework, gpu=gpu, cuda=cuda)
    if as_json:
        print_json(rows)
    elif not rows:
        context.report.say("nothing on your shelves fits")
    else:
        shown = [_search_row(row) for row in rows]
        print_table(list(shown[0]), [tuple(row.values()) for row in shown])
    return 0 if rows else 1


def _search_row(row: SearchResult) -> dict[str, object]:
    framework, cuda, verdict = (text or "-" for text in (row.framework, row.cuda, row.verdict))
    return {
        "name": f"{row.shelf}/{row.name}",
        "framework": framework,
        "cuda": cuda,
        "python": row.python,
        "image": "yes" if row.image else "-",
        "last verdict": verdict,
        "summary": sanitize_text(row.state or row.summary),
    }


@command.command("show")
@click.argument("name")
@flag("--json as_json", "Print the entry as JSON (envbuild schema --of entry).")
@click.pass_obj
def show_command(context: Context, *, name: str, as_json: bool) -> None:
    """Show what is published under a name, who signed it, its verdicts and its history."""
    library, bare, digest = find_library(context, name)
    taken = fetch_entry(library, bare, digest)
    if as_json:
        entry = msgspec.json.decode(taken.stored.data)
        signer = taken.signer.principal or taken.signer.key if taken.signer else None
        print_json({"digest": taken.stored.digest, "signer": signer, "entry": entry})
        return
    _print_card(
        taken,
        [(stored.digest, stored.entry.when, stored.entry.who) for stored in library.history(bare)],
    )


@command.command("get")
@click.argument("name", metavar="NAME[@DIGEST]")
@flag("--image with_image", "Also take the image, as ./NAME.sif.")
@flag("--force", "Replace files of these names that have other contents.")
@json_option
@click.pass_obj
def get_command(
    context: Context, *, name: str, with_image: bool, force: bool, as_json: bool
) -> None:
    """Write a published recipe, its lock and its check script into ./recipes and ./lockfiles, to build on it."""
    written = write_entry(context, name, with_image=with_image, force=force)
    print_result({"name": name, "files": written}, "\n".join(written), as_json=as_json)


@command.command("site")
@click.argument("folder", metavar="OUT", type=click.Path(path_type=Path, file_okay=False))
@value_option("--shelf", "SHELF", "The shelf, if you have several.", complete_shelf)
@json_option
@click.pass_obj
def site_command(context: Context, *, folder: Path, shelf: str | None, as_json: bool) -> None:
    """Write web pages about a shelf: a page for each recipe, search, sizes, changes.

    The pages are plain files. They ask no other server, and can be read without JavaScript.
    """
    index = context.settings.cwd / folder / "index.html"
    count = write_pages(context, index.parent, shelf)
    text = f"{index}: {count_noun(count, 'page')}"
    print_result({"index": str(index), "pages": count}, text, as_json=as_json)


def _print_card(taken: VerifiedEntry, history: list[tuple[str, str, str]]) -> None:
    entry, about = taken.stored.entry, taken.stored.entry.about
    summary = f": {sanitize_text(about.summary)}" if about.summary else ""
    print_text(f"{taken.title}{summary}")
    for title, text in _entry_rows(taken, history):
        print_text(f"  {title:<9}  {sanitize_text(text)}")
    print_text(f"  take it    envbuild make {taken.shelf}/{entry.name}")


def _entry_rows(
    taken: VerifiedEntry, history: list[tuple[str, str, str]]
) -> Iterator[tuple[str, str]]:
    entry = taken.stored.entry
    yield "holds", _entry_content(entry.about)
    yield "asks for", ", ".join(entry.about.direct) or "nothing"
    who = sanitize_text(entry.who)
    yield "by", f"{who} on {entry.when[:10]}; {signed_by(taken)}"
    yield "lock", entry.locked
    if entry.image is not None:
        where = "not kept here: make builds and compares it"
        if entry.image.pieces:
            where = human_bytes(entry.image.size)
        yield "image", f"{entry.image.digest} ({where})"
    for line in taken.recipe.system.post:
        yield "root runs", line
    for verdict in entry.verdicts:
        yield "verdict", _verdict_text(verdict)
    for digest, when, who in reversed(history):
        yield "history", f"{short_digest(digest)}  {when}  {who}"


def _entry_content(about: EntrySummary) -> str:
    framework = about.framework or "no framework"
    packages = count_noun(about.packages, "package")
    return f"{framework}, Python {about.python}, {about.base}, {packages}"


def _verdict_text(verdict: CheckSummary) -> str:
    text = f"{verdict.outcome} {verdict.when[:10]}, {verdict.level}"
    if verdict.gpu:
        cards = ", ".join(verdict.gpu)
        text += f" on {cards}, driver {verdict.driver}"
    return text
