"""Images that a Docker engine on this machine holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envbuild.base.model import BaseReference
from envbuild.errors import HostError, UsageError
from envbuild.settings import Settings
from envbuild.store.atomic import os_errors_as

PATIENCE = 600
"""Seconds for one answer of the engine: it packs a 10 GB image before the first byte comes."""
CHUNK = 1024 * 1024
DEFAULT_HOST = "unix:///var/run/docker.sock"
HINT = "start one (systemctl start docker), or name it: DOCKER_HOST=unix:///path/docker.sock"
VARIABLES = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")


@contextmanager
def _open_engine(settings: Settings) -> Iterator[Any]:
    """Lend a client of the engine that the usual variables name.

    Raises HostError without the docker package, where no engine answers, and for what the engine
    cannot do.
    """
    try:
        import docker
        import requests
    except ImportError as error:
        hint = "install envbuild's part for it: pip install 'envbuild[docker]'"
        raise HostError(
            "talking to a Docker engine needs the Python package docker", hint=hint
        ) from error
    environment = {
        key: settings.environment[key] for key in VARIABLES if settings.environment.get(key)
    }
    host = environment.get("DOCKER_HOST", DEFAULT_HOST)
    if host.startswith("unix://") and not Path(host.removeprefix("unix://")).exists():
        raise HostError(
            f"no Docker engine answers: there is no {host.removeprefix('unix://')}", hint=HINT
        )
    client = None
    try:
        client = docker.from_env(environment=environment, timeout=PATIENCE)
        yield client
    except (docker.errors.DockerException, requests.RequestException) as error:
        if client is None or not isinstance(error, docker.errors.APIError):
            raise HostError(f"no Docker engine answers: {_first_line(error)}", hint=HINT) from error
        raise HostError(f"the Docker engine refuses: {_first_line(error)}") from error
    finally:
        if client is not None:
            client.close()


def save_image(reference: BaseReference, target: Path, settings: Settings) -> None:
    """Write the output of ``docker save`` to a file.  Raises UsageError for no such image."""
    import docker

    name = (
        reference.name if ":" in reference.name.rpartition("/")[2] else f"{reference.name}:latest"
    )
    with _open_engine(settings) as client:
        try:
            image = client.images.get(name)
        except docker.errors.ImageNotFound as error:
            tags: list[str] = []
            for item in client.images.list():
                tags += item.tags
            hint = f"docker pull {name}"
            if tags:
                hint += f", or one of: {', '.join(sorted(tags)[:8])}"
            raise UsageError(
                "the Docker engine holds no such image", where=reference.text, hint=hint
            ) from error
        with os_errors_as(target), target.open("wb") as file:
            for chunk in image.save(chunk_size=CHUNK, named=True):
                file.write(chunk)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
