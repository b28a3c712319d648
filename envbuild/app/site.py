"""Which cluster (site) a verb is asked for."""

from __future__ import annotations

from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.job.sites.believe import hidden_site, note_site, require_believed
from envbuild.job.sites.find import FOLDER, load_site, site_files
from envbuild.job.sites.site import Site


def find_site(text: str | None, context: Context) -> Site:
    """Return the site that is meant: by name, ENVBUILD_SITE, else the only one of the user's own."""
    text = text or context.settings.environment.get("ENVBUILD_SITE")
    if text:
        return load_site(text.partition(":")[0], context.settings)
    own = [name for name, path in site_files(context.settings).items() if path is not None]
    if len(own) == 1:
        return load_site(own[0], context.settings)
    raise UsageError(
        "which site?",
        where="--on",
        hint="--on SITE, or export ENVBUILD_SITE=SITE (envbuild site list shows them; --on local is this machine)",
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
