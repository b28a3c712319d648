"""Site files of the project's folder, which may have come with a copied project.

Some keys of a site file run code on the node outside of the image, or show folders to it.
"""

from __future__ import annotations

from envbuild.errors import UsageError
from envbuild.job.sites.find import FOLDER, own_folder, site_files
from envbuild.job.sites.site import Site
from envbuild.settings import Settings
from envbuild.store.layout import open_store
from envbuild.store.own_records import is_own, note_own
from envbuild.toml import read_toml


def note_site(name: str, settings: Settings) -> None:
    """Note that the user means the file of ./sites with this name, as it is now."""
    _, text = read_toml(settings.cwd / FOLDER / f"{name}.toml")
    note_own(text.encode(), open_store(settings))


def require_believed(site: Site, settings: Settings) -> None:
    """Raise UsageError for a site of ./sites that has such keys, and that the user has not named."""
    path = settings.cwd / FOLDER / f"{site.name}.toml"
    if not path.exists():
        return
    keys = powerful_keys(site)
    _, text = read_toml(path)
    if not keys or is_own(text.encode(), open_store(settings)):
        return
    shown = f"{FOLDER}/{path.name}"
    raise UsageError(
        "this file of the project's folder sets what acts outside of the image, and may have come "
        f"with the folder: {', '.join(keys)}",
        where=shown,
        hint=f"read it; if you mean it, name it by its path once: --on {shown}\n"
        f"or keep it in {own_folder(settings)}",
    )


def hidden_site(name: str, settings: Settings) -> str | None:
    """Say which site a file of ./sites hides, None where it hides none."""
    if not (settings.cwd / FOLDER / f"{name}.toml").exists():
        return None
    others = site_files(settings, project=False)
    if name not in others:
        return None
    hidden = others[name] or "the one that envbuild ships"
    return f"{FOLDER}/{name}.toml of this folder is used, and hides {hidden}"


def powerful_keys(site: Site) -> list[str]:
    """Return the keys of a site that act outside of the image, of those that it sets."""
    values = {
        "[fields] options": site.fields.options,
        "[fields] interactive": site.fields.interactive,
        "[folders] caches": site.folders.caches,
        "[modules] init": site.modules.init,
        "[runtime] flags": site.runtime.flags,
        "[runtime] binds": site.runtime.binds,
        "[runtime] environment": site.runtime.environment,
        "[mpi] arguments": site.mpi.arguments,
        "[mpi] environment": site.mpi.environment,
        "[mpi] inside": site.mpi.inside,
        "[mpi] binds": site.mpi.binds,
        "[pbs] chunk": site.pbs.chunk,
    }
    return [key for key, value in values.items() if value]
