"""``envbuild shelf site``: the shelf as static pages, with the commands for every site that this user knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from envbuild.app.shelf.entry import open_only_shelf
from envbuild.context import Context
from envbuild.job.schedulers import features_of
from envbuild.job.sites.find import read_sites, site_files
from envbuild.shelf.model import Entry
from envbuild.shelf.site.gather import entry_pages
from envbuild.shelf.site.model import PageCommand
from envbuild.shelf.site.write import write_site


def write_pages(context: Context, folder: Path, shelf: str | None) -> int:
    """Write the pages of one shelf, say which names are refused, and return how many pages there are."""
    library = open_only_shelf(context, shelf)
    with context.report.stage(f"read {library.name}"):
        found = tuple(entry_pages(library, _commands_for(library.name, context)))
    with context.report.stage("write the pages"):
        count = write_site(folder, library.name, found)
    for leaf in found:
        if leaf.refused:
            context.report.say(f"{leaf.name} is shown as not to be used: {leaf.refused}")
    return count


def _commands_for(shelf: str, context: Context) -> Callable[[Entry], Sequence[PageCommand]]:
    """Return what tells the commands of an entry; the sites are read once."""
    sites = read_sites(sorted(site_files(context.settings)), context)
    open_sites = [(name, site) for name, site in sites.items() if not site.site.retired]

    def commands(entry: Entry) -> Sequence[PageCommand]:
        name = entry.name
        found = [
            PageCommand(title="Make the image here", lines=f"envbuild make {shelf}/{name}"),
            PageCommand(
                title="Take recipe and lock to build on", lines=f"envbuild shelf get {shelf}/{name}"
            ),
            PageCommand(
                title="Run something in it here", lines=f"envbuild exec {name} -- python train.py"
            ),
        ]
        for site, told in open_sites:
            summary = f" ({told.site.summary})" if told.site.summary else ""
            lines = (
                f"envbuild submit {name} --on {site} -- python train.py\n"
                f"# or look at the script first:\n"
                f"envbuild job {name} --for {site} -- python train.py > job.sh\n"
                f"{features_of(told).by_hand}"
            )
            found.append(PageCommand(title=f"As a job on {site}{summary}", lines=lines))
        return found

    return commands
