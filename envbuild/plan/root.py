"""The shell texts that make a bootstrapped base's root.

In a definition's %setup, or in a stage of a Dockerfile.
"""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.base.debian.mmdebstrap import mmdebstrap_arguments
from envbuild.base.model import DebianPackage
from envbuild.names import Texts
from envbuild.plan.quoting import quote_word
from envbuild.plan.shell import (
    BUILD,
    conda_variables,
    network_for_post,
    offline_program,
    script_lines,
    write_heredoc,
)

SECRETS = "/run/secrets"
"""Where an engine shows the secrets of a build, to the steps that ask for them."""
OFFLINE = "/offline.py"
"""In a Dockerfile: the program that starts another one without a network."""
TARGET, STAGED, SUPPLIED_DEBIAN = "/target", "/debian", "/mnt/debian"
"""In a Dockerfile: the root, the other Debian packages, and where the next stage sees those."""


def bootstrap_root(
    base: Sequence[DebianPackage],
    others: Sequence[DebianPackage],
    epoch: int,
    *,
    conda: bool,
) -> Texts:
    """Return %setup lines that fill the root.

    The other Debian packages are put where %post finds them.

    ``epoch`` is in seconds. With ENVBUILD_ROOT (a tar that envbuild made from the same packages)
    nothing is downloaded; else the files come from this machine's own Debian mirror, or from
    DEBIAN_MIRROR, and are verified.
    """
    return script_lines(
        "bootstrap_root",
        epoch=str(epoch),
        fill=_fill_root(base, others, script_lines("leave_network")),
        network=network_for_post(conda_variables(conda=conda)),
    )


def root_stage(base: Sequence[DebianPackage], others: Sequence[DebianPackage], epoch: int) -> Texts:
    """Return the lines that make the same root in a stage of a Dockerfile, on an image of Debian.

    The root is TARGET then, and the other locked packages lie in STAGED.  ``epoch`` is in seconds.
    """
    # dpkg would wait for the disk after each file of a root that is copied once more
    return script_lines(
        "root_stage",
        epoch=str(epoch),
        secrets=SECRETS,
        target=TARGET,
        staged=STAGED,
        program=write_heredoc(f"cat >{OFFLINE}", "PYTHON", offline_program()),
        fill=_fill_root(base, others, (f"    offline='python3 -s -B {OFFLINE}'",)),
    )


def take_secrets(*, staged: bool) -> Texts:
    """Return the lines that let %post find what the engine gives to one step of a Dockerfile only.

    ``staged`` says that another stage has the Debian packages.
    """
    take = script_lines("take_secrets", secrets=SECRETS)
    if not staged:
        return take
    return (*take, f"mkdir -p {BUILD}/files", f"cp -r {SUPPLIED_DEBIAN} {BUILD}/files/debian")


def _fill_root(
    base: Sequence[DebianPackage], others: Sequence[DebianPackage], offline: Texts
) -> Texts:
    """Return lines that download into a folder $work, and fill $root with the base.

    ``offline`` are lines that set the program of that name: it starts others without a network.
    """
    listing = [f"base {p.sha256} {p.path}" for p in base]
    listing += [f"others {p.sha256} {p.path}" for p in others]
    return script_lines(
        "fill_root",
        packages=write_heredoc('    cat >"$work/packages"', "PACKAGES", listing),
        offline=offline,
        mmdebstrap=_mmdebstrap_call(base),
    )


def _mmdebstrap_call(base: Sequence[DebianPackage]) -> str:
    """Return the call that envbuild's own bootstrap makes, with the folder $work of the script."""
    arguments = mmdebstrap_arguments(
        base, repository="$work/base", target="$work/root.tar", mode="root"
    )
    # none of the arguments that name $work holds anything but plain letters beside it
    return " ".join(
        f'"{argument}"' if "$work" in argument else quote_word(argument) for argument in arguments
    )
