"""Facts of a base: made from the probe's output, kept in the store, read from a file."""

from __future__ import annotations

import functools
import re
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from envbuild.base import gpu
from envbuild.base.model import SCHEMA, AptPackage, BaseFacts, Dist, InstalledConda
from envbuild.errors import HostError, UsageError
from envbuild.formats.fields import FOLDER
from envbuild.limits import UNREADABLE, read_whole, readable
from envbuild.names import Pairs, Texts
from envbuild.store.layout import Store
from envbuild.store.sealed import read_sealed, write_sealed

PARTS = ("files", "distributions", "system", "document")
"""The files of the probe, in their order; together they are one script."""
MARK = "ENVBUILD-FACTS "
BIGGEST = 64 * 1024 * 1024
"""Bytes; a facts file above this is refused unread."""
LATEST = date(2200, 1, 1)
UNKNOWN_VERSION = "0+unknown"


class _Probed(msgspec.Struct, frozen=True):
    """The probe's line of JSON: untrusted, so every type is checked."""

    python_path: str
    python: str
    abi: str
    prefix: str
    machine: str
    glibc: str | None
    site: Texts
    externally_managed: bool
    release: dict[str, str]
    created: int | None
    dists: tuple[_ProbedDist, ...]
    apt: tuple[tuple[str, str, str], ...]
    libraries: Pairs
    texts: dict[str, str]
    environment: dict[str, str]
    constraints: str | None
    conda_prefix: str | None = None
    conda: tuple[InstalledConda, ...] = ()
    off_path: bool = False


class _ProbedDist(Dist, frozen=True):
    notes: Texts = ()


def probe_text() -> str:
    """Return the script that reads facts inside an image; it is fed to ``python3 -s -B -``."""
    folder = Path(__file__).with_name("probe")
    return "".join((folder / f"{part}.py").read_text("utf-8") for part in PARTS)


@functools.cache
def probe_functions() -> dict[str, Any]:
    """Return the script's functions, to read an image's files with, without running the image."""
    functions: dict[str, Any] = {"__name__": "probe"}
    exec(probe_text(), functions)  # noqa: S102  our own text
    return functions


def python_off_path(output: str) -> str | None:
    """Return the Python that this machine's has found on no PATH, None where there is none."""
    probed = _read_line(output, "the image")
    return None if probed.python else probed.python_path or None


def _read_line(output: str, image: str) -> _Probed:
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    try:
        return msgspec.json.decode(lines[-1].removeprefix(MARK), type=_Probed)
    except (IndexError, *UNREADABLE) as error:
        detail = output.strip().splitlines()[-1:] or ["nothing"]
        raise HostError(
            f"the probe in the image printed no facts, but: {detail[0][:300]}", where=image
        ) from error


def read_probe(
    output: str,
    *,
    image: str,
    digest: str | None = None,
    created: str | None = None,
    size: int | None = None,
) -> BaseFacts:
    """Turn what the probe printed into facts.

    ``created`` (ISO date) wins over what the probe guessed from file times.  Raises HostError where
    the output holds no facts, UsageError for an image whose C library is not glibc.
    """
    probed = _read_line(output, image)
    if probed.glibc is None:
        raise UsageError(
            "the image's C library is not glibc",
            where=image,
            hint="GPU frameworks are published for glibc only: take a Debian, Ubuntu or Rocky image, not Alpine",
        )
    return _facts_of(probed, probed.glibc, image=image, digest=digest, created=created, size=size)


def _facts_of(
    probed: _Probed,
    glibc: str,
    *,
    image: str,
    digest: str | None,
    created: str | None,
    size: int | None,
) -> BaseFacts:
    dists = tuple(_dist_of(dist) for dist in probed.dists)
    apt = tuple(
        AptPackage(name=name, version=version, architecture=arch)
        for name, version, arch in probed.apt
    )
    real = [path for _, path in probed.libraries]
    texts, environment = probed.texts, probed.environment
    of_conda = gpu.conda_cuda({package.name: package.version for package in probed.conda})
    cuda = gpu.cuda_version(dists, real, texts, environment) or of_conda
    return BaseFacts(
        image=image,
        python=probed.python,
        machine=probed.machine,
        glibc=glibc,
        dists=dists,
        digest=digest,
        created=created or iso_day(probed.created),
        size=size,
        distro=" ".join(filter(None, (probed.release.get("ID"), probed.release.get("VERSION_ID"))))
        or None,
        **_interpreter_of(probed),
        site=probed.site,
        externally_managed=probed.externally_managed,
        cuda=cuda,
        cudnn=gpu.cudnn_version(dists, real, texts, environment, apt),
        nccl=gpu.nccl_version(dists, real, environment, apt),
        framework=gpu.framework_of_dists(dists),
        built_for=gpu.built_for(texts),
        apt=apt,
        constraints=probed.constraints,
        environment=environment,
        stubs=gpu.stub_paths(probed.libraries),
        **_conda_of(probed),
    )


def _interpreter_of(probed: _Probed) -> dict[str, Any]:
    """Return where the image's Python is; nothing of an image without one."""
    texts = {"python_path": probed.python_path, "abi": probed.abi, "prefix": probed.prefix}
    known = {key: text for key, text in texts.items() if text}
    return {"off_path": probed.off_path, **known}


def _conda_of(probed: _Probed) -> dict[str, Any]:
    """Return the conda environment, none where its folder has a name that no lock may hold."""
    if probed.conda_prefix is None or not re.fullmatch(FOLDER, probed.conda_prefix):
        return {}
    packages = sorted(probed.conda, key=lambda package: package.key)
    return {"conda_prefix": probed.conda_prefix, "conda": tuple(packages)}


def _dist_of(probed: _ProbedDist) -> Dist:
    notes = list(probed.notes)
    version = probed.version or UNKNOWN_VERSION
    if not probed.version:
        notes.append("no version")
    elif not is_version(version):
        notes.append("its version is not PEP 440")
    fields: dict[str, Any] = {name: getattr(probed, name) for name in Dist.__struct_fields__}
    fields |= {"version": version, "note": "; ".join(notes) or None}
    return Dist(**fields)


def is_version(text: str) -> bool:
    """Tell whether a text is a version as Python's packages have them (PEP 440)."""
    try:
        Version(text)
    except ValueError:
        return False
    return True


def iso_day(seconds: int | None) -> str | None:
    """Return the ISO date (UTC) of seconds since 1970; None for None and for what is no time."""
    if seconds is None:
        return None
    try:
        day = datetime.fromtimestamp(seconds, tz=timezone.utc).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return None
    return day if is_day(day) else None


def is_day(text: str) -> bool:
    """Tell whether a text is an ISO date of this age, with which dates can be reckoned."""
    try:
        return len(text) == 10 and date.fromisoformat(text) < LATEST
    except ValueError:
        return False


def keep_facts(facts: BaseFacts, digest: str, store: Store) -> None:
    """Keep facts in the store under the image's digest."""
    write_sealed(store.own(store.facts(digest)), encode_facts(facts))


def cached_facts(digest: str, store: Store) -> BaseFacts | None:
    """Return the facts of a digest; None without facts of this version of the probe."""
    data = read_sealed(store.facts(digest))
    try:
        facts = msgspec.json.decode(data or b"", type=BaseFacts)
    except UNREADABLE:
        return None
    # what was read before conda's records were looked at is read again
    unread = facts.conda_prefix is None and any(dist.installer == "conda" for dist in facts.dists)
    return facts if facts.schema == SCHEMA and not unread else None


def encode_facts(facts: BaseFacts) -> bytes:
    """Write facts as JSON: sorted keys, indented, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(facts, order="sorted"), indent=1) + b"\n"


def load_facts(path: Path) -> BaseFacts:
    """Read a facts file, the short form (image, created, python, machine, glibc, dists) included.

    Raises UsageError naming the key at fault.
    """
    with readable(path):
        document = _read_json(path)
    try:
        facts = msgspec.convert(document, BaseFacts, strict=True)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        key = place.rstrip("`").lstrip(".")
        raise UsageError(f"{key}: {message}" if key else message, where=path) from error
    if facts.schema > SCHEMA:
        hint = "update envbuild, or read the facts again: envbuild base inspect REF --json"
        raise UsageError(
            f"was written by a newer envbuild (schema {facts.schema})", where=path, hint=hint
        )
    if facts.created is not None and not is_day(facts.created):
        raise UsageError(f"created: {facts.created!r} is not a date like 2024-05-31", where=path)
    return facts


def _read_json(path: Path) -> Any:
    try:
        return msgspec.json.decode(read_whole(path, BIGGEST))
    except UNREADABLE as error:
        raise UsageError(f"is not JSON: {error}", where=path) from error
