"""Programs that envbuild hands to another process or writes into an image, kept as files."""

from __future__ import annotations

import re
from importlib import resources

FOR_SHELLCHECK = re.compile(r"\A(#!.*\n)?# shellcheck .*\n")


def read_script(package: str, path: str, **values: str) -> str:
    """Return a script's text without its comment for shellcheck, ``@name@`` replaced by a value.

    ``path`` is relative to the folder of ``package``.
    """
    text = resources.files(package).joinpath(path).read_text("utf-8")
    text = FOR_SHELLCHECK.sub(lambda found: found[1] or "", text)
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
