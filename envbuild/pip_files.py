"""Read pip's configuration files (pip's documentation, "Configuration"): index and certificates."""

from __future__ import annotations

import sys
from pathlib import Path

from envbuild.errors import UsageError
from envbuild.limits import readable
from envbuild.names import Paths, Variables

SECTIONS = ("install", "download", "global")
"""What pip reads for a download, the strongest first."""


def config_folders(env: Variables, home: Path) -> Paths:
    """Return the folders of settings, the user's first (XDG Base Directory Specification)."""
    user = env.get("XDG_CONFIG_HOME") or home / ".config"
    system = (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    return tuple(map(Path, (user, *filter(None, system))))


def pip_files(env: Variables, home: Path) -> Paths:
    """Return pip's configuration files, whether they are there or not, the strongest first."""
    own = env.get("PIP_CONFIG_FILE")
    if own == "/dev/null":
        return ()  # pip's way to switch all of them off
    user, *system = config_folders(env, home)
    return (
        *([Path(own)] if own else []),
        Path(sys.prefix) / "pip.conf",
        user / "pip" / "pip.conf",
        home / ".pip" / "pip.conf",
        Path("/etc/pip.conf"),
        *(folder / "pip" / "pip.conf" for folder in system),
    )


def read_pip_option(path: Path, option: str) -> str | None:
    """Return what one file says of an option ("index-url"), None where it says nothing.

    Raises UsageError for a file that cannot be read.
    """
    with readable(path):
        text = path.read_text("utf-8", "replace") if path.is_file() else ""
    if not text:
        return None
    import configparser  # late: most machines have no such file

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text, source=str(path))
    except configparser.Error as error:
        what = f"is not a configuration file of pip: {error.message.splitlines()[0]}"
        raise UsageError(what, where=path) from error
    for section in SECTIONS:
        for key in (option, option.replace("-", "_")):
            value = parser.get(section, key, fallback="").strip()
            if value:
                return value
    return None
