"""What a sandbox has to know of this machine, so that apt-get and pip work in it.

Mirror, index, certificates, proxies. All of it lies in one folder and one file of environment,
which are never packed: an address may hold a password.
"""

from __future__ import annotations

import configparser
import io
import ssl
from pathlib import Path

from envbuild.base.debian.apt_config import apt_network
from envbuild.base.debian.distribution import mirror_of, release_of
from envbuild.build.local_base import locked_reference
from envbuild.build.model import BuildSpec
from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.net.index import index_url
from envbuild.resolve.sources.source_trees import SANDBOX_NOTE
from envbuild.settings import CERTIFICATE_VARIABLES
from envbuild.store.atomic import os_errors_as, write_bytes, write_text

FOLDER = SANDBOX_NOTE.removesuffix(".json")
ENVIRONMENT = ".singularity.d/env/93-envbuild-sandbox.sh"
"""The runtime reads the files of this folder, by name, each time the tree is entered."""
OURS = (FOLDER, ENVIRONMENT)
"""What is not packed."""
SYSTEMS_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def write_network(tree: Path, order: BuildSpec, context: Context) -> None:
    """Let apt-get and pip in a tree reach what this machine reaches.

    Says what could not be found out.
    """
    folder = tree / FOLDER
    with os_errors_as(folder):
        folder.mkdir(mode=0o700)
    variables = {
        "PIP_CONFIG_FILE": _write_pip(folder, context),
        "APT_CONFIG": _write_apt(folder, order, context),
    }
    bundle = _write_certificates(folder, context)
    if bundle:
        variables |= dict.fromkeys(CERTIFICATE_VARIABLES, bundle)
    lines = [f'export {name}="{path}"\n' for name, path in variables.items() if path]
    write_text(tree / ENVIRONMENT, "".join(lines), mode=0o755)


def _write_pip(folder: Path, context: Context) -> str:
    config = configparser.RawConfigParser()
    # PEP 668's marker is for a system that others rely on; this tree is there to be tried in
    config["global"] = {
        "break-system-packages": "true",
        "disable-pip-version-check": "true",
        "root-user-action": "ignore",
    }
    try:
        config["global"]["index-url"] = index_url(context)
    except EnvbuildError as error:
        context.report.say(f"the sandbox gets no package index: {error}")
    text = io.StringIO()
    config.write(text)
    return _write_file(folder / "pip.conf", text.getvalue())


def _write_apt(folder: Path, order: BuildSpec, context: Context) -> str:
    try:
        base = order.lock.base
        reference = locked_reference(order.lock)
        distribution, suite = release_of(base.distro)
        if reference.kind.is_bootstrap:
            suite = reference.name
        source = f"deb {mirror_of(distribution, context)} {suite} {distribution.components}\n"
    except EnvbuildError as error:
        context.report.say(f"the sandbox gets no Debian mirror: {error}")
        return ""
    _write_file(folder / "sources.list", source)
    lines = [
        *apt_network(context),
        f'Acquire::https::CAInfo "/{FOLDER}/certificates.crt";',
        f'Dir::Etc::sourcelist "/{FOLDER}/sources.list";',
        'Dir::Etc::sourceparts "/dev/null";',
        'APT::Install-Recommends "false";',
        'APT::Sandbox::User "root";',  # apt's own user does not exist where the tree's owner has no subordinate ids
    ]
    return _write_file(folder / "apt.conf", "".join(f"{line}\n" for line in lines))


def _write_certificates(folder: Path, context: Context) -> str:
    bundle = context.settings.certificates or Path(
        ssl.get_default_verify_paths().cafile or SYSTEMS_BUNDLE
    )
    if not bundle.is_file():
        return ""
    with os_errors_as(bundle):
        write_bytes(folder / "certificates.crt", bundle.read_bytes())
    return f"/{FOLDER}/certificates.crt"


def _write_file(path: Path, text: str) -> str:
    """Write a file that only its owner reads, and return its path inside the tree."""
    write_text(path, text, mode=0o600)
    return f"/{FOLDER}/{path.name}"
