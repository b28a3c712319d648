"""Find and read site files: the user's own, those beside the recipes, and the shipped ones."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from envbuild.context import Context
from envbuild.errors import EnvbuildError, UsageError
from envbuild.job.request.units import parse_memory, parse_walltime
from envbuild.job.schedulers import SCHEDULERS
from envbuild.job.schedulers.protocol import check_owned, check_quotes
from envbuild.job.sites.site import Site
from envbuild.settings import Settings
from envbuild.toml import closest, convert, line_of, parse_toml, place_of, read_toml

FOLDER = "sites"


def own_folder(settings: Settings) -> Path:
    """Return the folder of the user's own site files, beside the settings file."""
    return settings.config.parent / FOLDER


def site_files(settings: Settings, *, project: bool = True) -> dict[str, Path | None]:
    """Return every site by name with its file, None for a shipped one.

    ./sites hides the user's, those the shipped; ``project`` tells whether ./sites counts.
    """
    found: dict[str, Path | None] = {}
    here = [settings.cwd / FOLDER] if project else []
    for folder in (*here, own_folder(settings)):
        for path in sorted(folder.glob("*.toml")):
            found.setdefault(path.stem, path)
    for item in sorted(
        resources.files("envbuild.data").joinpath(FOLDER).iterdir(), key=lambda item: item.name
    ):
        if item.name.endswith(".toml"):
            found.setdefault(item.name.removesuffix(".toml"), None)
    return found


def load_site(name: str, settings: Settings) -> Site:
    """Read a site by name, or from a file where the name ends with .toml.

    Raises UsageError: no such site (the nearest is told), or a file that does not parse, naming
    line and key.
    """
    if name.endswith(".toml") or "/" in name:
        return _read(*read_toml(settings.cwd / name), name, Path(name).stem)
    known = site_files(settings)
    if name not in known:
        raise UsageError(
            f'there is no site called "{name}"{closest(name, known)}',
            hint="envbuild site list shows them; envbuild site init writes one for the machine it runs on",
        )
    path = known[name]
    if path is not None:
        return _read(*read_toml(path), str(path), name)
    text = site_text(name, settings)
    return _read(parse_toml(text, f"{name}.toml"), text, f"{name}.toml", name)


def read_sites(names: Iterable[str], context: Context) -> dict[str, Site]:
    """Read sites by name; a file that cannot be read is named and left out."""
    sites = {name: _try_to_load(name, context) for name in names}
    return {name: site for name, site in sites.items() if site is not None}


def _try_to_load(name: str, context: Context) -> Site | None:
    try:
        return load_site(name, context.settings)
    except EnvbuildError as error:
        context.report.say(f"site {name} is left out: {error}")
        return None


def site_text(name: str, settings: Settings) -> str:
    """Return the text of a site file."""
    path = settings.cwd / name if name.endswith(".toml") else site_files(settings)[name]
    item = (
        resources.files("envbuild.data").joinpath(FOLDER).joinpath(f"{name}.toml")
        if path is None
        else path
    )
    return item.read_text("utf-8")


def _read(data: object, text: str, where: str, stem: str) -> Site:
    site = convert(data, Site, text=text, where=where)
    if site.name != stem:
        raise UsageError(
            f'[site] name is "{site.name}", but the file is called {stem}.toml',
            where=place_of(where, text, "site", "name"),
        )
    _check_dialect(site, text, where)
    _check_amounts(site, text, where)
    return site


def _check_amounts(site: Site, text: str, where: str) -> None:
    limits = site.limits
    for key, value in (
        ("walltime", limits.walltime),
        ("interactive-walltime", limits.interactive_walltime),
        ("trial-walltime", limits.trial_walltime),
    ):
        if value is not None:
            parse_walltime(value, place_of(where, text, "limits", key))
    for queue in site.partition:
        if queue.walltime is not None:
            parse_walltime(queue.walltime, f"{where}, [[partition]] {queue.name}, walltime")
    for row in site.type:
        if row.memory:
            parse_memory(row.memory, f"{where}, [[type]] {row.name}, memory")
    parse_walltime(site.build.walltime, place_of(where, text, "build", "walltime"))
    parse_memory(site.build.memory, place_of(where, text, "build", "memory"))


def _check_dialect(site: Site, text: str, where: str) -> None:
    """Refuse a site file whose sections contradict each other."""
    name, gpu = site.site.scheduler, site.resources.gpu
    if name not in SCHEDULERS:
        line = line_of(text, ("site", "scheduler"))
        known = ", ".join(SCHEDULERS)
        raise UsageError(
            f"there is no scheduler {name!r}{closest(name, SCHEDULERS)}",
            where=f"{where}, line {line}",
            hint=f"known: {known}",
        )
    features = SCHEDULERS[name].features
    place = place_of(where, text, "resources", "gpu")
    if gpu not in features.gpu_dialects:
        known = ", ".join(features.gpu_dialects)
        raise UsageError(
            f'[resources] gpu = "{gpu}" is not for {name}; known there: {known}', where=place
        )
    if gpu == "type" and not site.type:
        raise UsageError('[resources] gpu = "type" needs at least one [[type]]', where=place)
    if gpu == "type" and features.types_only and site.resources.cpus != "fixed":
        raise UsageError(
            '[resources] gpu = "type" goes with cpus = "fixed": the type has them', where=place
        )
    for key, options in (
        ("options", site.fields.options),
        ("interactive", site.fields.interactive),
    ):
        place = f"{where}, line {line_of(text, ('fields', key))}"
        for option in options:
            check_quotes(option, place)
        check_owned(features, options, place)
    _check_names(site, text, where)


def _check_names(site: Site, text: str, where: str) -> None:
    """Refuse a node type or queue that is there twice, and a build on a type that is not."""
    types, queues = [row.name for row in site.type], [row.name for row in site.partition]
    for section, names in (("type", types), ("partition", queues)):
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UsageError("is there twice", where=f"{where}, [[{section}]] {twice[0]}")
    build = site.build.type
    if build is not None and build not in types:
        place = f"{where}, line {line_of(text, ('build', 'type'))}"
        raise UsageError(f'[build] type = "{build}": no [[type]] is called so', where=place)
