"""What requirements and shelves do about a failure of git's that may pass: ask again."""

from __future__ import annotations

import re
from collections.abc import Callable

from envbuild.net.redact import mask_users
from envbuild.net.web import PassingError, with_retries
from envbuild.run import Result

PASSING = re.compile(
    r"^.*(?:(?:returned error:|HTTP) (?:408|425|429|50[02-9])\b"
    r"|Connection (?:refused|reset|timed out|closed)|Failed to connect|Couldn't connect|Empty reply"
    r"|transfer closed|Could not resolve host|curl (?:16|18|52|55|56|92) ).*$",
    re.MULTILINE,
)
"""Lines of git 2.39 with libcurl 7.88, and of OpenSSH 9.2, about a server that may answer soon."""


def ask_patiently(run: Callable[[], Result], url: str, hint: str) -> Result:
    """Run git, again after pauses where its failure may pass; return how it ended.

    Raises NetworkError with ``hint`` where it fails so again and again.
    """

    def ask() -> Result:
        result = run()
        line = PASSING.search(result.stderr) if result.code else None
        if line:
            raise PassingError(f"cannot be reached: {mask_users(line[0])}", hint=hint)
        return result

    return with_retries(ask, url=url)
