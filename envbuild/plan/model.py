"""The definition record.

What an image is made of, before it becomes text in one syntax or another.
"""

from __future__ import annotations

from envbuild.names import Pairs, Texts
from envbuild.records import frozen_record


@frozen_record
class Definition:
    """A container definition.

    ``header`` are the bootstrap lines; ``setup``, ``post``, ``test`` and ``runscript`` are shell
    scripts, line by line (setup on the host, the others inside); ``environment`` and ``labels`` are
    plain values, quoted by the renderer; ``path`` are folders that come before the base's own in
    PATH; ``comment`` and ``help`` are text.
    """

    comment: Texts
    header: Pairs
    setup: Texts = ()
    post: Texts = ()
    environment: Pairs = ()
    path: Texts = ()
    labels: Pairs = ()
    test: Texts = ()
    runscript: Texts = ()
    help: Texts = ()
