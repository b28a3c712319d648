"""Take apart the name of an image in a registry: ``[HOST[:PORT]/]PATH[:TAG][@sha256:…]``."""

from __future__ import annotations

import re

from envbuild.errors import UsageError
from envbuild.records import frozen_record, replace

HUB = "docker.io"
"""The registry that a name without a host stands for."""
PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
NAME = re.compile(rf"{PART}(?:/{PART})*")
"""A repository (OCI distribution specification 1.1, "Pulling manifests")."""
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
HINT = "write docker://NAME:TAG, or docker://HOST/NAME:TAG for another registry than Docker Hub"
HOST = re.compile(r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")


@frozen_record
class ImageName:
    """An image in a registry; ``digest`` (``sha256:…``) wins over ``tag``."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def reference(self) -> str:
        """What a registry is asked for: the digest, else the tag, else "latest"."""
        return self.digest or self.tag or "latest"

    @property
    def short(self) -> str:
        """The name without tag and digest, as people write it."""
        if self.registry != HUB:
            return f"{self.registry}/{self.repository}"
        return self.repository.removeprefix("library/")

    def at(self, digest: str) -> str:
        """Return the name with this digest, as a definition names it."""
        return f"{self.short}@{digest}"

    def with_digest(self, digest: str) -> ImageName:
        """Return the image that this digest names, in the same repository."""
        return replace(self, digest=digest)


def parse_image_name(text: str) -> ImageName:
    """Read a name such as ``tensorflow/tensorflow:2.15.0-gpu``.

    Raises UsageError naming the part at fault.
    """
    rest, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise UsageError(
            f"{digest[:90]!r} is not a digest", where=text, hint="write @sha256: and 64 hex digits"
        )
    host, slash, path = rest.partition("/")
    if not slash or not (re.search(r"[.:\[]", host) or host == "localhost"):
        host, path = HUB, rest
    path, colon, tag = path.partition(":")
    if not HOST.fullmatch(host):
        raise UsageError(f"{host!r} is not the host of a registry", where=text, hint=HINT)
    if colon and not TAG.fullmatch(tag):
        hint = "a tag has letters, digits, dot, underscore and hyphen, at most 128"
        raise UsageError(f"{tag[:90]!r} is not a tag", where=text, hint=hint)
    if not NAME.fullmatch(path) or len(path) > 255:
        lower = f"; did you mean {path.lower()!r}?" if NAME.fullmatch(path.lower()) else ""
        raise UsageError(f"{path[:90]!r} is not the name of an image{lower}", where=text, hint=HINT)
    if host == HUB and "/" not in path:
        path = f"library/{path}"
    return ImageName(registry=host, repository=path, tag=tag or None, digest=digest or None)
