"""Write a bundle: every locked file, the base, recipe, lock and definition, and envbuild itself."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from envbuild import __version__
from envbuild.base.debian.bootstrap import make_root
from envbuild.base.model import Header
from envbuild.base.oci.image import lay_out, stored_image
from envbuild.base.reference import parse_reference
from envbuild.build.fetch import fetch_files, locked_bootstrap
from envbuild.build.local_base import fetch_locked_base
from envbuild.build.model import BuildSpec
from envbuild.bundle.model import TABLE, Member, MemberPath, Table, Use
from envbuild.bundle.own import OwnWheels
from envbuild.context import Context
from envbuild.errors import IntegrityError, SpaceError, UsageError
from envbuild.formats.oci import OciImage
from envbuild.formats.oci_layer import HashedStream
from envbuild.host import free_bytes
from envbuild.limits import SCRIPT, read_whole
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.lock.write import write_lock
from envbuild.plan.apptainer import with_header
from envbuild.plan.shell import SUPPLIED
from envbuild.recipe.model import Recipe, Source
from envbuild.records import frozen_record
from envbuild.script_files import read_script
from envbuild.store.atomic import os_errors_as, sync_file, sync_folder
from envbuild.store.hashing import hash_rest
from envbuild.store.layout import Store
from envbuild.store.units import human_bytes

ROOT = "base/root.tar.gz"
OCI = "base/oci"
CHUNK = 1 << 20
RESERVED = ("base", "files", "lockfiles", "recipes", "tool")


@frozen_record
class Content:
    """One file to be packed: where it lies, or its bytes."""

    path: str
    use: Use
    source: Path | bytes
    sha256: str | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size

    def opened(self) -> BinaryIO:
        """Open it for reading."""
        return io.BytesIO(self.source) if isinstance(self.source, bytes) else self.source.open("rb")


def write_bundle(
    source: Source, order: BuildSpec, context: Context, tool: OwnWheels | None, target: Path
) -> int:
    """Write the bundle of a recipe under its final name, or nothing; return its size in bytes.

    ``tool`` is envbuild itself.  What the store lacks is downloaded first.  The same inputs give
    the same bytes.  Raises UsageError for a base that cannot travel, SpaceError, IntegrityError for
    a damaged store.
    """
    fetch_files(order.lock, context)
    fetch_locked_base(order.lock, context)
    with context.store.work("bundle") as work:
        contents = tuple(_contents(source, order, context, tool, work))
        table = Table(
            schema=1,
            name=order.recipe.name,
            lock=lock_digest(order.lock),
            envbuild=__version__,
            python=", ".join(tool.pythons) if tool else "",
            members=tuple(_member(content) for content in contents),
        )
        return _write(target, table, contents, order, context)


def _stored_contents(lock: Lock, store: Store) -> Iterator[Content]:
    """Yield what the lock names and the store keeps, where build.sh looks for it."""
    named = []
    for deb in lock.debian:
        folder = "base/debian" if deb.group == "base" else "files/envbuild/debian"
        named.append((f"{folder}/{deb.file}", deb.sha256))
    named += [(f"files/envbuild/python/{wheel.file}", wheel.sha256) for wheel in lock.python]
    named += [(f"files/envbuild/conda/{package.file}", package.sha256) for package in lock.conda]
    named += [(f"files/envbuild/files/{tar.sha256}.tar", tar.sha256) for tar in lock.files]
    for path, sha256 in named:
        yield Content(path=path, use="store", source=store.artifact(sha256), sha256=sha256)


def _contents(
    source: Source, order: BuildSpec, context: Context, tool: OwnWheels | None, work: Path
) -> Iterator[Content]:
    """Yield the files of a bundle, those for people first."""
    recipe, lock = order.recipe, order.lock
    header, base = _base(order, context, work)
    definition = with_header(order.definition, header) if header else order.definition
    readme_text = readme(recipe, lock, pythons=tool.pythons if tool else ())
    yield Content(path="README.md", use="plain", source=readme_text.encode())
    yield Content(path="build.sh", use="plain", source=build_script(recipe).encode())
    yield Content(path=f"{recipe.name}.def", use="plain", source=definition.encode())
    yield Content(path=f"recipes/{recipe.name}.toml", use="project", source=source.text.encode())
    if recipe.check.script:
        yield _check_script(source.path.parent, recipe.check.script)
    lock_name = f"{recipe.name}.{source.lock.name.partition('.')[2]}"
    lock_text = write_lock(lock).encode()
    yield Content(path=f"lockfiles/{lock_name}", use="project", source=lock_text)
    yield from _stored_contents(lock, context.store)
    yield from base
    for path in tool.wheels if tool else ():
        yield Content(path=f"tool/{path.name}", use="plain", source=path)


def _check_script(folder: Path, name: str) -> Content:
    """Return the recipe's own check, which lies beside it."""
    script = folder / name
    if not script.resolve().is_relative_to(folder.resolve()):
        raise UsageError("[check] script lies outside the recipe's folder", where=name)
    with os_errors_as(script):
        data = read_whole(script, SCRIPT)
    return Content(path=f"recipes/{name}", use="project", source=data)


def _base(order: BuildSpec, context: Context, work: Path) -> tuple[Header, tuple[Content, ...]]:
    """Return the header that starts from the bundle's copy of the base, and that copy's files.

    The header is empty for a bootstrap, which starts from packages.
    """
    if order.lock.is_bootstrap:
        return (), (Content(path=ROOT, use="plain", source=_packed_root(order, context, work)),)
    lock = order.lock
    reference = parse_reference(lock.base.reference)
    if reference.kind.is_project_file:
        return _project_base(reference.name.removeprefix("./"), context)
    image = stored_image(lock.base.digest, context.store, sif=reference.kind.is_sif)
    if image is None:
        raise IntegrityError("the base's manifest is not in the store", where=lock.base.reference)
    if reference.kind.is_sif:
        return _registry_sif(image, context.store)
    return _registry_image(image, context.store)


def _project_base(path: str, context: Context) -> tuple[Header, tuple[Content, ...]]:
    """Take along a ``.sif`` of the project under its own path."""
    try:
        msgspec.convert(path, MemberPath)
    except msgspec.ValidationError as error:
        hint = (
            "move the image below the project's folder, name it by a relative path, and lock again"
        )
        raise UsageError(
            "lies outside the project's folder, so it cannot travel", where=path, hint=hint
        ) from error
    top = path.split("/", maxsplit=1)[0]
    if top in RESERVED:
        raise UsageError(f"a base cannot lie in a folder called {top} of a bundle", where=path)
    content = Content(path=path, use="project", source=context.settings.cwd / path)
    return (("Bootstrap", "localimage"), ("From", path)), (content,)


def _registry_sif(image: OciImage, store: Store) -> tuple[Header, tuple[Content, ...]]:
    """Take along a ``.sif`` of a registry as the blobs of its manifest."""
    blobs = [image.manifest.config, *image.manifest.layers]
    hashes = sorted({image.digest.removeprefix("sha256:"), *(blob.sha256 for blob in blobs)})
    contents = tuple(
        Content(
            path=f"{OCI}/blobs/sha256/{sha256}",
            use="store",
            source=store.artifact(sha256),
            sha256=sha256,
        )
        for sha256 in hashes
    )
    image_path = f"{OCI}/blobs/sha256/{image.manifest.layers[0].sha256}"
    return (("Bootstrap", "localimage"), ("From", image_path)), contents


def _registry_image(image: OciImage, store: Store) -> tuple[Header, tuple[Content, ...]]:
    """Take along the layers of an image as an OCI layout."""
    folder = lay_out(image, store)
    contents: list[Content] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = f"{OCI}/{path.relative_to(folder)}"
            # the name of a blob is its hash
            if "/blobs/" in name:
                content = Content(path=name, use="store", source=path, sha256=path.name)
            else:
                content = Content(path=name, use="plain", source=path)
            contents.append(content)
    contents.sort(key=lambda content: content.path)
    return (("Bootstrap", "oci"), ("From", OCI)), tuple(contents)


def _packed_root(order: BuildSpec, context: Context, work: Path) -> Path:
    """Return the bootstrapped root, packed so that every tar reads it; the same bytes each time."""
    target = work / "root.tar.gz"
    tar = make_root(locked_bootstrap(order.lock), context)
    with (
        context.report.stage("pack the base", total=tar.stat().st_size) as stage,
        os_errors_as(target),
        tar.open("rb") as file,
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", 4, raw, mtime=0) as out,
    ):
        while chunk := file.read(CHUNK):
            out.write(chunk)
            stage.advance(len(chunk))
    return target


def _member(content: Content) -> Member:
    sha256 = content.sha256
    if sha256 is None:
        with content.opened() as file:
            sha256 = hash_rest(file)
    return Member(path=content.path, size=content.size, sha256=sha256, use=content.use)


def _write(
    target: Path, table: Table, contents: Sequence[Content], order: BuildSpec, context: Context
) -> int:
    total = sum(member.size for member in table.members)
    with os_errors_as(target.parent):
        free = free_bytes(target.parent)
    if total * 1.01 + CHUNK > free:
        raise SpaceError(
            f"the bundle takes {human_bytes(total)}, {human_bytes(free)} are free",
            where=target.parent,
        )
    sums = "".join(f"{member.sha256}  {member.path}\n" for member in table.members).encode()
    head = (
        Content(path=TABLE, use="plain", source=msgspec.json.encode(table)),
        Content(path="SHA256SUMS", use="plain", source=sums),
    )
    expected = {member.path: member.sha256 for member in table.members}
    with (
        context.store.beside(target) as partial,
        os_errors_as(target),
        partial.open("wb") as out,
        context.report.transfer(
            f"write {target.name}", files=len(contents), size=total
        ) as transfer,
    ):
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT, bufsize=CHUNK) as tar:
            for content in (*head, *contents):
                _add(tar, content, expected.get(content.path), order)
                transfer.advance(content.size)
        sync_file(out)
        partial.chmod(0o644)
        partial.replace(target)
        sync_folder(target.parent)
    return target.stat().st_size


def _add(tar: tarfile.TarFile, content: Content, sha256: str | None, order: BuildSpec) -> None:
    info = tarfile.TarInfo(f"{order.recipe.name}/{content.path}")
    info.size, info.mtime = content.size, order.lock.base.epoch
    info.mode = 0o755 if content.path.endswith(".sh") else 0o644
    with content.opened() as file:
        checked = HashedStream(file, content.size)
        tar.addfile(info, checked)
    if sha256 is not None and checked.digest.hexdigest() != sha256:
        hint = "run envbuild store verify, which removes it, then bundle again"
        raise IntegrityError(
            "this file is damaged in the store", where=str(content.source), hint=hint
        )


def build_script(recipe: Recipe) -> str:
    """Return the script that builds with the container runtime alone."""
    files = SUPPLIED.rsplit("/", 1)[0]
    return read_script("envbuild.bundle", "scripts/build.sh", files=files, name=recipe.name)


def readme(recipe: Recipe, lock: Lock, *, pythons: Sequence[str]) -> str:
    """Return the bundle's README.

    ``pythons`` are those that envbuild's own wheels inside are for.
    """
    name = recipe.name
    install = (
        f"    tar -xf {name}.bundle.tar\n"
        f"    python3 -m venv venv    # Python {', '.join(pythons)}\n"
        f"    venv/bin/pip install --no-index --find-links {name}/tool envbuild\n"
        f"    venv/bin/envbuild make --from-bundle {name}.bundle.tar\n"
        if pythons
        else f"    envbuild make --from-bundle {name}.bundle.tar\n"
    )
    return f"""\
# {name}: everything to build it without a network

{recipe.recipe.summary or name}

Base: {lock.base.reference}, {lock.python_title}, {lock.base.framework or "no framework"}.
Lock: {lock_digest(lock)}

With envbuild (the same image as anywhere else, checked afterwards):

{install}
With Apptainer or Singularity alone, from the unpacked folder (the same packages):

    sh {name}/build.sh

What is inside: `{name}.def` (the definition), `files/` (packages), `base/` (the base), `recipes/` and `lockfiles/`
(what envbuild reads), `SHA256SUMS` and `bundle.json` (what every file has to be).
"""
