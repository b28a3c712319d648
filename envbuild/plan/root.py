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
    write_heredoc,
)

SECRETS = "/run/secrets"
"""Where an engine shows the secrets of a build, to the steps that ask for them."""
LEAVE_NETWORK = (
    "    # the packages' scripts get no network, where one may be left",
    "    offline=",
    "    if unshare --net true 2>/dev/null; then offline='unshare --net'; fi",
)
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
    return (
        "set -eu",
        "{ set +x; } 2>/dev/null",
        "umask 022",
        "root=${APPTAINER_ROOTFS:-$SINGULARITY_ROOTFS}",
        f"export SOURCE_DATE_EPOCH={epoch}",
        'if [ -n "${ENVBUILD_ROOT:-}" ]; then',
        "    # made before by envbuild from the same packages",
        """    tar -C "$root" --exclude='./dev/*' --numeric-owner -xf "$ENVBUILD_ROOT\"""",
        "else",
        *_fill_root(base, others, LEAVE_NETWORK),
        f'    mkdir -p "$root{BUILD}/files"',
        f'    mv "$work/others" "$root{BUILD}/files/debian"',
        *network_for_post(conda_variables(conda=conda)),
        "fi",
    )


def root_stage(base: Sequence[DebianPackage], others: Sequence[DebianPackage], epoch: int) -> Texts:
    """Return the lines that make the same root in a stage of a Dockerfile, on an image of Debian.

    The root is TARGET then, and the other locked packages lie in STAGED.  ``epoch`` is in seconds.
    """
    return (
        "set -eu",
        "umask 022",
        # dpkg would wait for the disk after each file of a root that is copied once more
        f"export SOURCE_DATE_EPOCH={epoch} DEBIAN_FRONTEND=noninteractive DPKG_FORCE=unsafe-io",
        f"if [ -r {SECRETS}/network ]; then set -a; . {SECRETS}/network; set +a; fi",
        f"if [ -r {SECRETS}/certificates ]; then",
        (
            f"""    echo 'Acquire::https::CAInfo "{SECRETS}/certificates";' """
            ">/etc/apt/apt.conf.d/99certificates"
        ),
        "fi",
        'if [ -n "${DEBIAN_MIRROR:-}" ]; then',
        "    rm -f /etc/apt/sources.list.d/*",
        '    release=$(. /etc/os-release; echo "$VERSION_CODENAME")',
        '    echo "deb $DEBIAN_MIRROR $release main" >/etc/apt/sources.list',
        "fi",
        "apt-get -qq update",
        "apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends \\",
        "    mmdebstrap python3 >/dev/null",
        f"root={TARGET}",
        'mkdir "$root"',
        "# the packages' scripts get no network",
        *write_heredoc(f"cat >{OFFLINE}", "PYTHON", offline_program()),
        "{",
        *_fill_root(base, others, (f"    offline='python3 -s -B {OFFLINE}'",)),
        f'    mv "$work/others" {STAGED}',
        "}",
    )


def take_secrets(*, staged: bool) -> Texts:
    """Return the lines that let %post find what the engine gives to one step of a Dockerfile only.

    ``staged`` says that another stage has the Debian packages.
    """
    take = (
        f"if [ -r {SECRETS}/network ]; then cp {SECRETS}/network {BUILD}/network; fi",
        f"if [ -r {SECRETS}/certificates ]; then",
        f"    cp {SECRETS}/certificates {BUILD}/certificates.crt",
        "fi",
    )
    if not staged:
        return take
    return (*take, f"mkdir -p {BUILD}/files", f"cp -r {SUPPLIED_DEBIAN} {BUILD}/files/debian")


def _fill_root(
    base: Sequence[DebianPackage], others: Sequence[DebianPackage], offline: Texts
) -> Texts:
    """Return lines that download into a folder $work, and fill $root with the base.

    ``offline`` are lines that set the program of that name: it starts others without a network.
    """
    return (
        *_download_debian(base, others),
        "    # a flat repository of exactly the locked files",
        '    for file in "$work"/base/*.deb; do',
        '        dpkg-deb --field "$file"',
        """        sum=$(sha256sum <"$file" | cut -d' ' -f1)""",
        '        printf "Filename: ./%s\\nSize: %s\\nSHA256: %s\\n\\n" \\',
        """            "${file##*/}" "$(stat -c %s "$file")" "$sum\"""",
        '    done >"$work/base/Packages"',
        *offline,
        f'    $offline {_mmdebstrap_call(base)} >"$work/log" 2>&1 ||',
        '        { cat "$work/log" >&2; exit 1; }',
        """    tar -C "$root" --exclude='./dev/*' --numeric-owner -xf "$work/root.tar\"""",
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


def _download_debian(base: Sequence[DebianPackage], others: Sequence[DebianPackage]) -> Texts:
    listing = [f"base {p.sha256} {p.path}" for p in base]
    listing += [f"others {p.sha256} {p.path}" for p in others]
    return (
        '    work=$(mktemp -d "${TMPDIR:-/tmp}/envbuild-XXXXXX")',
        """    trap 'rm -rf "$work"' EXIT""",
        '    mkdir "$work/base" "$work/others"',
        "    # this machine's mirror: its first apt source in /debian, or DEBIAN_MIRROR",
        """    sources=$(apt-get update --print-uris | sed -n "s,^'\\([^' ]*\\)/dists/.*,\\1,p")""",
        """    mirror=${DEBIAN_MIRROR:-$(printf '%s\\n' "$sources" | grep -m1 '/debian/*$')}""",
        *write_heredoc('    cat >"$work/packages"', "PACKAGES", listing),
        "    while read -r folder sum path; do",
        """        printf '%s\\n' "${mirror%/}/$path" "$work/$folder/${path##*/}" "SHA256:$sum\"""",
        """    done <"$work/packages" | xargs -n 300 /usr/lib/apt/apt-helper \\""",
        """        download-file >"$work/log" 2>&1 ||""",
        '        { cat "$work/log" >&2; exit 1; }',
        "    while read -r folder sum path; do",
        """        printf '%s  %s\\n' "$sum" "$work/$folder/${path##*/}\"""",
        """    done <"$work/packages" | sha256sum --check --quiet""",
    )
