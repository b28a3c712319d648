"""What is to be built, and what came out."""

from __future__ import annotations

from pathlib import Path

import msgspec

from envbuild.formats.block_codec import Codec
from envbuild.lock.model import Lock
from envbuild.names import Texts
from envbuild.plan.model import Definition
from envbuild.recipe.model import Recipe
from envbuild.records import frozen_record


@frozen_record
class BuildSpec:
    """One image to make.

    ``definition`` is its whole text and ``plan`` what that was written from; ``mode`` is the way to
    build; ``codec`` packs its blocks; ``target`` is its final name.
    """

    recipe: Recipe
    lock: Lock
    plan: Definition
    definition: str
    mode: str
    codec: Codec
    target: Path


@frozen_record
class UnnamedImage:
    """An image that is whole and has no final name yet.

    ``digest`` is None where nobody has computed it; ``built`` says that it was not there before.
    """

    path: Path
    digest: str | None
    built: bool


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the store remembers of an image that was put together from layers.

    ``digest`` is the image digest, ``frame`` that of all that is no object of the SIF ("" where an
    older envbuild made it), ``tree`` the tree digest, ``lock`` the lock's, ``size`` the file's
    bytes; ``layers`` are names and the keys of their parts, lowest first; ``packer`` is what
    decides the bytes; ``envbuild`` is the version that made it, which the image itself does not
    say.
    """

    digest: str
    tree: str
    size: int
    packer: str
    layers: tuple[tuple[str, Texts], ...]
    frame: str = ""
    lock: str = ""
    envbuild: str = ""


@frozen_record
class DefinitionBuild:
    """One image to build from its definition.

    ``definition`` is the whole text and ``plan`` what it was written from; ``files`` is a folder
    with ``python/`` and ``debian/`` that holds every locked file under its own name, in a folder of
    its own; ``root`` is the tar of the bootstrapped root, None where the base is an image;
    ``target`` is a path of the caller's working folder, never a final name; ``scratch`` is an empty
    folder that the build sees as /tmp; ``tmpdir`` is where the runtime unpacks; ``log`` takes all
    output.
    """

    name: str
    lock: Lock
    codec: Codec
    plan: Definition
    definition: str
    files: Path
    root: Path | None
    target: Path
    scratch: Path
    tmpdir: Path
    log: Path


@frozen_record
class Estimate:
    """What a build will take: bytes to download, bytes in the store, in TMPDIR and of the image.

    Seconds in all.
    """

    download: int
    store: int
    temporary: int
    image: int
    seconds: float
