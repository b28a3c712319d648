"""Pull images from registries (OCI distribution specification 1.1); all bytes are hashed.

Apptainer's own client is not used: a build that pulls is a build with a network, and what it caches
is not the store.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from envbuild import limits
from envbuild.base.oci.credentials import find_credentials
from envbuild.context import Context
from envbuild.errors import IntegrityError, NetworkError, RateLimitError
from envbuild.formats.image_name import HUB, ImageName
from envbuild.formats.oci import (
    BIGGEST,
    INDEXES,
    MANIFESTS,
    Blob,
    Index,
    OciImage,
    choose_manifest,
    read_config,
    read_document,
    read_image,
    require_platform,
)
from envbuild.limits import UNREADABLE
from envbuild.names import Texts
from envbuild.net.answers import read_bounded
from envbuild.net.download import Download, download_file
from envbuild.net.parallel import for_each_parallel
from envbuild.net.partial import is_complete
from envbuild.net.redact import redact
from envbuild.net.web import (
    GoneError,
    PassingError,
    is_loopback,
    make_client,
    open_response,
    with_retries,
)
from envbuild.records import frozen_record
from envbuild.settings import Settings
from envbuild.settings_file import Registry as Reached
from envbuild.store.atomic import write_bytes
from envbuild.store.hashing import digest_of, short_digest
from envbuild.store.layout import Store
from envbuild.store.sealed import require_hash

if TYPE_CHECKING:
    import httpx

    from envbuild.base.oci.auth import RegistryAuth

T = TypeVar("T")
HUB_HOST = "registry-1.docker.io"
"""Where the registry called docker.io answers."""
MOST_TAGS = 10_000
TAG_PAGES = 20
PROBE_SECONDS = 5.0


@frozen_record
class _RegistryServer:
    """One server of a repository: its URL, the path there, and a client with credentials."""

    url: str
    repository: str
    client: httpx.Client
    auth: RegistryAuth

    def address(self, kind: str, reference: str) -> str:
        """Return the address of a manifest, a blob or the list of tags."""
        return f"{self.url}/v2/{self.repository}/{kind}/{reference}"


def resolve_image(name: ImageName, platform: str, context: Context) -> OciImage:
    """Return the image of a name as of now; its manifest and configuration are stored.

    Mirrors are asked first.  Raises GoneError for an unknown image or tag (with the nearest tags),
    NetworkError for denied access, limits and silence, IntegrityError for bytes that are not what
    their digest says, UsageError for another platform.
    """
    return _try_servers(
        name, lambda place: _resolve_at(name, platform, place, context.store), context
    )


def resolve_sif(name: ImageName, context: Context) -> OciImage:
    """Return the SIF of a name as of now; its manifest is stored.  Raises as resolve_image."""

    def ask(place: _RegistryServer) -> OciImage:
        data, kind = _read_manifest(place, name, name.reference)
        image = read_image(data, kind, where=name.short, sif=True)
        write_bytes(context.store.artifact(image.digest), data, mode=0o444)
        return image

    return _try_servers(name, ask, context)


def download_sif(name: ImageName, image: OciImage, context: Context) -> Path:
    """Download a SIF into the store where it lacks it, and return its path there."""
    download_layers(name, image, context)
    sha256 = image.manifest.layers[0].sha256
    with context.store.artifact(sha256).open("rb") as file:
        require_hash(file, sha256, name.short)
    return context.store.artifact(sha256)


def download_layers(name: ImageName, image: OciImage, context: Context) -> None:
    """Download the layers that the store lacks, several at a time; partial ones continue."""
    wanted = {layer.digest: layer for layer in (image.manifest.config, *image.manifest.layers)}
    todo = [
        blob
        for blob in wanted.values()
        if not is_complete(context.store.artifact(blob.sha256), blob.size)
    ]
    if not todo:
        return

    def download_missing(place: _RegistryServer) -> None:
        with context.report.transfer(
            f"pull {name.short}", files=len(todo), size=sum(b.size for b in todo)
        ) as transfer:

            def one(blob: Blob, stop: threading.Event) -> None:
                download = Download(
                    url=place.address("blobs", blob.digest),
                    name=f"{name.short} {short_digest(blob.digest)}",
                    size=blob.size,
                    sha256=blob.sha256,
                    final=context.store.artifact(blob.sha256),
                )
                download_file(
                    download,
                    client=place.client,
                    transfer=transfer,
                    report=context.report,
                    stop=stop,
                )
                context.report.detail(download.name)

            for_each_parallel(
                sorted(todo, key=lambda blob: -blob.size), one, workers=context.settings.downloads
            )

    _try_servers(name, download_missing, context)


def _try_servers(name: ImageName, action: Callable[[_RegistryServer], T], context: Context) -> T:
    """Act at the first server that answers: mirrors in order, then the registry."""
    places = list(_server_urls(name, context.settings))
    for number, (url, repository) in enumerate(places, 1):
        with _open_server(url, repository, context) as place:
            try:
                return action(place)
            except IntegrityError:
                raise
            except NetworkError as error:
                failure = _registry_error(error, place, name)
                if number == len(places):
                    raise failure from error
                context.report.say(f"mirror {redact(url)} is passed over: {failure}")
    raise NetworkError("no registry is configured", where=name.registry)


def front_pages(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each configured server: the registry's name and the address of its front page."""
    for registry in dict.fromkeys((HUB, *settings.registries)):
        for url, _ in _server_urls(ImageName(registry=registry, repository="library"), settings):
            yield registry, f"{url}/v2/"


def _server_urls(name: ImageName, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the servers to ask, each with the repository's path (a mirror may add its own)."""
    reached = settings.registries.get(name.registry, Reached())
    for mirror in reached.mirrors:
        found = re.fullmatch(r"(https?://[^/]+)(/.*)?", mirror)
        if found:
            folder = (found[2] or "").strip("/")
            yield found[1], f"{folder}/{name.repository}".lstrip("/")
    host = HUB_HOST if name.registry == HUB else name.registry
    is_plain = reached.plain_http or _speaks_http(host, settings)
    yield f"{'http' if is_plain else 'https'}://{host}", name.repository


def _speaks_http(host: str, settings: Settings) -> bool:
    """Tell whether a registry on this machine speaks plain HTTP, as docker does."""
    import httpx

    if not is_loopback(re.sub(r":\d+$", "", host)):
        return False
    with make_client(settings) as client:
        try:
            with client.stream("GET", f"https://{host}/v2/", timeout=PROBE_SECONDS):
                return False
        except httpx.ConnectError as error:
            # a certificate that is not trusted is a certificate:
            # only what is no TLS at all is plain
            return "CERTIFICATE_VERIFY_FAILED" not in str(error)
        except httpx.HTTPError:
            return True


@contextmanager
def _open_server(url: str, repository: str, context: Context) -> Iterator[_RegistryServer]:
    from envbuild.base.oci.auth import (
        RegistryAuth,  # late: it needs httpx, facts that are kept do not
    )

    host = url.partition("://")[2]
    asked = HUB if host == HUB_HOST else host
    settings = context.settings
    with make_client(settings) as tokens, make_client(settings) as client:
        scope = f"repository:{repository}:pull"
        auth = RegistryAuth(tokens, find_credentials(asked, context), scope)
        client.auth = auth
        yield _RegistryServer(url=url, repository=repository, client=client, auth=auth)


def _resolve_at(name: ImageName, platform: str, place: _RegistryServer, store: Store) -> OciImage:
    data, kind = _read_manifest(place, name, name.reference)
    document = read_document(data, kind, where=name.short)
    if isinstance(document, Index):
        chosen = choose_manifest(document, platform, where=f"{name.short}:{name.reference}")
        data, kind = _read_manifest(place, name, chosen.digest)
    image = read_image(data, kind, where=name.short)
    write_bytes(store.artifact(image.digest), data, mode=0o444)
    config = image.manifest.config
    if not is_complete(store.artifact(config.sha256), config.size):
        if config.size > BIGGEST:
            raise IntegrityError(f"has a configuration of {config.size} bytes", where=name.short)
        config_bytes = _get_bounded(place, place.address("blobs", config.digest))[0]
        _require_digest(config.digest, config_bytes, name)
        write_bytes(store.artifact(config.sha256), config_bytes, mode=0o444)
    text = store.artifact(config.sha256).read_bytes()
    require_platform(
        read_config(text, where=name.short), platform, where=f"{name.short}:{name.reference}"
    )
    return image


def _read_manifest(place: _RegistryServer, name: ImageName, reference: str) -> tuple[bytes, str]:
    """Return a manifest's bytes, checked against the digest asked for or announced."""
    url = place.address("manifests", reference)
    try:
        data, kind, announced = _get_bounded(place, url, accept=", ".join((*MANIFESTS, *INDEXES)))
    except GoneError as error:
        raise _unknown_image(place, name, reference) from error
    for digest in (reference if reference.startswith("sha256:") else "", announced):
        if digest.startswith("sha256:"):
            _require_digest(digest, data, name)
    return data, kind


def _require_digest(digest: str, data: bytes, name: ImageName) -> None:
    if digest_of(data) != digest:
        raise IntegrityError(
            f"the registry sent other bytes than it names: expected {digest}, got {digest_of(data)}",
            where=name.short,
            hint="nothing of it was kept; a damaged or hostile registry, mirror or proxy does this",
        )


def _get_bounded(
    place: _RegistryServer, url: str, *, accept: str = "*/*"
) -> tuple[bytes, str, str]:
    """Return an answer's bytes, its kind, and the digest that the server names ("" for none)."""

    def once() -> tuple[bytes, str, str]:
        with open_response(place.client, url, headers={"Accept": accept}) as response:
            body = read_bounded(response, BIGGEST)
            kind, digest = (
                response.headers.get(key, "") for key in ("Content-Type", "Docker-Content-Digest")
            )
            return body, kind, digest

    return with_retries(once, url=url)


def _unknown_image(place: _RegistryServer, name: ImageName, reference: str) -> GoneError:
    """Tell an unknown tag with the tags that are nearest, an unknown repository as such."""
    try:
        tags = _list_tags(place)
    except (NetworkError, IntegrityError, PassingError):
        tags = ()
    where = (
        f"{name.short}:{reference}" if not reference.startswith("sha256:") else name.at(reference)
    )
    if not tags:
        return GoneError(
            "the registry has no such image", where=where, hint="check the spelling of the name"
        )
    if reference.startswith("sha256:"):
        hint = "of a lock: take what the tag means today, envbuild lock NAME; of a recipe: check the digest, or name a tag"
        return GoneError("the registry does not hold this image (any more)", where=where, hint=hint)
    near = difflib.get_close_matches(reference, tags, n=5, cutoff=0.5) or sorted(tags)[-5:]
    return GoneError(
        "the image has no such tag",
        where=where,
        hint=f"nearest of {len(tags)} tags: {', '.join(near)}",
    )


def _list_tags(place: _RegistryServer) -> Texts:
    """List a repository's tags, over as many pages as it takes."""
    found: list[str] = []
    url: str | None = place.address("tags", "list") + "?n=1000"
    for _ in range(TAG_PAGES):
        if url is None or len(found) >= MOST_TAGS:
            break
        with open_response(place.client, url) as response:
            body = read_bounded(response, limits.LIST)
            link = re.search(
                r'<([^<>]{1,2000})>;\s*rel="?next',
                response.headers.get("Link", "")[: limits.CHALLENGE],
            )
            following = str(response.url.join(link[1])) if link else ""
            # whoever may ask here need not be known elsewhere
            url = following if following.startswith(f"{place.url}/") else None
        try:
            listed = msgspec.json.decode(body).get("tags") or ()
            found += [tag for tag in listed if isinstance(tag, str) and tag.isprintable()]
        except (*UNREADABLE, AttributeError, TypeError):
            break
    return tuple(found)


def _registry_error(error: NetworkError, place: _RegistryServer, name: ImageName) -> NetworkError:
    """Say of a refusal what a person can do about it."""
    host = place.url.partition("://")[2]
    if place.auth.refused is not None:
        login = "docker.io" if host == HUB_HOST else host
        what = f"the registry refuses access (HTTP {place.auth.refused})"
        hint = (
            f"the image does not exist, or it is private: apptainer registry login -u USER docker://{login}\n"
            f"(docker login {login} does as well; the variables ..._DOCKER_USERNAME and ..._PASSWORD are given to "
            "docker.io and to registries that your settings file names)"
        )
        return NetworkError(what, where=name.short, hint=hint)
    if isinstance(error, RateLimitError):
        hint = (
            f"registries limit how much anybody pulls: log in (docker login {name.registry}), wait, or name a mirror:\n"
            f'[registries."{name.registry}"] mirrors = ["https://…"] in the settings file'
        )
        return NetworkError(
            f"the registry limits how much is pulled: {error.what}", where=name.short, hint=hint
        )
    if error.what.startswith("cannot be reached"):
        hint = (
            f"check the network and the proxy variables; where {name.registry} cannot be reached, "
            f"name a mirror in the settings file:\n"
            f'[registries."{name.registry}"] mirrors = ["https://…"]\n'
            'or take a base that needs no registry: bootstrap = "debian:bookworm"'
        )
        return NetworkError(error.what, where=error.where, hint=hint)
    return error
