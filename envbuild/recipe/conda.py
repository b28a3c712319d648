"""[conda] of a recipe: what its lines may be."""

from __future__ import annotations

import re

from envbuild.errors import UsageError
from envbuild.recipe.model import CondaSection

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
NUMBER = "[0-9]{1,9}([.][0-9]{1,9})*"
PLAIN = re.compile(
    rf"[a-z0-9_]+([.-][a-z0-9_]+)*(( ?==?| ){NUMBER}([.][*])?| ?(>=|<=|>|<){NUMBER}(,<{NUMBER})?)?"
)
"""Lines that every solver takes: they need not be asked of rattler, which is slow to import."""
ADDRESS = re.compile(r"\[[^\[]*\b(url|channel)\s*=")
"""Keys of a match spec that lead to another place: "libcurl=8.1" has none of them."""
HINT = 'write a name with bounds, such as "numpy 1.26.*", "pytorch >=2.5" or "r-base"'


def spec_name(spec: str) -> str:
    """Return the package that a match spec is about, "" where it names none: "forge::numpy 2"."""
    found = NAME.match(spec.rpartition("::")[2].strip())
    return found[0].lower() if found else ""


def check_conda(section: CondaSection) -> None:
    """Raise UsageError for the first line that names no package."""
    for line in section.dependencies:
        check_spec(line)


def check_spec(line: str) -> None:
    """Raise UsageError, with the line as written, for what names no package."""
    text = line.rpartition("::")[2].strip()
    if PLAIN.fullmatch(text):
        return
    from rattler import MatchSpec, exceptions

    is_address = "/" in line.split("[", maxsplit=1)[0] or ADDRESS.search(line)
    if is_address or not spec_name(line):
        what = f"{line!r} names no package"
        raise UsageError(f"{what}; addresses and files are not allowed here", hint=HINT)
    try:
        MatchSpec(text, strict=False)
    except (exceptions.InvalidMatchSpecError, exceptions.PackageNameMatcherParseError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{line!r} is not a match spec: {reason}", hint=HINT) from error
