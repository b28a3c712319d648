"""Take apart how a person names a base."""

from __future__ import annotations

import re

from envbuild.base.debian.distribution import DEBIAN
from envbuild.base.model import BaseReference
from envbuild.errors import UsageError
from envbuild.formats.image_name import parse_image_name
from envbuild.names import BASE_KINDS
from envbuild.toml import closest

SUITES = ("bullseye", "bookworm", "trixie")
"""Debian releases that bootstrap into a base with Python 3.9, 3.11 and 3.13."""
IMAGE_NAME = re.compile(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*(:[\w.-]+|@sha256:[0-9a-f]+)?")
LATER = ("library", "shub", "http", "https")
FORMS = (
    'an image of a registry such as "docker://tensorflow/tensorflow:2.15.0-gpu", a bootstrap such as '
    '"debian:bookworm", or the path of an image such as "images/base.sif"'
)


def parse_reference(text: str) -> BaseReference:
    """Read the name of a base: "docker://NAME", "oci-archive:FILE", "debian:SUITE", a ``.sif``.

    Raises UsageError, naming the known forms, for everything else.
    """
    written = text.strip()
    if not written or not written.isprintable():
        raise UsageError("names no base", where=repr(text), hint=f"write {FORMS}")
    if written.endswith(".sif") and "://" not in written:
        return BaseReference(kind=BASE_KINDS["sif"], name=written, text=written)
    scheme, colon, rest = written.partition(":")
    if scheme == "debian" and colon:
        return BaseReference(
            kind=BASE_KINDS["debian"], name=_require_suite(rest, written), text=written
        )
    kind = BASE_KINDS.get(scheme)
    if kind is not None and kind.in_registry and rest.startswith("//"):
        parse_image_name(rest[2:])
        return BaseReference(kind=kind, name=rest[2:], text=written)
    if kind is not None and kind.in_file and rest and not rest.startswith("//"):
        return BaseReference(kind=kind, name=rest, text=written)
    if colon and scheme in LATER:
        origin = f"{scheme}:{'//' if rest.startswith('//') else ''}"
        raise UsageError(
            f"bases from {origin} are not supported by this version",
            where=written,
            hint=f"make a file of it once (apptainer pull base.sif {written}) "
            'and name that: "base.sif"',
        )
    meant = FORMS
    if kind is not None and kind.in_registry:
        meant = f"{scheme}://{rest}"
    elif IMAGE_NAME.fullmatch(written) and ("/" in written or colon):
        meant = f"docker://{written}"
    raise UsageError("is not a base that envbuild knows", where=written, hint=f"write {meant}")


def _require_suite(name: str, written: str) -> str:
    if name in SUITES:
        return name
    if name in DEBIAN.moving:
        what = f'"{name}" means another release every two years'
    elif name[:1].isdigit() or not name:
        what = "a Debian release is named by its code name"
    else:
        what = f'"{name}" is not a Debian release that envbuild bootstraps{closest(name, SUITES)}'
    raise UsageError(
        what,
        where=written,
        hint=f"write one of: {', '.join(f'debian:{suite}' for suite in SUITES)}",
    )
