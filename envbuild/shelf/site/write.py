"""Write an index and a page for each name, with style and script inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from envbuild import __version__
from envbuild.html_pages import make_environment
from envbuild.shelf.site.model import EntryPage
from envbuild.store.atomic import write_text
from envbuild.store.units import human_bytes


def write_site(folder: Path, shelf: str, leaves: Sequence[EntryPage]) -> int:
    """Write ``index.html`` and ``recipes/NAME.html`` for every leaf; return how many pages.

    Whatever a shelf says is shown as text, never as markup (autoescape); a content security policy
    allows the page's own style and script by hash and nothing else.  Raises SpaceError or
    HostError.
    """
    environment = make_environment("envbuild.shelf.site")
    environment.filters["bytes"] = human_bytes
    style, script = (environment.get_template(name).render() for name in ("style.css", "script.js"))
    policy = f"default-src 'none'; style-src '{_policy_hash(style)}'; script-src '{_policy_hash(script)}'"
    common = {
        "shelf": shelf,
        "style": style,
        "script": script,
        "policy": policy,
        "version": __version__,
    }
    page = environment.get_template("entry.html")
    for leaf in leaves:
        write_text(folder / "recipes" / f"{leaf.name}.html", page.render(leaf=leaf, **common))
    # last: it links to the others
    write_text(
        folder / "index.html",
        environment.get_template("index.html").render(leaves=leaves, **common),
    )
    return len(leaves) + 1


def _policy_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
