"""Programs that envbuild hands to another process or writes into an image, kept as files."""

from __future__ import annotations

import re
from importlib import resources

from envbuild.names import Texts

FOR_SHELLCHECK = re.compile(r"\A(#!.*\n)?# shellcheck .*\n")
NAMES = re.compile(r"^@(\w+)@\n|@(\w+)@", re.MULTILINE)


def read_script(package: str, path: str, **values: str | Texts) -> str:
    """Return a script's text without its comment for shellcheck, ``@name@`` replaced by a value.

    ``path`` is relative to the folder of ``package``.  A line that is one name alone stands for all
    lines of its value, which may be none.
    """

    def fill_in(found: re.Match[str]) -> str:
        value = values.get(found[1] or found[2], found[0])
        if isinstance(value, str):
            return f"{value}\n" if found[1] in values else value
        return "".join(f"{line}\n" for line in value)

    text = resources.files(package).joinpath(path).read_text("utf-8")
    text = FOR_SHELLCHECK.sub(lambda found: found[1] or "", text)
    return NAMES.sub(fill_in, text)
