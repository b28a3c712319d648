"""Solve match specs against channels with py-rattler, in this process (slow to import)."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from rattler import (
    Client,
    Gateway,
    GenericVirtualPackage,
    MatchSpec,
    PackageName,
    PackageRecord,
    RepoDataRecord,
    Version,
    solve,
)
from rattler.exceptions import FetchRepoDataError, GatewayError, SolverError
from rattler.networking.middleware import (
    AddHeadersMiddleware,
    AuthenticationMiddleware,
    RetryMiddleware,
)
from rattler.package.build_string import BuildString

from envbuild.base.model import InstalledConda
from envbuild.conda.model import CondaFound, CondaRequest
from envbuild.conda.target import virtual_packages
from envbuild.context import Context
from envbuild.errors import IntegrityError, NetworkError, NoSolutionError, UsageError
from envbuild.names import BY_MACHINE
from envbuild.net.channels import channel_headers, channel_urls, is_vendor_url, require_vendor
from envbuild.net.redact import mask_users, without_user
from envbuild.store.units import as_printable

SOLVE_SECONDS = 300
NO_HOST = "https://mirror.invalid/base"
FILE_TOO_LARGE = f"os error {errno.EFBIG}"
SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!-]*\Z")
"""What may stand in a file name: rattler checks it too, since 0.24."""


@dataclass(frozen=True)
class Solver:
    """The channels of a request, opened once: every question reads what is already there."""

    request: CondaRequest
    channels: dict[str, str]
    gateway: Gateway

    @property
    def subdirs(self) -> tuple[str, str]:
        """The folders of a channel that fit the machine."""
        return BY_MACHINE[self.request.machine].conda, "noarch"

    def records(self, names: Sequence[str]) -> list[RepoDataRecord]:
        """Return all records of packages with these names, as the channels have them."""
        answer = self._wait_for(
            self.gateway.query(
                list(self.channels.values()),
                self.subdirs,  # type: ignore[arg-type]
                list(names),
                recursive=False,
                channel_relations="disabled",
            )
        )
        found: list[RepoDataRecord] = []
        for of_channel in answer:
            found += of_channel
        return found

    def solve(
        self,
        constraints: Sequence[str] = (),
        keep: Sequence[RepoDataRecord] = (),
        more: Sequence[str] = (),
    ) -> list[RepoDataRecord]:
        """Return the records of an environment that has the request's specs, and ``more``.

        ``constraints`` are match specs that hold where the package is there at all.  Raises
        NoSolutionError with the solver's own explanation, NetworkError.
        """
        request = self.request
        cutoff = None
        if request.as_of:
            day = datetime.fromisoformat(request.as_of).replace(tzinfo=timezone.utc)
            cutoff = day + timedelta(days=1) - timedelta(milliseconds=1)
        asked = [_with_address(spec, self.channels) for spec in (*request.specs, *more)]
        installed = [_installed_record(item) for item in request.installed]
        held = [record for record in installed if record.name.normalized in request.held]
        free = [record for record in installed if record.name.normalized in request.movable]
        try:
            found: list[RepoDataRecord] = self._wait_for(
                solve(
                    list(self.channels.values()),
                    [*asked, *(item.name for item in request.installed)],
                    gateway=self.gateway,
                    platforms=self.subdirs,  # type: ignore[arg-type]
                    virtual_packages=_virtual(request),
                    locked_packages=[*keep, *free],
                    pinned_packages=held,
                    constraints=[*request.bounds, *constraints],
                    exclude_newer=cutoff,
                    timeout=timedelta(seconds=SOLVE_SECONDS),
                    # other channels than the recipe's are never asked (CEP 42)
                    channel_relations="disabled",
                )
            )
        except SolverError as error:
            raise NoSolutionError(self._plain(error), where="[conda] dependencies") from error
        return found

    def found(self, record: RepoDataRecord) -> CondaFound:
        """Return a record as our own; raise where it cannot be locked or is not allowed."""
        file, build = record.file_name, str(record.build)
        if not SAFE_NAME.match(file) or not SAFE_NAME.match(build):
            raise IntegrityError(f"the channel names a file {file!a}, which is no package")
        if record.sha256 is None or record.size is None:
            hint = "a channel of today has both; ask who keeps it to index it anew"
            raise IntegrityError("the channel gives no sha256 or size", where=file, hint=hint)
        license_text = as_printable(record.license or "")[:300] or None
        return CondaFound(
            name=record.name.normalized,
            version=str(record.version),
            build=build,
            subdir=record.subdir,
            channel=self._channel_of(record),
            file=file,
            size=record.size,
            sha256=record.sha256.hex(),
            md5=record.md5.hex() if record.md5 else None,
            noarch=_noarch(record),
            license=license_text,
            depends=tuple(record.depends),
            flags=tuple(record.flags),
        )

    def _channel_of(self, record: RepoDataRecord) -> str:
        place = record.channel.rstrip("/")
        return next(name for name, url in self.channels.items() if url.rstrip("/") == place)

    def _wait_for(self, question: Any) -> Any:
        """Run a question to its end; what rattler raises becomes an error of ours."""

        async def ask() -> Any:
            return await question

        try:
            return asyncio.run(ask())
        except SolverError:
            raise
        except (GatewayError, FetchRepoDataError, OSError) as error:
            if FILE_TOO_LARGE in str(error):
                raise IntegrityError(
                    "a list unpacks to more than its size allows",
                    where=", ".join(self.request.channels),
                ) from error
            raise NetworkError(
                f"a channel cannot be read: {self._plain(error)}",
                where=", ".join(self.request.channels),
                hint="see that this machine reaches the channel, or write the address of a mirror below "
                "[channels] in ~/.config/envbuild/config.toml",
            ) from error

    def _plain(self, error: Exception) -> str:
        text = mask_users(str(error)).strip()
        for name, url in self.channels.items():
            text = text.replace(url.rstrip("/"), name)
        return text.removeprefix("Cannot solve the request because of: ")


def open_solver(request: CondaRequest, context: Context, turn: int = 0) -> Solver:
    """Return the solver of a request; ``turn`` chooses among the addresses of each channel.

    Raises UsageError for a channel or spec that it must not use.
    """
    settings = context.settings
    urls = {name: channel_urls(settings, name) for name in request.channels}
    chosen = {name: known[min(turn, len(known) - 1)] for name, known in urls.items()}
    client = Client(
        [
            RetryMiddleware(),
            AuthenticationMiddleware(),
            AddHeadersMiddleware(channel_headers(settings, request.channels)),
        ]
    )
    gateway = Gateway(cache_dir=context.store.folder("repodata"), client=client)
    first = {name: without_user(url) for name, url in chosen.items()}
    return Solver(request=request, channels=first, gateway=gateway)


def _installed_record(package: InstalledConda) -> RepoDataRecord:
    """Return a package that a base holds as the solver knows packages.

    What it needs of the machine is left out: it is there, and the nodes are what they are.
    """
    depends, constrains = map(_without_virtual, (package.depends, package.constrains))
    record = PackageRecord(
        package.name,
        package.version,
        BuildString(package.build),
        package.number,
        package.subdir or "noarch",
        depends=depends,
        constrains=constrains,
    )
    # older than any day that packages are chosen as of
    record.timestamp = datetime(1980, 1, 1, tzinfo=timezone.utc)
    file = "-".join(package.key) + ".conda"
    return RepoDataRecord(record, file, f"{NO_HOST}/{file}", NO_HOST)


def _without_virtual(specs: Sequence[str]) -> list[str]:
    return [spec for spec in specs if not spec.startswith("__")]


def refuse_vendor_records(records: Sequence[RepoDataRecord], context: Context) -> None:
    """Raise UsageError for a package that another host or channel than the named one delivers."""
    for record in records:
        if is_vendor_url(record.url) or is_vendor_url(record.channel):
            place = mask_users(record.channel)
            what = f"{record.file_name} comes from {place}, a channel of Anaconda Inc."
            require_vendor(context.settings, what)


def _virtual(request: CondaRequest) -> list[Any]:
    return [
        GenericVirtualPackage(PackageName(name), Version(version), BuildString(build))
        for name, version, build in virtual_packages(request)
    ]


def _with_address(spec: str, channels: dict[str, str]) -> str:
    """Put the address of a channel in the place of its name: "forge::numpy".

    The solver takes strict match specs only; people also write conda's "numpy=1.26=py312*".
    """
    name, colons, rest = spec.partition("::")
    if not colons:
        return str(MatchSpec(spec, strict=False))
    if name not in channels:
        raise UsageError(
            f'"{spec}" names the channel {name}, which [conda] channels does not list',
            where="[conda] dependencies",
        )
    return f"{channels[name].rstrip('/')}::{MatchSpec(rest, strict=False)}"


def _noarch(record: RepoDataRecord) -> Any:
    if record.noarch.python:
        return "python"
    return "generic" if record.noarch.generic else None
