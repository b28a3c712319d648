"""Which cluster (site) a verb is asked for."""

from __future__ import annotations

from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.job.sites.believe import hidden_site, note_site, require_believed
from envbuild.job.sites.find import FOLDER, load_site, read_sites, site_files
from envbuild.job.sites.site import Site
from envbuild.settings import Settings

LOCAL = "local"
"""The site that is this machine, without a scheduler."""
EXAMPLE = "amane"
"""A shipped site, which the documentation names too."""


def find_site(text: str | None, context: Context) -> Site:
    """Return the site: by name, by ENVBUILD_SITE, else the only one of the user's own."""
    text = text or context.settings.environment.get("ENVBUILD_SITE")
    if text:
        return load_site(text.partition(":")[0], context.settings)
    own = [name for name, path in site_files(context.settings).items() if path is not None]
    if len(own) == 1:
        return load_site(own[0], context.settings)
    readable = read_sites(own, context)
    if len(readable) == 1:
        return next(iter(readable.values()))
    raise no_site_error(context.settings)


def no_site_error(settings: Settings) -> UsageError:
    """Return the error that tells of sites by name, with a line to type; own ones come first."""
    known = site_files(settings)
    clusters = [name for name in known if name != LOCAL]
    own = [name for name in clusters if known[name] is not None]
    names = own or clusters
    example = names[0] if own else EXAMPLE
    return UsageError(
        "which site?",
        where="--on",
        hint=f"to run the job on this machine, add: --on {LOCAL}\n"
        f"for a cluster, its name, for instance: --on {example} (known: {', '.join(names)})\n"
        f"once for all commands: export ENVBUILD_SITE={example}\n"
        "for a cluster that is not among them, on its login node: envbuild site init",
    )


def find_job_site(text: str | None, context: Context) -> Site:
    """Return the site of a job, as ``find_site``, with all that it runs outside of the image.

    Naming a file of ./sites by its path tells that the user means it.  Raises UsageError for one
    that may have come with the folder.
    """
    settings = context.settings
    site = find_site(text, context)
    named = (text or settings.environment.get("ENVBUILD_SITE") or "").partition(":")[0]
    if named.endswith(".toml") or "/" in named:
        if (settings.cwd / named).resolve().parent == (settings.cwd / FOLDER).resolve():
            note_site(site.name, settings)
        return site
    if told := hidden_site(site.name, settings):
        context.report.say(f"note: {told}")
    require_believed(site, settings)
    return site
